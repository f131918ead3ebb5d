"""The command driple-sample: parse, call, print, exit code."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from driple.contracts.command import CommandParser, command
from driple.contracts.errors import BadInput

PROG = "driple-sample"
_PATIENCE_S = 5.0  # for the summary, if the controller does not read: the trace has it too, and the sampler must end


@command
def main(argv: Optional[Sequence[str]] = None) -> int:
    """Parses and samples. Exit codes: 0 fine, 2 bad input; with a wrapped command, that of the command."""
    own, wrapped = _split(list(sys.argv[1:] if argv is None else argv))
    arguments = _parser().parse_args(own)
    _check_alone(own, wrapped)
    logging.basicConfig(format=f"{PROG}: %(message)s", level=logging.WARNING)
    try:
        return _act(arguments, wrapped)
    except BadInput as error:
        raise BadInput(f"{PROG}: error: {error}") from None


def _split(argv: List[str]) -> Tuple[List[str], Tuple[str, ...]]:
    if "--" not in argv:
        return argv, ()
    at = argv.index("--")
    if at == len(argv) - 1:
        raise BadInput(f"{PROG}: error: expected a command after --")
    return argv[:at], tuple(argv[at + 1 :])


def _check_alone(own: List[str], wrapped: Tuple[str, ...]) -> None:
    """Refuses options that would be ignored beside one that excludes all others."""
    given = list(dict.fromkeys(word.partition("=")[0] for word in own if word.startswith("--")))
    for option, fitting in (("--answer-clock", ()), ("--seal", ()), ("--spec", ("--json",))):
        others = [other for other in given if other not in (option, *fitting)] + ["a command"] * bool(wrapped)
        if option in given and others:
            raise BadInput(f"{PROG}: error: {option} and {', '.join(others)}: expected {option} alone")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=PROG,
        description="Sample the GPU, the network interface and a task's CPU at a fixed rate into one trace file.\n"
        "A command after -- is started, watched as the task, and its exit code passed on.",
        example=f"{PROG} --hz 200 --for 10 --nic eth0 --gpu 0 --pid 1234 --out trace.parquet",
    )
    parser.usage = f"{PROG} [options] --out FILE [-- COMMAND ...]"
    what = parser.add_argument_group("what")
    what.add_argument("--nic", action="append", default=[], metavar="NAME", help="network interface; repeatable")
    what.add_argument("--gpu", action="append", default=[], metavar="GPU", help="GPU index or UUID; repeatable")
    what.add_argument("--pid", type=int, help="root process of a task; its process tree is sampled until it ends")
    beside = "also sample TCP flows, HZ times per second, into x.flows.parquet next to x.parquet"
    what.add_argument("--flows", type=float, metavar="HZ", help=beside)
    what.add_argument("--host", action="store_true", help="CPU and memory of the host; part of every trace")
    how = parser.add_argument_group("how")
    how.add_argument("--hz", type=float, default=100.0, help="samples per second, 1 to 1000 (default: %(default)g)")
    how.add_argument("--for", type=float, dest="for_s", metavar="SECONDS", help="duration (default: until stopped)")
    how.add_argument(
        "--limit",
        type=float,
        default=86_400.0,
        metavar="SECONDS",
        help="upper limit of it (default: %(default)g)",
    )
    how.add_argument("--out", metavar="FILE", help="the trace file (Parquet)")
    how.add_argument("--normal-priority", action="store_true", help="do not request real-time priority")
    how.add_argument("--json", action="store_true", help="print the summary as one line of JSON")
    other = parser.add_argument_group("for the controller, and after a crash")
    other.add_argument("--spec", type=Path, metavar="FILE", help="all of the above as a JSON file, instead of options")
    other.add_argument("--watch-stdin", action="store_true", help="stop when stdin closes; answer clock probes on it")
    other.add_argument("--answer-clock", action="store_true", help="only answer clock probes on stdin until it closes")
    other.add_argument("--seal", type=Path, metavar="FILE", help="convert what a killed sampler left to Parquet")
    return parser


def _act(arguments: argparse.Namespace, wrapped: Tuple[str, ...]) -> int:
    if arguments.answer_clock:
        from driple.agents.sampler.stop_control import answer_probes

        answer_probes()
        return 0
    if arguments.seal is not None:
        return _seal(arguments.seal)
    return _sample(arguments, wrapped)


def _names_another_format(out: str) -> bool:
    """Whether the name of a file promises what is not written. Devices and pipes may have any name."""
    path = Path(out)
    other = path.suffix[1:].isalpha() and path.suffix.lower() != ".parquet"
    return other and (path.is_file() or not path.exists())


def _seal(samples: Path) -> int:
    from driple.agents.sampler.seal import seal_left

    for path, rows in seal_left(samples).items():
        print(f"{path}: {rows} rows")
    return 0


def _sample(arguments: argparse.Namespace, wrapped: Tuple[str, ...]) -> int:
    from driple.agents.sampler.session import sample
    from driple.agents.sampler.stop_control import say
    from driple.agents.sampler.summary import ProgressLine, table
    from driple.contracts.protocol.message import encode
    from driple.contracts.protocol.sampler_lines import SamplerSummary
    from driple.contracts.protocol.sampler_spec import SamplerSpec, read_spec

    if arguments.spec is not None:
        spec = read_spec(arguments.spec)
    elif arguments.out is None:
        raise BadInput("--out: expected the Parquet file to write, such as --out trace.parquet")
    elif _names_another_format(arguments.out):
        raise BadInput(f"--out {arguments.out}: a trace is a Parquet file; name it {Path(arguments.out).stem}.parquet")
    else:
        spec = SamplerSpec(
            out=arguments.out,
            hz=arguments.hz,
            for_s=arguments.for_s,
            limit_s=arguments.limit,
            nic=tuple(arguments.nic),
            gpu=tuple(arguments.gpu),
            pid=arguments.pid,
            command=wrapped,
            flows_hz=arguments.flows,
            host=arguments.host,
            watch_stdin=arguments.watch_stdin,
            realtime=not arguments.normal_priority,
        )
    progress = ProgressLine() if sys.stderr.isatty() and not spec.command else None
    outcome = sample(spec, progress)
    if progress is not None:
        progress.clear()
    if arguments.json or spec.watch_stdin:
        files = {str(path): rows for path, rows in outcome.files.items()}
        line = encode(SamplerSummary(**outcome.summary, files=files, command_exit=outcome.command_exit))
        if spec.watch_stdin:
            say(line, _PATIENCE_S)
        else:
            print(line)
    else:
        # Beside a wrapped command stdout is the command's own.
        print(table(outcome.summary, outcome.files), file=sys.stderr if spec.command else sys.stdout)
    return outcome.command_exit or 0
