"""The wrapper of every command: one-line errors and exit codes. Has no parser, which not every command needs."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import IO, Dict, Optional, Protocol, Sequence

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.run_dir import NO_ROOM

_PIPELINE = "numpy pandas pyarrow sklearn joblib igraph matplotlib google"
_INSPECTOR = "torch safetensors scipy threadpoolctl tensorboard dgl"
EXTRAS: Dict[str, str] = {
    **dict.fromkeys(_PIPELINE.split(), "pipeline"),
    **dict.fromkeys(_INSPECTOR.split(), "inspector"),
    **{"tensorflow": "workloads", "tf_keras": "workloads", "optuna": "tune"},
    "onnx": "onnx",
    **{"dask": "dask", "distributed": "dask", "ray": "ray"},
}
"""The extra that installs a module."""
_PACKAGES = {"google": "protobuf"}
_NOT_TO_PREDICT = ("matplotlib", "tensorboard", "dgl")


class Main(Protocol):
    """The entry point of a command: takes arguments (sys.argv if None), returns the exit code."""

    def __call__(self, argv: Optional[Sequence[str]] = None) -> int:
        """Runs the command."""


def command(main: Main) -> Main:
    """Wraps `main` of a command: a DripleError becomes lines on stderr and an exit code; a bug keeps its traceback."""

    def guarded(argv: Optional[Sequence[str]] = None) -> int:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # for terminals without Unicode
        code = 0
        spec = getattr(sys.modules.get(main.__module__), "__spec__", None)
        name = main.__module__ if spec is None else spec.name  # __main__ with python -m
        try:
            try:
                code = main(argv)
            except (DripleError, ModuleNotFoundError) as error:
                told = error if isinstance(error, DripleError) else missing_extra(error, name)
                if told is None:
                    raise
                code = told.exit_code
                for line in told.lines():
                    print(printable(line), file=sys.stderr)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:  # `driple-run ... | head`
            _discard(sys.stdout, sys.stderr)
        except KeyboardInterrupt:
            code = 130
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if error.filename is None:  # `replacing` sets the name: so it is stdout
                _discard(sys.stdout)
            what = "the output" if error.filename is None else printable(str(error.filename))
            print(f"cannot write {what}: {error.strerror}", file=sys.stderr)
            code = 1
        return code

    guarded.__doc__ = main.__doc__
    return guarded


def require(*modules: str) -> None:
    """Imports modules before anything is written that needs them. Raises ModuleNotFoundError, which `command` tells."""
    for module in modules:
        import_module(module)


def missing_extra(error: ModuleNotFoundError, command_module: str = "") -> Optional[BadInput]:
    """The error for a module that an extra installs; None for any other module.

    One extra installs all that a command needs which predicts or trains: `command_module` tells these commands apart.
    """
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    if extra in ("pipeline", "inspector"):
        if command_module.endswith("cli_predict") and module not in _NOT_TO_PREDICT:
            extra = "predict"
        elif command_module.endswith("cli_train"):
            extra = "inspector"
        elif command_module.endswith("workloads.cli"):
            extra = "workloads-torch" if module == "torch" else "workloads"
    return BadInput(f"{_PACKAGES.get(module, module)} is not installed: pip install 'driple[{extra}]'")


def tell(text: str) -> None:
    """Prints the result of a command. A closed pipe does not change the exit code."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _discard(sys.stdout)


def _discard(*streams: Optional[IO[str]]) -> None:
    """Discards buffered output, which Python would otherwise report at exit."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    """`text` on one line, with control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
