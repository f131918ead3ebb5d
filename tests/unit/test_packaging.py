"""The project's own files: what is declared is what is there."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PACKAGES = ("agents", "contracts", "inspector", "orchestrator", "pipeline", "simulator", "workloads")
DATA = ("experiments", "inspectors", "zoo_graphs")
COMMANDS = (
    *("run", "lab", "sample", "metrics", "build-dataset", "train", "train-time", "predict", "report", "calibrate"),
    "traffic",
)
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


def test_every_folder_is_a_package_and_linked_for_editors(checkout: Path, config: configparser.ConfigParser) -> None:
    found = [
        f"driple.{'.'.join(init.parent.relative_to(checkout).parts)}"
        for package in PACKAGES
        for init in (checkout / package).rglob("__init__.py")
    ]
    expected = ["driple", *found, *(f"driple.{name}" for name in DATA)]
    assert sorted(config["options"]["packages"].split()) == sorted(expected)
    linked = {path.name: path.resolve() for path in (checkout / "typings/driple").iterdir()}
    assert linked == {
        "__init__.py": checkout / "driple/__init__.py",
        **{package: checkout / package for package in PACKAGES},
    }
    for folder in (*PACKAGES, *DATA):
        assert f"driple.{folder} = {folder}" in config["options"]["package_dir"].splitlines()


def test_no_two_modules_share_a_base_name(checkout: Path) -> None:
    files = [path for package in PACKAGES for path in (checkout / package).rglob("*.py")]
    count = Counter(path.stem for path in files)
    shared = {name for name, times in count.items() if times > 1} - {"__init__", "cli", "base", "registry"}
    assert not shared, sorted(str(path.relative_to(checkout)) for path in files if path.stem in shared)


def test_public_names_are_importable_and_lazy(checkout: Path) -> None:
    script = (
        "import sys, driple\n"
        f"print(*[name for name in {HEAVY} if name in sys.modules])\n"
        "assert sorted(driple.__all__) == driple.__all__ and set(driple.__all__) <= set(dir(driple))\n"
        "for name in driple.__all__: assert getattr(driple, name) is not None\n"
        "try: driple.nothing\n"
        "except AttributeError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "\nmodule 'driple' has no attribute 'nothing'\n"


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
        for package in PACKAGES
        for path in (checkout / package).rglob("cli*.py")
        if path.stem == "cli" or path.stem.startswith("cli_")
    }
    protected = config["importlinter:contract:commands"]["protected_modules"].split()
    assert {name.rpartition(".")[2] for name in protected} == commands


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


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of what git has, so that files which only lie about do not help."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True, check=True)
    for name in filter(None, tracked.stdout.split("\0")):
        if not (checkout / name).exists():  # deleted, and not committed yet
            continue
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, folder / "source" / name, follow_symlinks=False)
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(folder / "source"),
    ]
    result = subprocess.run(build, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_wheel_predicts_and_plans_in_a_fresh_environment(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    venv, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=100)
    # An environment of its own: nothing of the user's home or of this checkout.
    pip_settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **pip_settings}

    def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
        # Not compiled: of all that is installed, the commands import little.
        command = [sys.executable, "-m", "pip", "--python", str(venv), "install", "--quiet", "--no-compile", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, cwd=empty)

    pins = checkout / "constraints.txt"
    (torch,) = re.findall(r"^torch==[\d.]+$", pins.read_text(), flags=re.MULTILINE)
    if pip("--no-deps", f"{torch}+cpu").returncode:
        pytest.skip("pip finds no CPU build of torch here")
    installed = pip("--constraint", str(pins), f"{wheel}[predict]")
    assert installed.returncode == 0, installed.stderr

    def run(*arguments: str) -> str:
        own = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
        command = [str(venv / "bin" / arguments[0]), *arguments[1:]]
        result = subprocess.run(command, capture_output=True, text=True, timeout=100, env=own, cwd=empty)
        assert result.returncode == 0, result.stderr
        assert not list(empty.iterdir())
        return result.stdout

    for absent in ("tensorflow", "dgl", "tensorboard", "pandas"):
        assert run("python", "-c", f"import importlib.util as u; print(u.find_spec({absent!r}))") == "None\n"
    assert "resnet56 b64" in run("driple-predict", "--setting", "cpu-p2w2-1g", "resnet56", "--batch-size", "64")
    assert "10 runs" in run("driple-run", "p2w2", "--dry-run")
    simulated = run("driple-predict", "--setting", "v100-p1w2-pcie", "resnet50", "--batch-size", "32")
    assert simulated.startswith("SIMULATED: computed by simulation from simulator/devices/v100.json; not measured\n")
    assert "127 runs" in run("driple-run", "v100-p1w2-pcie", "--simulate", "--dry-run")
