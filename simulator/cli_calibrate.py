"""driple-calibrate: measures a machine and writes its device file and host file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driple.contracts.command import CommandParser, command
from driple.contracts.command_guard import tell
from driple.contracts.errors import BadInput
from driple.contracts.formats.calibration_result import CPU_DEVICE, GPU_DEVICE

if TYPE_CHECKING:
    from driple.simulator.calibrate import Calibration

FOLDER = Path("devices")
MOST_THREADS = 4096
TRIES = 40
"""Sets of timing constants in a fit to rows: about two minutes."""
KINDS = ("device", "host")


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 both files are written; 1 the measurement failed; 2 bad input; 130 interrupted."""
    arguments = parser().parse_args(argv)
    options = {"device": arguments.device, "threads": arguments.threads, "quick": arguments.quick or None}
    given = [name for name, value in options.items() if value is not None]
    other = "results" if arguments.from_results is not None else "rows" if arguments.from_rows is not None else None
    if other is not None and given:
        raise BadInput(f"--{given[0]} does not go with --from-{other}: nothing is measured")
    if (arguments.from_rows is None) != (arguments.setting is None):
        raise BadInput("--from-rows and --setting go together: they name the dataset of the machine")
    if arguments.from_rows is not None and (arguments.from_results or arguments.keep_results):
        raise BadInput("--from-rows goes with neither --from-results nor --keep-results")
    from driple.contracts.formats.calibration_result import read_calibration
    from driple.simulator import calibrate

    output = arguments.output or FOLDER / f"{arguments.name}.json"
    calibrate.check_target(arguments.name, output, arguments.force)
    if arguments.from_rows is not None:
        return _from_rows(arguments, output)
    if arguments.from_results is not None:
        result = read_calibration(arguments.from_results)
    else:
        device = arguments.device or CPU_DEVICE
        result = calibrate.measure(device, arguments.threads, arguments.quick, Progress())
    found = calibrate.fit(result, arguments.name, output)
    calibrate.write(found, arguments.keep_results)
    tell(_json(found) if arguments.json else _text(found))
    return 0


def _from_rows(arguments: argparse.Namespace, output: Path) -> int:
    from driple.contracts.json_values import to_plain
    from driple.contracts.setting import Setting
    from driple.simulator.calibrate import write_files
    from driple.simulator.fit.row_calibration import calibrate_from_rows

    setting = Setting.parse(arguments.setting)
    files = calibrate_from_rows(
        arguments.from_rows,
        setting,
        arguments.name,
        tries=TRIES,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    paths = write_files(output, *files)
    if arguments.json:
        found = {
            kind: {"path": str(path), "file": to_plain(file)}
            for kind, path, file in zip(KINDS, paths, files, strict=True)
        }
        tell(json.dumps(found, indent=1))
        return 0
    fits = [one for file in files for one in file.parameters.values() if one.error_pct is not None]
    error = max(fits, key=lambda one: one.points or 0).error_pct if fits else None
    lines = [f"{files[0].name}: {files[0].title}", *files[0].notes]
    lines += [] if error is None else [f"error of the step time in the fit: {error:.1f} %"]
    tell("\n".join([*lines, "", f"written: {paths[0]}, {paths[1]}"]))
    return 0


def parser() -> CommandParser:
    """All options."""
    made = CommandParser(
        prog="driple-calibrate",
        description="Measure this machine with a micro-benchmark of at most two minutes, and write the device file\n"
        "and the host file with which the simulator computes jobs on such machines. Needs TensorFlow. For\n"
        "another machine, run it there and copy the two files. --from-rows fits to measured runs instead.",
        example="driple-calibrate --name mymachine --output devices/mymachine.json",
    )
    add = made.add_argument
    add("--name", required=True, help="kind of device, as in a setting: v100 in v100-p1w2-pcie")
    add("--output", type=Path, metavar="FILE", help="device file; the host file <NAME>-host.json is written beside it"
        f" (default: {FOLDER}/<NAME>.json)")  # fmt: skip
    add("--device", type=_device, help=f"{CPU_DEVICE} or {GPU_DEVICE}<number> (default: {CPU_DEVICE})")
    add("--threads", type=_threads, metavar="N", help="threads of an op, as in experiments; 0 for TensorFlow's default"
        " (default: 1 for cpu, else 0)")  # fmt: skip
    add("--quick", action="store_true", help="a short form of 20 seconds: fewer ops, and shorter")
    add("--from-results", type=Path, metavar="FILE", help="do not measure: take a result that was kept")
    add("--from-rows", type=Path, metavar="DATASETS", help="do not measure: fit to a dataset that was measured on such"
        " machines (with --setting)")  # fmt: skip
    add("--setting", help="whose rows, such as cpu-p1w2-1g")
    add("--keep-results", type=Path, metavar="FILE", help="also write what was measured")
    add("--force", action="store_true", help="replace files that exist")
    add("--json", action="store_true", help="print the results as JSON")
    return made


class Progress:
    """One line on a terminal; elsewhere a line for every tenth of the work."""

    def __init__(self) -> None:
        self._shown = -1

    def __call__(self, done: int, parts: int, name: str) -> None:
        tenth = 10 * done // max(parts, 1)
        if sys.stderr.isatty():
            end = "\n" if done == parts else ""
            print(f"\r\033[K{done} of {parts}: {name}", end=end, file=sys.stderr, flush=True)
        elif tenth > self._shown:
            self._shown = tenth
            print(f"{done} of {parts}: {name}", file=sys.stderr, flush=True)


def _device(text: str) -> str:
    if text != CPU_DEVICE and not (text.startswith(GPU_DEVICE) and text[len(GPU_DEVICE) :].isdecimal()):
        raise argparse.ArgumentTypeError(f"expected {CPU_DEVICE} or {GPU_DEVICE}<number>, got {text!r}")
    return text


def _threads(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"expected 0 to {MOST_THREADS}, got {text!r}")
    return int(text)


def _text(found: Calibration) -> str:
    result, file = found.result, found.device.file
    peak, rate = file.value("peak_flops_per_s"), file.value("memory_bytes_per_s")
    lines = [
        f"{file.name}: {file.title} ({result.framework}), {peak / 1e9:.4g} GFLOP/s, {rate / 1e9:.4g} GB/s",
        *file.notes,
        "",
        f"{'kind of op':22} {'ops':>4} {'spread %':>9} {'error of the fit %':>19}",
        *(f"{row.kind:22} {row.ops:4} {row.spread_pct:9.1f} {row.error_pct:19.1f}" for row in found.device.rows),
        "",
        f"{'transfer':12} {'tensors':>8} {'MB':>9} {'ms':>9} {'spread %':>9}",
        *(
            f"{one.what:12} {one.tensors:8} {one.bytes / 1e6:9.3f} {1e3 * one.wall_s:9.3f} {one.spread_pct:9.1f}"
            for one in result.transfers
        ),
        *(f"copy {one.way:12} {one.bytes / one.wall_s / 1e9:9.3f} GB/s" for one in result.copies),
        "",
        f"written: {found.device_path}" + (f", {found.host_path}" if found.host else ""),
        f"try: driple-run EXPERIMENT --simulate, with a setting such as {file.name}-p1w2-1g",
    ]
    return "\n".join(lines)


def _json(found: Calibration) -> str:
    from driple.contracts.json_values import to_plain

    hosts = None if found.host is None else {"path": str(found.host_path), "file": to_plain(found.host)}
    return json.dumps(
        {
            "device": {"path": str(found.device_path), "file": to_plain(found.device.file)},
            "host": hosts,
            "kinds": to_plain(found.device.rows),
            "seconds": found.result.seconds,
        },
        indent=1,
    )


if __name__ == "__main__":
    sys.exit(main())
