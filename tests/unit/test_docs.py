"""What the documents say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from driple.orchestrator.cli import main
from driple.orchestrator.config.experiment import KEYS, load_experiment
from driple.orchestrator.config.inventory import HOST_KEYS
from driple.orchestrator.config.workload_grid import GRID_KEYS


def blocks(path: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def test_the_readme_shows_the_shipped_experiment_and_its_real_plan(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(checkout)
    (shown,) = blocks(checkout / "README.md", "yaml")
    assert (checkout / "experiments/p2w2.yaml").read_text().endswith(shown)
    (transcript,) = blocks(checkout / "README.md", "")
    assert main(["experiments/p2w2.yaml", "--dry-run", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == transcript


def test_the_readme_shows_a_real_fault(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert main(["tests/data/broken/batch-size-is-text.yaml"]) == 2
    assert capsys.readouterr().err in (checkout / "README.md").read_text().replace("\n    ", "\n")


def test_every_key_is_explained_with_the_words_of_the_code(checkout: Path) -> None:
    text = (checkout / "docs/reference/experiment-language.md").read_text()
    for table in (KEYS, GRID_KEYS, HOST_KEYS):
        rows = "\n".join(f"| `{key}` | {meaning} |" for key, meaning in table.items())
        assert rows in text


def test_the_example_of_the_language_loads(checkout: Path, tmp_path: Path) -> None:
    first, inventory = blocks(checkout / "docs/reference/experiment-language.md", "yaml")
    path = tmp_path / "example.yaml"
    path.write_text(first + f"workload_lists: {checkout}/experiments/workloads.yaml\n")
    assert load_experiment(path).workloads
    (tmp_path / "inventory.yaml").write_text(inventory)
    path.write_text("setting: v100-p1w2-pcie\nhosts: inventory.yaml\nsteps: 1\nworkloads: [{model: resnet20}]\n")
    assert [host.name for host in load_experiment(path).inventory.hosts] == ["gpu1", "gpu2"]
    assert set(yaml.safe_load(inventory)) == {"defaults", "hosts"}


def test_links_of_the_documents_lead_somewhere(checkout: Path) -> None:
    documents = [*checkout.glob("*.md"), *(checkout / "docs").glob("*.md")]
    assert len(documents) >= 6
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
