"""Fits a device and a host file to the rows of a measured dataset."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import CommandParser, command

PROG = "python -m driple.simulator.fit.cli_rows"


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 success, 1 failure, 2 bad input."""
    arguments = _parser().parse_args(argv)
    from datetime import date

    from driple.contracts.errors import BadInput
    from driple.contracts.formats.device import read_device
    from driple.contracts.formats.training_steps import STEPS
    from driple.contracts.setting import Setting
    from driple.simulator.fit.cpu_files import machine_file
    from driple.simulator.fit.fit_rows import fit_rows, fit_speed, replays_of
    from driple.simulator.fit.measured_jobs import read_jobs
    from driple.simulator.fit.step_source import StepFile

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    setting = Setting.parse(arguments.setting)
    if arguments.machine is not None and (arguments.speed_of is None or arguments.machine.stem != str(setting)):
        raise BadInput(f"--machine goes with --speed-of, and its file has the name of the setting: {setting}.json")
    jobs = [job for job in read_jobs(arguments.datasets, setting) if arguments.all or job.side != "test"]
    if not jobs:
        raise BadInput(f"{setting}: all rows are on the test side of the architecture split; add --all")
    replays = replays_of(jobs, StepFile(arguments.steps or arguments.datasets / STEPS, say))
    today, source = str(date.today()), f"fit of {len(jobs)} workloads of {setting}"
    if arguments.speed_of is not None:
        device_path, host_path = arguments.speed_of
        device = fit_speed(replays, read_device(device_path), read_device(host_path), source=source, date=today)
        files = {arguments.device: device}
        if arguments.machine is not None:
            files = {arguments.machine: machine_file(device, setting)}
    else:
        device, host = fit_rows(
            replays,
            source=source,
            date=today,
            device_name=arguments.device.stem,
            host_name=arguments.host.stem,
            tries=arguments.tries,
            seed=arguments.seed,
            say=say,
        )
        files = {arguments.device: device, arguments.host: host}
    for path, file in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        file.write(path)
        print(f"{path}: {len(file.parameters)} parameters")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=PROG,
        description="Fits op rates, processor seconds of servers and timing constants of a processor to measured rows.",
        example=f"{PROG} datasets --setting cpu-p1w2-1g --device devices/cpu.json --host devices/cpu-host.json",
    )
    parser.add_argument("datasets", type=Path, help="folder of datasets")
    parser.add_argument("--setting", required=True, help="whose rows, such as cpu-p1w2-1g")
    parser.add_argument("--all", action="store_true", help="also rows on the test side of the architecture split")
    parser.add_argument("--steps", type=Path, help="file of training steps; missing ones are added")
    parser.add_argument("--device", type=Path, default=Path("devices/cpu.json"), help="to write (%(default)s)")
    parser.add_argument("--host", type=Path, default=Path("devices/cpu-host.json"), help="to write (%(default)s)")
    parser.add_argument(
        "--speed-of", type=Path, nargs=2, metavar=("DEVICE", "HOST"), help="fit only the speed beside these files"
    )
    parser.add_argument(
        "--machine", type=Path, metavar="FILE", help="with --speed-of: write the speed alone, as the setting's machine"
    )
    parser.add_argument("--tries", type=int, default=80, help="sets of timing constants (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the search (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
