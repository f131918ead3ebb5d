"""Predictions of a contestant for a fold, kept in a folder, so that a long contest can go on where it was stopped.

The name of a file has the hash of the datasets, of the contestant's code and of the fold: a change of any of them makes
it void. What a contestant imports beside the files that it names is not part of it: `--fresh` predicts anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from driple.contracts.run_dir import replacing
from time_contest.contestant import Contestant
from time_contest.folds import Fold


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a contestant said of the test rows of a fold."""

    seconds: list[float | None]
    """Of each test row; None without a prediction."""
    learn_s: float
    predict_s: float
    """Of all test rows."""
    sample_runs: list[int]
    """Runs of the very job for each test row; empty for a contestant that needs none."""
    sample_machine_s: list[float]


class KeptPredictions:
    """A folder of predictions."""

    def __init__(self, folder: Path, datasets: str) -> None:
        self.folder = folder / datasets[:12]

    def find(self, name: str, contestant: Contestant, fold: Fold) -> Predicted | None:
        path = self._path(name, contestant, fold)
        return Predicted(**json.loads(path.read_text())) if path.is_file() else None

    def keep(self, name: str, contestant: Contestant, fold: Fold, found: Predicted) -> None:
        path = self._path(name, contestant, fold)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            json.dump(asdict(found), stream)

    def answers(self) -> dict[str, float]:
        """Seconds to answer, by contestant."""
        path = self.folder / "answers.json"
        return dict(json.loads(path.read_text())) if path.is_file() else {}

    def keep_answers(self, found: Mapping[str, float]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / "answers.json") as stream:
            json.dump(dict(found), stream)

    def _path(self, name: str, contestant: Contestant, fold: Fold) -> Path:
        code = hash_of_files(contestant.code)
        positions = sha256(repr((fold.train, fold.test, fold.runs)).encode()).hexdigest()
        folder = f"{_plain(name)}-{code[:12]}"
        return self.folder / folder / f"{_plain(fold.part)}-{_plain(fold.name)}-{positions[:12]}.json"


def hash_of_datasets(datasets: Path, settings: Sequence[str]) -> str:
    """Of the files of settings."""
    digest = sha256()
    for setting in settings:
        digest.update(setting.encode())
        digest.update((datasets / f"{setting}.parquet").read_bytes())
    return digest.hexdigest()


def hash_of_files(paths: Iterable[Path]) -> str:
    """Of files, and of the Python files of folders."""
    digest = sha256()
    for path in paths:
        for one in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(one.read_bytes())
    return digest.hexdigest()


def _plain(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in text)
