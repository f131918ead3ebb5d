"""driple-train: a dataset to an inspector."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.command import command, printable
from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.folder_lock import only_one
from driple.contracts.run_dir import NO_ROOM
from driple.inspector.training import options
from driple.inspector.training.progress import Progress

if TYPE_CHECKING:
    from driple.inspector.data.examples import Examples
    from driple.inspector.evaluation.error_table import Evaluation
    from driple.inspector.model.inspector_model import InspectorModel
    from driple.inspector.model.model_config import InspectorConfig
    from driple.inspector.training.initialisation import Transfer
    from driple.inspector.training.train_inspector import Trained
    from driple.inspector.training.train_network import Epoch

INTERRUPTED = 130


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Trains, or evaluates.

    Returns:
        0 done; 2 bad input; 130 interrupted, with the best so far written.
    """
    arguments = options.parser().parse_args(argv)
    options.check(arguments)
    # Only now: --help must not wait for what the work needs.
    from driple.contracts.setting import Setting
    from driple.inspector.data.dataset_rows import read_examples
    from driple.inspector.model.inspector_folder import folder_of

    with suppress(ImportError):
        import_module("pandas")  # pyarrow would, where there is one, and swallow a Ctrl-C that comes meanwhile
    _machine(arguments)
    setting = str(Setting.parse(arguments.setting))
    examples = read_examples(arguments.datasets, setting, arguments.role)
    folder = folder_of(arguments.output, setting, arguments.role)
    if arguments.evaluate:
        with _files_in_words():
            return _evaluate(arguments, folder, examples)
    transfer = _transfer(arguments, setting)
    config = _config(arguments, transfer)
    _check(arguments, examples, config, transfer, folder)  # before the folder is made, and anything in it is touched
    with only_one(folder, "driple-train"), _files_in_words():
        if arguments.tune:
            config = _tune(arguments, folder, examples, config)
        return _train(arguments, folder, examples, config, transfer)


@contextmanager
def _files_in_words() -> Iterator[None]:
    """A file of the output folder that cannot be written, or is something else, is no bug."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.errno in NO_ROOM:  # what stands around every command says these
            raise
        raise RunFailed(f"{error.filename2 or error.filename}: {error.strerror}") from None


def _machine(arguments: argparse.Namespace) -> None:
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: torch sees no CUDA device here; leave it out, or install a torch with CUDA")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)


def _check(
    arguments: argparse.Namespace,
    examples: Examples,
    config: InspectorConfig,
    transfer: Transfer | None,
    folder: Path,
) -> None:
    """Finds now what the training would find later."""
    from driple.inspector.data.examples import enough
    from driple.inspector.training.initialisation import same_network, same_rows

    enough(examples, _split(arguments))
    examples.recipe(config.grouping)
    if transfer is None:
        return
    same_network(config, transfer.source)
    same_rows(examples, _split(arguments), transfer.source)
    source = transfer.source.folder
    if source is not None and source.resolve() == folder.resolve():
        raise BadInput(
            f"--transfer-from {arguments.transfer_from}: {folder} is where the new inspector goes, in place of the one "
            "that it starts from; give another --output, and the folder to start from"
        )


def _split(arguments: argparse.Namespace) -> str:
    return arguments.split or "architecture"


def _transfer(arguments: argparse.Namespace, setting: str) -> Transfer | None:
    if arguments.transfer_from is None:
        return None
    from driple.inspector.training.initialisation import Transfer
    from driple.inspector.training.transfer_source import find_source

    ratio = 0.5 if arguments.transfer_ratio is None else arguments.transfer_ratio
    if not 0 < ratio < 1:
        raise BadInput(f"--transfer-ratio: expected a share between 0 and 1, got {ratio:g}")
    source = find_source(
        arguments.transfer_from, arguments.output, setting, arguments.role, allow_other=arguments.allow_other_setting
    )
    return Transfer(source=source, tune=arguments.tune_part or "half", ratio=ratio)


def _config(arguments: argparse.Namespace, transfer: Transfer | None) -> InspectorConfig:
    """The preset, or the source's own config, with the choices made by name."""
    made = options.chosen(arguments)
    base = options.base_of(arguments)
    if transfer is not None:
        theirs = transfer.source.config
        if arguments.preset and arguments.preset != theirs.preset:
            raise BadInput(
                f"--preset {arguments.preset}: the network to start from is of preset {theirs.preset}; a transfer "
                "keeps its source's network, so leave that option out"
            )
        base = theirs
    return options.config_of(base, made)


def _tune(arguments: argparse.Namespace, folder: Path, examples: Examples, config: InspectorConfig) -> InspectorConfig:
    from driple.inspector.training.tune import search

    progress = Progress()
    try:
        best = search(
            examples,
            config,
            arguments.tune,
            split=_split(arguments),
            storage=folder / "tune.db",
            seed=arguments.seed,
            fixed=set(options.chosen(arguments)),
            device=arguments.device,
            execution=arguments.execution,
            threads=arguments.threads,
            say=progress.say,
        )
    except KeyboardInterrupt:
        progress.say(f"interrupted: trials so far are in {folder / 'tune.db'}; the same command goes on")
        raise
    shown = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in sorted(best.choices.items()))
    progress.say(f"best of {best.trials} trials: validation NRMSE {100 * best.val_nrmse:.2f} % with {shown}")
    return best.config


def _train(
    arguments: argparse.Namespace,
    folder: Path,
    examples: Examples,
    config: InspectorConfig,
    transfer: Transfer | None,
) -> int:
    from driple.inspector.model.inspector_folder import save
    from driple.inspector.model.training_rows import TrainingRows, save_rows
    from driple.inspector.training.interrupts import DeferredInterrupt

    states = folder / "training"
    if not arguments.resume:
        shutil.rmtree(states, ignore_errors=True)
    for left in states.glob(".*.partial"):  # of a process that was killed while it wrote
        left.unlink()
    try:
        if arguments.compare_scratch:
            _warm_up(arguments, examples, config)
        trained = _learn(arguments, folder, examples, config, transfer, states)
    except KeyboardInterrupt:
        kept = "; --resume goes on" if any(states.glob("*.safetensors")) else ""
        print(f"interrupted: no inspector is written{kept}", file=sys.stderr)
        raise
    with DeferredInterrupt() as ctrl_c:
        save(folder, trained.inspector)
        save_rows(folder, TrainingRows.of(examples, _split(arguments)))
    for number, fitted in enumerate(trained.fits):
        if fitted.diverged:
            print(f"network {number + 1}: errors were no numbers any more; the best before counts", file=sys.stderr)
    if trained.interrupted or ctrl_c.came:
        last = trained.fits[-1]
        print(
            f"interrupted: the best so far (epoch {last.best_epoch}, validation NRMSE {100 * last.best_nrmse:.2f} %) "
            f"is in {printable(str(folder))}; --resume goes on",
            file=sys.stderr,
        )
        return INTERRUPTED
    try:
        return _tell(arguments, folder, examples, config, transfer, trained)
    except KeyboardInterrupt:
        print(
            f"interrupted: the inspector is in {printable(str(folder))}, without its report; --evaluate makes it",
            file=sys.stderr,
        )
        return INTERRUPTED


def _tell(
    arguments: argparse.Namespace,
    folder: Path,
    examples: Examples,
    config: InspectorConfig,
    transfer: Transfer | None,
    trained: Trained,
) -> int:
    """Says how good what was trained is, beside training from scratch if asked."""
    about: dict[str, Any] = {"training": dict(trained.inspector.training)}
    others: dict[str, Any] = {}
    if transfer is not None:
        about["transfer"] = dict(trained.inspector.transferred_from or {})
    if arguments.compare_scratch:
        from driple.inspector.training.scratch_comparison import compare

        scratch = _learn(arguments, folder, examples, config, None, None, "from scratch:")
        if scratch.interrupted:
            raise KeyboardInterrupt
        about["transfer"] |= compare(trained.fits, scratch.fits)
        others["scratch"] = lambda rows: scratch.inspector.predict(rows, arguments.execution)[0]
    _report(arguments, folder, trained.inspector, examples, about, others)
    return 0


def _warm_up(arguments: argparse.Namespace, examples: Examples, config: InspectorConfig) -> None:
    """Does everything once: whoever came first in a comparison would pay for what is loaded or set up only then."""
    from driple.inspector.model.model_config import changed
    from driple.inspector.training.train_inspector import train_inspector

    once = train_inspector(
        examples,
        changed(config, epochs=1, ensemble=1),
        split=_split(arguments),
        device=arguments.device,
        execution=arguments.execution,
        threads=arguments.threads,
    )
    if once.interrupted:
        raise KeyboardInterrupt


def _learn(
    arguments: argparse.Namespace,
    folder: Path,
    examples: Examples,
    config: InspectorConfig,
    transfer: Transfer | None,
    states: Path | None,
    title: str = "",
) -> Trained:
    from driple.inspector.training.tensorboard_curves import AllCurves
    from driple.inspector.training.train_inspector import train_inspector

    progress = Progress(config.ensemble, title)
    curves = None
    if states is not None:  # what it is compared with leaves no curves
        curves = AllCurves(folder / "events", go_on=arguments.resume, say=progress.say)

    def watch(member: int, epoch: Epoch) -> None:
        progress(member, epoch)
        if curves is not None:
            curves(member, epoch)

    try:
        return train_inspector(
            examples,
            config,
            split=_split(arguments),
            seed=arguments.seed,
            device=arguments.device,
            execution=arguments.execution,
            transfer=transfer,
            watch=watch,
            states=states,
            resume=arguments.resume and states is not None,
            threads=arguments.threads,
        )
    finally:
        progress.clear()
        if curves is not None:
            curves.close()


def _evaluate(arguments: argparse.Namespace, folder: Path, examples: Examples) -> int:
    from driple.inspector.model.inspector_folder import load

    inspector = load(folder, arguments.device)
    about: dict[str, Any] = {"training": dict(inspector.training)}
    if inspector.transferred_from is not None:
        # What it was compared with when it was trained is not known again.
        about["transfer"] = {**_compared_before(folder), **inspector.transferred_from}
    _report(arguments, folder, inspector, examples, about, {})
    return 0


def _compared_before(folder: Path) -> dict[str, Any]:
    """What the report of this inspector says of its transfer; a new inspector removes those of the one before."""
    from driple.inspector.training.scratch_comparison import read_back

    with suppress(OSError, ValueError):
        return read_back(json.loads((folder / "report.json").read_bytes()))
    return {}


def _report(
    arguments: argparse.Namespace,
    folder: Path,
    inspector: InspectorModel,
    examples: Examples,
    about: dict[str, Any],
    others: dict[str, Any],
) -> None:
    """Prints the table, and writes it with pictures if it is of the inspector's own split."""
    from driple.inspector.evaluation.error_table import evaluate
    from driple.inspector.evaluation.report import to_json, to_text, write_reports
    from driple.inspector.training.scratch_comparison import to_text as comparison_text

    found = evaluate(inspector, examples, arguments.split, others=others, execution=arguments.execution)
    own = found.split == inspector.split
    # Printed first: a folder that takes no files does not cost the table.
    if arguments.json:
        print(json.dumps({**to_json(found, about), "folder": str(folder)}, indent=1, allow_nan=False), flush=True)
    else:
        lines = to_text(found).splitlines()
        if "times_faster" in about.get("transfer", {}):
            lines += ["", comparison_text(about["transfer"])]
        print("\n".join(map(printable, lines)), flush=True)
    if own:
        write_reports(folder, found, about)
        _pictures(folder, found)
    if not arguments.json:
        print()
        print(printable(f"-> {folder}" if own else f"{folder} keeps the report of its own split"))


def _pictures(folder: Path, found: Evaluation) -> None:
    from driple.inspector.evaluation.plots import draw

    try:
        draw(folder, found)
    except ImportError:
        print("no pictures: matplotlib is not installed (pip install 'driple[pipeline]')", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
