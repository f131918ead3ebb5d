"""The documentation is true: snippets run, shown output is real, tables equal the code, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import driple
from driple.orchestrator.config.experiment import load_experiment

CHECKOUT = Path(__file__).resolve().parents[2]


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, CHECKOUT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


snippets = script("doc_snippets")
NOT_RUN = {"lab", "hosts", "files", "hours"}
"""Marks of snippets that need a lab, other hosts, files to download, or hours."""
ELSEWHERE = {"slow", "tf", "needs"}
"""Marks of snippets that tests/integration/docs runs."""


def page_id(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


def all_blocks() -> Iterator[Any]:
    for page in snippets.pages():
        yield from snippets.blocks(page)


def runnable(page: Path) -> list[Any]:
    """Python blocks of a page that are executed here."""
    found = [block for block in snippets.blocks(page) if block.language == "python" and not block.title]
    return [block for block in found if not block.marks]


PYTHON_PAGES = [page for page in snippets.pages() if runnable(page)]
RUN = [block for block in all_blocks() if "run" in block.marks and not ELSEWHERE & set(block.marks)]


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=page_id)
def test_python_snippets_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    snippets.workspace(tmp_path, page)
    program = tmp_path / "snippets_of_the_page.py"
    program.write_text(snippets.script(runnable(page)))
    done = snippets.execute(f"{sys.executable} {program}", tmp_path)
    assert done.returncode == 0, done.stderr  # line numbers are those of the page


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.place)
def test_commands_print_what_a_page_shows(block: Any, tmp_path: Path) -> None:
    snippets.workspace(tmp_path, block.page)
    for command in snippets.commands(block):
        done = snippets.execute(command.text, tmp_path)
        assert done.returncode == snippets.exit_code(block), done.stderr
        real = done.stdout if snippets.exit_code(block) == 0 else done.stderr
        if command.output:
            assert snippets.same(command.output, real, "numbers" in block.marks), real


def test_the_notebook_runs(tmp_path: Path) -> None:
    snippets.workspace(tmp_path)
    program = tmp_path / "notebook_cells.py"
    program.write_text("\n\n".join(snippets.cells(snippets.NOTEBOOK)) + "\n")
    done = snippets.execute(f"{sys.executable} {program}", tmp_path)
    assert done.returncode == 0, done.stderr


def test_snippets_that_are_not_run_use_public_names_that_exist() -> None:
    used: set[str] = set()
    for block in all_blocks():
        if block.language == "python":
            compile(block.text, block.place, "exec")
            used |= snippets.names(block.text)
    for cell in snippets.cells(snippets.NOTEBOOK):
        used |= snippets.names(cell)
    assert {"run", "runs", "metrics", "build_dataset", "train", "predict", "Inspector"} <= used
    assert used <= set(driple.__all__)


def test_most_snippets_run_and_every_mark_is_known() -> None:
    marks = {mark.partition("=")[0] for block in all_blocks() for mark in block.marks if block.language != "yaml"}
    assert marks <= {"run", "numbers", "exit", *NOT_RUN, *ELSEWHERE, "tests/unit/inspector/test_cli_train.py"}
    python = [block for block in all_blocks() if block.language == "python" and not block.title]
    assert sum(not set(block.marks) & NOT_RUN for block in python) >= 12
    assert len(RUN) >= 8
    assert len(snippets.cells(snippets.NOTEBOOK)) >= 8


@lru_cache
def help_of(program: tuple[str, ...]) -> str:
    start = Path(sys.executable).parent
    first = [sys.executable] if program[0] == "python" else [str(start / program[0])]
    done = subprocess.run([*first, *program[1:], "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(program)}: {done.stderr}"
    return done.stdout


def test_commands_in_the_documents_have_options_that_exist() -> None:
    checked = 0
    for block in all_blocks():
        for command in snippets.commands(block) if block.language == "console" else ():
            program, options = snippets.options(command.text)
            if not program:
                continue
            checked += 1
            known = set(re.findall(r"--[a-z][a-z-]+", help_of(tuple(program))))
            assert set(options) <= known, f"{block.place}: {command.text}"
    assert checked >= 60


@pytest.mark.parametrize(
    ("shown", "real", "numbers", "equal"),
    [
        ("a 1\n", "a 1\n", False, True),
        ("a 1\n", "a 2\n", False, False),
        ("a 1.5 ±2\n", "a  12.0 ±3\n", True, True),
        ("a 1\n", "b 1\n", True, False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", False, True),
        ("...\nd\n", "a\nb\nd\n", False, True),
        ("a\n...\nd\n", "a\nb\nc\n", False, False),
    ],
)
def test_shown_output_is_compared_strictly(shown: str, real: str, numbers: bool, equal: bool) -> None:
    assert snippets.same(shown, real, numbers) is equal


def test_the_tutorial_shows_the_shipped_experiment() -> None:
    page = CHECKOUT / "docs/tutorial/first-sweep.md"
    (shown,) = [block for block in snippets.blocks(page) if block.language == "yaml"]
    assert shown.marks == ("same", "as", "experiments/p2w2.yaml")
    assert (CHECKOUT / "experiments/p2w2.yaml").read_text().endswith(shown.text)


def test_the_reference_is_what_the_code_says() -> None:
    """Key tables, dataset columns and help texts; `python scripts/update_docs.py` writes them."""
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scripts/update_docs.py", "--check"], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    pages = [page.read_text() for page in (CHECKOUT / "docs/reference").glob("*.md")]
    assert sum(text.count("<!-- generated: ") for text in pages) == 5


def test_the_example_of_the_language_loads(tmp_path: Path) -> None:
    page = CHECKOUT / "docs/reference/experiment-language.md"
    first, inventory = (block.text for block in snippets.blocks(page) if block.language == "yaml")
    path = tmp_path / "example.yaml"
    path.write_text(first + f"workload_lists: {CHECKOUT}/experiments/workloads.yaml\n")
    assert load_experiment(path).workloads
    (tmp_path / "inventory.yaml").write_text(inventory)
    path.write_text("setting: v100-p1w2-pcie\nhosts: inventory.yaml\nsteps: 1\nworkloads: [{model: resnet20}]\n")
    assert [host.name for host in load_experiment(path).inventory.hosts] == ["gpu1", "gpu2"]
    assert set(yaml.safe_load(inventory)) == {"defaults", "hosts"}


def test_links_of_the_documents_lead_somewhere(checkout: Path) -> None:
    """`mkdocs build --strict` checks anchors too; this needs no extra."""
    documents = [*checkout.glob("*.md"), *(checkout / "docs").rglob("*.md"), *checkout.glob("d*/README.md")]
    assert len(documents) >= 40
    for document in documents:
        folder = document.parent.parent if document.name == "causes.md" else document.parent  # a part of results.md
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
            if not target.startswith("https://"):
                assert (folder / target).exists(), f"{document} links to {target}"


def test_documents_that_the_code_names_exist(checkout: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True, check=True)
    files = [checkout / name for name in listed.stdout.split("\0") if name and not name.startswith("inspectors/")]
    kinds = {".py", ".md", ".yaml", ".cfg", ".toml", ".Dockerfile", ""}
    named: dict[str, str] = {}
    for file in files:
        if file.suffix in kinds and file.is_file():
            for name in re.findall(r"\bdocs/[\w./-]+\.(?:md|ipynb|png|svg)\b", file.read_text(errors="ignore")):
                named[name] = str(file)
    assert len(named) >= 20
    missing = {name: file for name, file in named.items() if not (checkout / name).exists()}
    assert not missing


def test_files_and_names_of_the_extension_guide_exist(checkout: Path) -> None:
    text = (checkout / "docs/guides/extending.md").read_text()
    folders = "agents|contracts|experiments|inspector|orchestrator|pipeline|scripts|tests|workloads"
    paths = {path for path in re.findall(rf"`((?:{folders})/[^`\s]*)", text) if "<" not in path}
    assert len(paths) >= 60
    assert not {path for path in paths if not (checkout / path).exists()}
    pairs = re.findall(r"`(\w+)`\s+of\s+`([\w./-]+\.\w+)`", text)
    assert len(pairs) >= 40
    defined = r"(?m)^(?:\s*(?:def|class) {0}\b|(?:[\w, ]+ = )?{0}\b[:, =]|.*\"{0}\")"
    for name, path in pairs:
        assert re.search(defined.format(name), (checkout / path).read_text()), f"{path} has no {name}"


def test_every_page_is_in_the_navigation(checkout: Path) -> None:
    site = yaml.safe_load((checkout / "mkdocs.yml").read_text())
    listed = set(re.findall(r"[\w/-]+\.md", str(site["nav"])))
    found = {str(page.relative_to(checkout / "docs")) for page in (checkout / "docs").rglob("*.md")}
    assert found - listed == {"benchmarks/results/causes.md"} and listed <= found


def test_the_readme_works_on_a_package_index(checkout: Path) -> None:
    """It is the long description: relative links and pictures would be broken there. The files that it names exist."""
    text = (checkout / "README.md").read_text()
    assert set(re.findall(r"\]\(([a-z]+://)?", text)) == {"https://"}
    for name in re.findall(r"`((?:docs|scripts|experiments)/[\w./-]*)", text):
        assert (checkout / name).exists(), name


def test_prose_lines_are_short(checkout: Path) -> None:
    for page in [*checkout.glob("*.md"), *(checkout / "docs").rglob("*.md")]:
        fenced = False
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced and not line.startswith(("|", "    ")):
                assert len(line) <= 130, f"{page}:{number} has {len(line)} characters"
