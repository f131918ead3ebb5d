"""The project's own files: what is declared is what is there."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOMS = ("agents", "contracts", "inspector", "orchestrator", "pipeline", "workloads")
COMMANDS = ("run", "lab", "sample", "metrics", "build-dataset", "train", "predict", "report")
HEAVY = (
    "tensorflow",
    "tf_keras",
    "torch",
    "dgl",
    "pandas",
    "numpy",
    "sklearn",
    "pyarrow",
    "fabric",
    "paramiko",
    "yaml",
)
ASKED_FOR = {
    "paramiko",
    "fabric",
    "tensorflow",
    "nvidia-ml-py",
    "psutil",
    "pandas",
    "scikit-learn",
    "torch",
    "dgl",
    "pyyaml",
}


@pytest.fixture(scope="module")
def config(checkout: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(checkout / "setup.cfg")
    return parser


def names(text: str) -> list[str]:
    """Names of the requirements in a setup.cfg list."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("#")]
    return [re.split(r"[\s\[=<>;]", line)[0].lower() for line in lines]


def test_every_room_is_a_package_and_linked_for_editors(checkout: Path, config: configparser.ConfigParser) -> None:
    found = sorted(
        f"driple.{'.'.join(init.parent.relative_to(checkout).parts)}"
        for room in ROOMS
        for init in (checkout / room).rglob("__init__.py")
    )
    assert sorted(config["options"]["packages"].split()) == found
    assert sorted(path.name for path in (checkout / "typings/driple").iterdir()) == sorted(ROOMS)
    for room in ROOMS:
        assert (checkout / "typings/driple" / room).resolve() == checkout / room
        assert f"driple.{room} = {room}" in config["options"]["package_dir"].splitlines()


def test_declared_dependencies_include_what_the_project_was_asked_to_stand_on(
    checkout: Path, config: configparser.ConfigParser
) -> None:
    extras = config["options.extras_require"]
    assert {"workloads", "inspector", "dask", "ray", "test"} <= set(extras)
    declared = set(names(config["options"]["install_requires"])).union(*(names(extra) for extra in extras.values()))
    assert declared >= ASKED_FOR
    table = (checkout / "docs/concepts/architecture.md").read_text()
    pinned = {line.split("==")[0] for line in (checkout / "constraints.txt").read_text().splitlines() if "==" in line}
    for name in declared - {"driple"}:
        assert name in pinned, f"{name} is not pinned in constraints.txt"
        if name not in names(extras["test"]) and name not in ("distributed", "packaging"):
            assert name in table, f"{name} is not in the table of docs/concepts/architecture.md"
    assert re.search(r"^torch==2\.13\.0$", (checkout / "constraints.txt").read_text(), flags=re.MULTILINE)


def test_ci_calls_the_test_command_of_the_readme_and_nothing_else(checkout: Path) -> None:
    lines = [line for line in (checkout / ".ci/run").read_text().splitlines() if not line.startswith("#")]
    assert lines == ['exec "$(dirname "${BASH_SOURCE[0]}")/../scripts/check"']
    assert "    scripts/check " in (checkout / "README.md").read_text()


def test_every_command_is_protected_from_imports(checkout: Path, config: configparser.ConfigParser) -> None:
    commands = {
        path.stem
        for room in ROOMS
        for path in (checkout / room).rglob("cli*.py")
        if path.stem == "cli" or path.stem.startswith("cli_")
    }
    protected = config["importlinter:contract:commands"]["protected_modules"].split()
    assert {name.removeprefix("driple.*.") for name in protected} == commands


def test_commands_are_those_that_were_promised(config: configparser.ConfigParser) -> None:
    entries = dict(line.split(" = ") for line in config["options.entry_points"]["console_scripts"].strip().splitlines())
    assert sorted(entries) == sorted(f"driple-{name}" for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_and_loads_nothing_heavy(name: str, config: configparser.ConfigParser) -> None:
    entries = dict(line.split(" = ") for line in config["options.entry_points"]["console_scripts"].strip().splitlines())
    module, function = entries[f"driple-{name}"].split(":")
    script = (
        "import sys\n"
        f"from {module} import {function}\n"
        f"try: {function}(['--help'])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        f"print(*[m for m in {HEAVY} if m in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "\n")
    *_, title, example = result.stdout.rstrip().splitlines()
    assert title == "example:"
    assert example.startswith(f"  driple-{name} ")


def test_version_is_the_declared_one(config: configparser.ConfigParser) -> None:
    result = subprocess.run(
        [str(Path(sys.executable).with_name("driple-run")), "--version"], capture_output=True, text=True, timeout=60
    )
    assert result.stdout == f"driple-run {config['metadata']['version']}\n"


@pytest.mark.integration
def test_a_wheel_holds_every_room_and_works_without_the_checkout(checkout: Path, tmp_path: Path) -> None:
    source, unpacked = tmp_path / "source", tmp_path / "unpacked"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True, check=True)
    for name in filter(None, tracked.stdout.split("\0")):
        if not (checkout / name).exists():  # deleted, and not committed yet
            continue
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, source / name, follow_symlinks=False)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    result = subprocess.run(build, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, unpacked, "zip")
    # -S and a plain path: the editable install of this checkout must not help.
    script = (
        f"import sys; sys.path[:0] = [{str(unpacked)!r}]; sys.path.append({sysconfig.get_path('purelib')!r})\n"
        + "".join(f"import driple.{room}\nassert 'unpacked' in driple.{room}.__file__\n" for room in ROOMS)
        + "from driple.orchestrator.cli import main\n"
        f"sys.exit(main([{str(checkout / 'experiments/p2w2.yaml')!r}, '--dry-run']))"
    )
    run = [sys.executable, "-S", "-c", script]
    result = subprocess.run(run, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "10 runs" in result.stdout
