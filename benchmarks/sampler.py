"""What sampling costs, and how well it keeps time: driple-sample beside what people use in its place.

    python benchmarks/sampler.py [--quick] [--json] [--write docs/benchmarks/sampler.md] [--step-python PYTHON]

Every contestant runs once a round, in turn, against the scripted GPU of tests/native, first with the machine quiet,
then with training steps on every core; medians and ranges of the rounds are shown. Needs a C compiler. The training
step is TensorFlow's if the interpreter given by --step-python has it. What cannot run on this machine has a row that
says why. Run it on a quiet machine; under 6 minutes, with --quick under 90 seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path

from pages import machine, parser_of, publish
from sampler_contestants import LOOPS, contestants
from sampler_report import markdown, summary, verdicts
from sampler_rounds import connections, rounds
from sampler_work import Work

CHECKOUT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: whether it works, not how well")
    parser.add_argument("--rounds", type=int, default=5, help="at most (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="window of a run (%(default)s)")
    parser.add_argument("--budget", type=float, default=330.0, help="seconds in all; fewer rounds if needed")
    parser.add_argument("--step-python", default=sys.executable, help="interpreter for the training step")
    parser.add_argument("--verbose", action="store_true", help="every run, as it ends")
    for hidden, kind in (("--loop", str), ("--hz", float), ("--pid", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        LOOPS[options.loop](options.hz, options.pid)
        return
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    if shutil.which("cc") is None:
        raise SystemExit("needs a C compiler (cc) for the scripted GPU of tests/native")
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        build = [sys.executable, str(CHECKOUT / "tests" / "native" / "nvml_stub.py"), "--into", str(folder)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        work = Work(options.step_python, folder)
        stack.callback(work.end)
        work.wait()
        field_of = contestants(work.processes[0].pid, folder)
        stack.enter_context(connections(2))
        done = rounds(field_of, work, folder, options)
    rows = summary(field_of)
    found = {
        "machine": machine(),
        "date": str(date.today()),
        "rounds": done,
        "seconds": options.seconds,
        "load": load,
        "step": work.kind,
        "rows": rows,
        "verdicts": verdicts(rows),
    }
    publish(found, markdown(found), options)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
