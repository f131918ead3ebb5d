"""Start time of the agent: two checkouts, started in turn exactly as the controller does, until the `ready` line.

    python benchmarks/agent_start.py ../before . --starts 40

Both bundles are built by this Python and are already on the host, as at every start but the first.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

BOOTSTRAPS = ("orchestrator/hosts/bootstrap.py", "orchestrator/arrival.py")
"""The program that is sent first; the second is the name before the packages were split."""


class Checkout:
    """A tree of sources, with its agent's file in a work folder."""

    def __init__(self, tree: Path, folder: Path) -> None:
        packages = folder / "packages" / "driple"
        packages.mkdir(parents=True)
        (packages / "__init__.py").touch()  # else an installed driple comes first
        for name in ("agents", "contracts"):
            (packages / name).symlink_to(tree.resolve() / name)
        command = [sys.executable, "-m", "driple.agents.bundle", "-"]
        environment = {**os.environ, "PYTHONPATH": str(folder / "packages")}
        content = subprocess.run(command, env=environment, cwd=folder, check=True, stdout=subprocess.PIPE).stdout
        work = folder / "work"
        work.mkdir()
        path = work / "agent.pyz"
        path.write_bytes(content)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            start = archive.read("__main__.py").decode()
            own = (tree / "agents" / "bundle.py").read_text(encoding="utf-8")
            assert start in own, "the bundle was built from another tree"
        word = "daemon" if '["daemon"]' in start else "steward"
        self._argv = [sys.executable, "-I", "-S", "-c", "exec(input())", str(path), str(len(content))]
        self._argv += [str(zlib.crc32(content)), word, "--work", str(work), "--owner", "benchmark"]
        bootstrap = next(path for name in BOOTSTRAPS if (path := tree / name).exists())
        self._first = b"exec(%a)\n" % bootstrap.read_text(encoding="utf-8")

    def start_ms(self) -> float:
        """Starts an agent, waits for `ready`, and ends it."""
        began = time.perf_counter()
        with subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
            assert agent.stdin is not None and agent.stdout is not None
            agent.stdin.write(self._first)
            agent.stdin.flush()
            line = agent.stdout.readline()
            took = 1000 * (time.perf_counter() - began)
            assert "ready" in json.loads(line), line
            agent.stdin.close()
            agent.stdout.read()
        return took


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another checkout")
    parser.add_argument("--starts", type=int, default=40, help="starts of each, at least 30 (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    if options.starts < 30:
        parser.error("--starts: expected at least 30")
    with tempfile.TemporaryDirectory() as folder:
        trees = (options.before, options.after)
        sides = [Checkout(tree, Path(folder, str(i))) for i, tree in enumerate(trees)]
        took: list[list[float]] = [[], []]
        for number in range(options.starts + 2):
            for side in (0, 1) if number % 2 else (1, 0):
                ms = sides[side].start_ms()
                if number >= 2:  # the first ones fill the page cache
                    took[side].append(ms)
    medians = [statistics.median(values) for values in took]
    ratios = sorted(after / before for before, after in zip(*took, strict=True))
    quartiles = [statistics.quantiles(values, n=4) for values in (*took, ratios)]
    result = {
        "starts": options.starts,
        "before_ms": {"median": medians[0], "quartiles": quartiles[0][::2]},
        "after_ms": {"median": medians[1], "quartiles": quartiles[1][::2]},
        "ratio": medians[1] / medians[0],
        "ratio_of_pairs": {"median": statistics.median(ratios), "quartiles": quartiles[2][::2]},
    }
    if options.json:
        print(json.dumps(result))
        return 0
    for name, median, (low, _, high) in zip(("before", "after"), medians, quartiles[:2], strict=True):
        print(f"{name:7} median {median:6.1f} ms, quartiles {low:.1f} to {high:.1f} ms")
    low, _, high = quartiles[2]
    print(f"ratio   {result['ratio']:.3f}; of pairs: quartiles {low:.3f} to {high:.3f}; {options.starts} starts each")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
