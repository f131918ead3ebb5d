"""Functions in users' own files. Their errors become a BadInput that names file, line and cause."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, unknown


def user_function(path: Path, name: str, sha256: str | None = None) -> Callable[..., Any]:
    """Imports a function from a file.

    Raises BadInput for a missing file, another one than that of the hash, an import error, or an unknown function.
    """
    where = f"{path}:{name}"
    if not name.isidentifier():
        raise BadInput(f"model {where!r}: expected file.py:function")
    try:
        code = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{where}: cannot read the file: {error.strerror or error}") from error
    if sha256 not in (None, hashlib.sha256(code).hexdigest()):
        raise BadInput(f"{where}: the file is not the one that was planned (its SHA-256 differs); plan again")
    function: Callable[..., Any] | None = getattr(_import(path, where), name, None)
    if function is None or not inspect.isfunction(function):
        functions = [key for key, value in vars(sys.modules[_module_name(path)]).items() if inspect.isfunction(value)]
        raise BadInput(f"{path}: {unknown('function', name, functions)}")
    return function


def _module_name(path: Path) -> str:
    return "driple_user_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]


def _import(path: Path, where: str) -> Any:
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{where}: not a Python file (expected a name that ends in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look for a module by its name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{where}: cannot be imported: {cause(error, str(path))}") from error
    return module


def cause(error: BaseException, file: str) -> str:
    """Type and first line of an exception, with the line number in the user's file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    at = f" at line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}{at}: {(str(error) or 'no message').splitlines()[0]}"
