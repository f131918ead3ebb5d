"""train: a dataset to the inspector of a setting, from scratch or by transfer.

result = train("cpu-p2w2-1g", ensemble=5)
print(result)                       # errors beside those of the baselines
result.folder, result.inspector, result.report
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.command_guard import require
from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.folder_lock import only_one
from driple.contracts.formats.dataset import SIMULATED, joined_provenance
from driple.contracts.formats.inspector import EVENTS_FOLDER, REPORT_FILE, STATES_FOLDER, TUNE_FILE, folder_name
from driple.contracts.run_dir import NO_ROOM
from driple.contracts.setting import Setting
from driple.inspector.training.train_config import TrainConfig, build, choices

if TYPE_CHECKING:
    from driple.inspector.data.examples import Examples
    from driple.inspector.evaluation.error_table import Evaluation
    from driple.inspector.model.inspector_model import InspectorModel
    from driple.inspector.training.initialisation import Transfer
    from driple.inspector.training.train_inspector import Trained
    from driple.inspector.training.train_network import Epoch

Progress = Callable[[int, "Epoch", int], None]
"""Receives the number of a network, its epoch, and how many networks there are."""
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainResult:
    """A trained inspector and its errors."""

    folder: Path
    inspector: InspectorModel = field(repr=False)
    config: TrainConfig | None
    """None where an inspector was only evaluated."""
    evaluation: Evaluation | None = field(repr=False)
    """None where the training was interrupted."""
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """How the training and a transfer went."""
    interrupted: bool = False
    """Ctrl-C came. The folder has the best epoch so far; `resume` continues."""
    fault: RunFailed | None = None
    """Why the files of the report could not be written."""

    @property
    def report(self) -> dict[str, Any]:
        """Errors of the inspector and the baselines, as JSON values."""
        from driple.inspector.evaluation.report import to_json

        found = {} if self.evaluation is None else to_json(self.evaluation, self.about)
        return {**found, "folder": str(self.folder)}

    def __str__(self) -> str:
        from driple.inspector.evaluation.report import to_text
        from driple.inspector.training.scratch_comparison import to_text as comparison_text

        if self.evaluation is None:
            return f"{self.folder}: interrupted"
        compared = "times_faster" in self.about.get("transfer", {})
        return to_text(self.evaluation) + (f"\n\n{comparison_text(self.about['transfer'])}" if compared else "")


def train(
    setting: str,
    *,
    datasets: str | Path = "datasets",
    output: str | Path = "inspectors",
    role: str = "worker",
    split: str = "architecture",
    seed: int = 0,
    ensemble: int | None = None,
    epochs: int | None = None,
    preset: str | None = None,
    transfer_from: str | Path | None = None,
    tune_part: str | None = None,
    compare_scratch: bool = False,
    tune: int | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | str | Path | None = None,
    settings: tuple[str, ...] = (),
    progress: Progress | None = None,
    say: Say | None = None,
) -> TrainResult:
    """Trains the inspector of a setting, writes it to `output` and evaluates it beside baselines.

    Args:
        setting: which, such as `v100-p1w2-pcie`.
        datasets: folder with `<setting>.parquet`, or that file.
        output: folder of inspectors.
        role: `worker` or `ps`.
        split: how training, validation and test workloads are separated: `architecture` or `random`.
        seed: random seed.
        ensemble: networks whose predictions are averaged; with two or more, predictions have a spread.
        epochs: at most so many.
        preset: `driple` or `paper`.
        transfer_from: start from the inspector of this setting or folder, or from a published checkpoint.
        tune_part: the part that a transfer tunes.
        compare_scratch: with a transfer, also train from scratch and compare.
        tune: search hyper-parameters in so many trials first.
        resume: continue an interrupted training.
        config: further choices, nested or by dotted key, or a YAML file of them (train_config.py has the keys).
        settings: the same as `key=value` texts; these override `config`.
        progress: receives every epoch.
        say: receives lines about what happens.

    Raises:
        BadInput: an unknown name, contradicting choices, or a dataset that cannot be learned from.
        RunFailed: a file cannot be written.
        KeyboardInterrupt: Ctrl-C came before there was anything to keep.
    """
    job = _Job(setting, Path(datasets), Path(output), role, split, seed, progress, say or _silent)
    found = given(config, settings, preset=preset, ensemble=ensemble, epochs=epochs, tune_part=tune_part)
    check(found, transfer_from, compare_scratch, tune)
    with _loaded(found):
        examples = job.read(**vars(_part(found, "data").data))
        if examples.provenance == SIMULATED:
            job.say(f"SIMULATED: {job.setting} has no measured rows in {job.datasets}: training on simulated ones")
        transfer, full = resolve(found, job.setting, role, transfer_from, job.output)
        job.check(examples, full, transfer)  # before the folder is made, and anything in it is touched
        require("sklearn", "scipy", "threadpoolctl", "safetensors", "igraph", *(["optuna"] if tune else []))
        with only_one(job.folder, "driple-train"), _files_as_errors():
            if tune:
                full = job.tune(examples, full, tune, fixed=set(found))
            return job.train(examples, full, transfer, compare_scratch, resume)


def evaluate_inspector(
    setting: str,
    *,
    datasets: str | Path = "datasets",
    output: str | Path = "inspectors",
    role: str = "worker",
    split: str | None = None,
    say: Say | None = None,
) -> TrainResult:
    """Evaluates an inspector that is there, and writes its reports again if `split` is its own.

    Raises:
        BadInput: there is no inspector or dataset.
    """
    from driple.inspector.model.inspector_folder import load

    job = _Job(setting, Path(datasets), Path(output), role, split, say=say or _silent)
    # Whether an inspector should have learned from several machines was decided when it was trained.
    examples, inspector = job.read(mix_machines=True), load(job.folder)
    mixed = inspector.provenance == joined_provenance((examples.provenance, SIMULATED)) != examples.provenance
    if mixed and inspector.transferred_from is None:
        examples = job.read(add_simulated=True, mix_machines=True)
    about: dict[str, Any] = {"training": dict(inspector.training)}
    if inspector.transferred_from is not None:  # the comparison with scratch is only in the previous report
        about["transfer"] = {**_compared_before(job.folder), **inspector.transferred_from}
    with _files_as_errors():
        return job.report(inspector, examples, None, about, {})


def given(config: Mapping[str, Any] | str | Path | None, settings: tuple[str, ...], **named: Any) -> dict[str, Any]:
    """Values by key from a config, from arguments with a name of their own, and from `key=value` texts."""
    keys = {"epochs": "training.epochs", "tune_part": "transfer.tune_part"}
    own = {keys.get(name, name): value for name, value in named.items() if value is not None}
    return {**choices(config), **choices(own), **choices(None, settings)}


def resolve(
    found: Mapping[str, Any], setting: str, role: str, transfer_from: str | Path | None, output: Path
) -> tuple[Transfer | None, TrainConfig]:
    """The source of a transfer, and the effective configuration.

    Raises:
        BadInput: there is no such source, or a value is not allowed.
    """
    if transfer_from is None:
        return None, build(found)
    from driple.inspector.training.initialisation import Transfer
    from driple.inspector.training.transfer_source import find_source

    how = _part(found, "transfer").transfer
    source = find_source(str(transfer_from), output, setting, role, allow_other=how.allow_other_setting)
    full = build(found, source.config)
    return Transfer(source=source, tune=how.tune_part, ratio=how.ratio), full


def _part(found: Mapping[str, Any], part: str) -> TrainConfig:
    """The configuration with the values of one part."""
    return build({name: value for name, value in found.items() if name.startswith(f"{part}.")})


def check(found: Mapping[str, Any], transfer_from: str | Path | None, compare_scratch: bool, tune: int | None) -> None:
    """Raises BadInput for choices that contradict each other."""
    if transfer_from is None:
        if compare_scratch:
            raise BadInput("--compare-scratch goes with --transfer-from")
    elif "transfer.ratio" in found and found.get("transfer.tune_part", "half") != "half":
        raise BadInput(f"transfer.ratio goes with --tune-part half, not {found['transfer.tune_part']}")
    elif tune:
        raise BadInput("--tune searches networks, and --transfer-from keeps its source's: give one of them")


@contextmanager
def _loaded(found: Mapping[str, Any]) -> Iterator[None]:
    """Imports torch, with the threads that were asked for."""
    machine = _part(found, "machine").machine
    with suppress(ImportError):
        import_module("pandas")  # pyarrow would, where there is one, and swallow a Ctrl-C that comes meanwhile
    require("numpy")  # torch only warns that there is none
    import torch

    from driple.inspector.training.threads import torch_threads

    if machine.device == "cuda" and not torch.cuda.is_available():
        raise BadInput("machine.device cuda: torch finds no CUDA device; leave it out, or install a torch with CUDA")
    with nullcontext() if machine.threads is None else torch_threads(machine.threads):
        yield


@contextmanager
def _files_as_errors() -> Iterator[None]:
    """A file of the output folder that cannot be written is a RunFailed."""
    try:
        yield
    except OSError as error:
        raise _file_error(error) from None


def _file_error(error: OSError) -> RunFailed:
    if error.filename is None or error.errno in NO_ROOM:  # every command reports these
        raise error
    return RunFailed(f"{error.filename2 or error.filename}: {error.strerror}")


def _silent(line: str) -> None:
    pass


@dataclass(frozen=True, eq=False)
class _Job:
    """A training with its arguments."""

    name: str
    datasets: Path
    output: Path
    role: str
    split: str | None
    seed: int = 0
    progress: Progress | None = None
    say: Say = _silent

    @property
    def setting(self) -> str:
        return str(Setting.parse(self.name))

    @property
    def folder(self) -> Path:
        return self.output / folder_name(self.setting, self.role)

    def read(self, **which: bool) -> Examples:
        """The examples; arguments as DataConfig."""
        from driple.inspector.data.dataset_rows import read_examples

        return read_examples(self.datasets, self.setting, self.role, **which)

    def check(self, examples: Examples, full: TrainConfig, transfer: Transfer | None) -> None:
        """Raises early what the training would raise later."""
        from driple.inspector.data.examples import enough
        from driple.inspector.model.store import provenance_in
        from driple.inspector.network.batching.sparse import load_dgl
        from driple.inspector.training.initialisation import check_source
        from driple.inspector.training.transfer_source import check_provenance

        enough(examples, self.split or "")
        before = provenance_in(self.folder)
        if examples.provenance == SIMULATED and before not in (None, SIMULATED):
            raise BadInput(
                f"{self.folder}: has an inspector of {before} rows, which one of simulated rows does not replace; give"
                " another --output"
            )
        examples.recipe(full.model.grouping)
        if full.machine.execution == "dgl":
            load_dgl()
        if transfer is None:
            return
        check_source(full.model, self.split or "", transfer.source)
        check_provenance(transfer.source, examples.provenance, allow_mixed=full.transfer.allow_simulated)
        source = transfer.source.folder
        if source is not None and source.resolve() == self.folder.resolve():
            raise BadInput(
                f"--transfer-from {source}: {self.folder} is where the new inspector goes, in place of the one "
                "that it starts from; give another --output, and the folder to start from"
            )

    def tune(self, examples: Examples, full: TrainConfig, trials: int, fixed: set[str]) -> TrainConfig:
        from driple.inspector.training.tune import search

        storage = self.folder / TUNE_FILE
        try:
            best = search(
                examples,
                full.model,
                trials,
                split=self.split or "",
                storage=storage,
                seed=self.seed,
                fixed={name.rpartition(".")[2] for name in fixed},
                say=self.say,
                **dataclasses.asdict(full.machine),
            )
        except KeyboardInterrupt:
            self.say(f"interrupted: trials so far are in {storage}; the same command continues")
            raise
        shown = " ".join(f"{name}={value}" for name, value in sorted(best.choices.items()))
        self.say(f"best of {best.trials} trials: validation NRMSE {100 * best.val_nrmse:.2f} % with {shown}")
        return dataclasses.replace(full, model=best.config)

    def train(
        self, examples: Examples, full: TrainConfig, transfer: Transfer | None, compare_scratch: bool, resume: bool
    ) -> TrainResult:
        from driple.inspector.model.inspector_folder import save
        from driple.inspector.model.model_config import changed
        from driple.inspector.model.training_rows import TrainingRows, save_rows
        from driple.inspector.training.interrupts import DeferredInterrupt

        states = self.folder / STATES_FOLDER
        if not resume:
            shutil.rmtree(states, ignore_errors=True)
        for left in states.glob(".*.partial"):  # of a process that was killed while it wrote
            left.unlink()
        try:
            if compare_scratch:  # else the first of the comparison pays for what is loaded only once
                once = dataclasses.replace(full, model=changed(full.model, epochs=1, ensemble=1))
                if dataclasses.replace(self, progress=None)._learn(examples, once, None, None, False).interrupted:
                    raise KeyboardInterrupt
            trained = self._learn(examples, full, transfer, states, resume)
        except KeyboardInterrupt:
            kept = "; --resume goes on" if any(states.glob("*.safetensors")) else ""
            self.say(f"interrupted: no inspector is written{kept}")
            raise
        with DeferredInterrupt() as ctrl_c:
            save(self.folder, trained.inspector)
            loops = trained.inspector.preparation.featuriser.loops
            save_rows(self.folder, TrainingRows.of(examples, self.split or "", loops))
        for number, fitted in enumerate(trained.fits):
            if fitted.diverged:
                self.say(f"network {number + 1}: the loss became NaN; training stopped and keeps the best epoch")
        stopped = TrainResult(
            folder=self.folder, inspector=trained.inspector, config=full, evaluation=None, interrupted=True
        )
        if trained.interrupted or ctrl_c.came:
            last = trained.fits[-1]
            self.say(
                f"interrupted: the best so far (epoch {last.best_epoch}, validation NRMSE "
                f"{100 * last.best_nrmse:.2f} %) is in {self.folder}; --resume goes on"
            )
            return stopped
        try:
            return self._judge(examples, full, trained, compare_scratch)
        except KeyboardInterrupt:
            self.say(f"interrupted: the inspector is in {self.folder}, without its report; --evaluate makes it")
            return stopped

    def _judge(self, examples: Examples, full: TrainConfig, trained: Trained, compare_scratch: bool) -> TrainResult:
        about: dict[str, Any] = {"training": dict(trained.inspector.training)}
        others: dict[str, Any] = {}
        if trained.inspector.transferred_from is not None:
            about["transfer"] = dict(trained.inspector.transferred_from)
        if compare_scratch:
            from driple.inspector.training.scratch_comparison import compare

            scratch = self._learn(examples, full, None, None, False)
            if scratch.interrupted:
                raise KeyboardInterrupt
            about["transfer"] |= compare(trained.fits, scratch.fits)
            others["scratch"] = lambda rows: scratch.inspector.predict(rows, full.machine.execution)[0]
        return self.report(trained.inspector, examples, full, about, others)

    def _learn(
        self, examples: Examples, full: TrainConfig, transfer: Transfer | None, states: Path | None, resume: bool
    ) -> Trained:
        from driple.inspector.training.tensorboard_curves import LearningCurves
        from driple.inspector.training.train_inspector import train_inspector

        curves = None
        if states is not None:  # a training from scratch for comparison leaves no curves
            curves = LearningCurves(self.folder / EVENTS_FOLDER, go_on=resume, say=self.say)

        def watch(member: int, epoch: Epoch) -> None:
            if self.progress is not None:
                self.progress(member, epoch, full.model.ensemble)
            if curves is not None:
                curves(member, epoch)

        try:
            return train_inspector(
                examples,
                full.model,
                split=self.split or "",
                seed=self.seed,
                transfer=transfer,
                watch=watch,
                states=states,
                resume=resume,
                **vars(full.machine),
            )
        finally:
            if curves is not None:
                curves.close()

    def report(
        self,
        inspector: InspectorModel,
        examples: Examples,
        full: TrainConfig | None,
        about: dict[str, Any],
        others: dict[str, Any],
    ) -> TrainResult:
        """Evaluates, and writes the report if the split is the inspector's own."""
        from driple.inspector.evaluation.error_table import evaluate
        from driple.inspector.evaluation.report import write_reports

        execution = "auto" if full is None else full.machine.execution
        found = evaluate(inspector, examples, self.split, others=others, execution=execution)
        fault = None
        if found.split == inspector.split:
            try:  # a folder that takes no files does not cost the result
                write_reports(self.folder, found, about)
                draw_pictures(self.folder, found, self.say)
            except OSError as error:
                fault = _file_error(error)
        return TrainResult(
            folder=self.folder, inspector=inspector, config=full, evaluation=found, about=about, fault=fault
        )


def _compared_before(folder: Path) -> dict[str, Any]:
    """The comparison with scratch in the report of this inspector; a new inspector removes the reports before it."""
    from driple.inspector.training.scratch_comparison import read_back

    with suppress(OSError, ValueError):
        return read_back(json.loads((folder / REPORT_FILE).read_bytes()))
    return {}


def draw_pictures(folder: Path, found: Evaluation, say: Say) -> None:
    """Draws the pictures of a report, where matplotlib is installed."""
    from driple.inspector.evaluation.plots import draw

    try:
        draw(folder, found)
    except ImportError:
        say("no pictures: matplotlib is not installed (pip install 'driple[pipeline]')")
