"""Bad input to driple-sample: one line that names the valid choices, exit 2, nothing started and nothing left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from driple.agents.cli import main
from driple.agents.sampler.parquet_writer import Field
from driple.agents.sampler.samples_file import Stream, encode_header, encode_rows


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nic", "lo"], "--out: expected the Parquet file"),
        (["--out", "{}/x.csv", "--nic", "lo"], "x.csv: a trace is a Parquet file; name it x.parquet"),
        (["--out", "{}/x.parquet"], "nothing to sample: expected at least one of --nic, --gpu, --pid"),
        (["--out", "{}/x.parquet", "--nic", "nowhere0"], "unknown interface 'nowhere0'"),
        (["--out", "{}/x.parquet", "--pid", "99999999"], "--pid 99999999: no such process; expected one of the"),
        (["--out", "{}/x.parquet", "--pid", "0"], "--pid 0: no such process"),
        (["--out", "{}/x.parquet", "--pid", "-1"], "--pid -1: no such process"),
        (["--out", "{}/x.parquet", "--nic", "lo", "--hz", "0.5"], "--hz 0.5: expected 1 to 1000"),
        (["--out", "{}/x.parquet", "--nic", "lo", "--hz", "1001"], "--hz 1001: expected 1 to 1000"),
        (["--out", "{}/x.parquet", "--nic", "lo", "--hz", "nan"], "--hz nan: expected 1 to 1000"),
        (["--out", "{}/x.parquet", "--nic", "lo", "--for", "-1"], "--for -1: expected"),
        (["--out", "{}/x.parquet", "--nic", "lo", "--flows", "500"], "--flows 500: expected 0.1 to 100"),
        (["--out", "{}/x.parquet", "--nic", "lo", "--nic", "lo"], "--nic: lo, lo: expected each once"),
        (["--out", "{}/x.flows.parquet", "--nic", "lo"], "is the flows of another trace; choose another name"),
        (["--out", "{}/none/x.parquet", "--nic", "lo"], "no such folder"),
        (["--out", "{}", "--nic", "lo"], "expected a file"),
        (["--out", "/dev/full", "--nic", "lo"], "expected a file"),
        (["--out", "{}/x.parquet", "--nic", "lo", "--"], "expected a command after --"),
        (["--out", "{}/x.parquet", "--", "{}/no-such-command"], "No such file or directory; expected a command"),
        (["--out", "{}/x.parquet", "--pid", "1", "--", "true"], "--pid and a command: expected one of the two"),
        (["--seal", "{}/none.samples"], "none.samples: No such file"),
        (["--spec", "{}/none.json"], "none.json: No such file"),
    ],
)
def test_bad_input(arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([part.replace("{}", str(tmp_path)) for part in arguments]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("driple-sample: error: ")
    assert expected in line
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_command_is_not_started_when_something_else_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "x.parquet")
    assert main(["--out", out, "--nic", "nowhere0", "--", "touch", str(tmp_path / "started")]) == 2
    assert main(["--out", str(tmp_path / "no/x.parquet"), "--", "touch", str(tmp_path / "started")]) == 2
    assert list(tmp_path.iterdir()) == []
    capsys.readouterr()


def test_a_thread_is_not_a_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready, done = threading.Event(), threading.Event()
    numbers: list[int] = []

    def wait() -> None:
        numbers.append(threading.get_native_id())
        ready.set()
        done.wait(30)

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait(30)
    try:
        assert main(["--out", str(tmp_path / "x.parquet"), "--pid", str(numbers[0])]) == 2
    finally:
        done.set()
        thread.join()
    assert f"--pid {numbers[0]}: a thread of process {os.getpid()}" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert main(["--out", str(tmp_path / "x.parquet"), "--nic", "lo"]) == 2
    assert "Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected dict, got []"),
        ('{"out": "x", "nics": ["lo"]}', "unknown key 'nics'; did you mean 'nic'?"),
        ('{"out": "x", "nic": "lo"}', "nic: expected list, got 'lo'"),
        ('{"hz": 100}', "key 'out' is missing"),
        ('{"out": "x", "hz": 5000, "nic": ["lo"]}', "--hz 5000: expected 1 to 1000"),
    ],
)
def test_a_spec_that_is_wrong_says_where(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.json").write_text(text)
    assert main(["--spec", str(tmp_path / "spec.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "spec.json: " in line
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--spec", "s.json", "--hz", "100", "--nic=lo"], "--spec and --hz, --nic: expected --spec alone"),
        (["--spec", "s.json", "--", "true"], "--spec and a command: expected --spec alone"),
        (["--seal", "x.samples", "--out", "x"], "--seal and --out: expected --seal alone"),
        (["--answer-clock", "--json"], "--answer-clock and --json: expected --answer-clock alone"),
    ],
)
def test_what_would_be_ignored_is_refused(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"driple-sample: error: {expected}"


def test_a_leftover_has_to_be_sealed_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.parquet"
    out.with_name("x.parquet.samples").write_text("not nothing")
    assert main(["--out", str(out), "--nic", "lo", "--for", "0.1"]) == 2
    assert f"driple-sample --seal {out}.samples" in capsys.readouterr().err


def test_a_spec_file_does_what_options_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = {
        "out": str(tmp_path / "x.parquet"),
        "hz": 200,
        "for_s": 0.2,
        "nic": ["lo"],
        "host": True,
        "realtime": False,
        "labels": {"task": "worker:0"},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert main(["--spec", str(tmp_path / "spec.json"), "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["stopped_by"] == "duration"
    assert summary["asked"]["labels"] == {"task": "worker:0"}
    assert summary["files"][spec["out"]] >= 1
    assert set(summary["sources"]) == {"nic", "host"}


def test_a_person_gets_a_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.parquet"
    options = ["--hz", "100", "--for", "0.2", "--nic", "lo", "--flows", "20", "--pid", str(os.getpid())]
    assert main([*options, "--normal-priority", "--out", str(out)]) == 0
    text = capfd.readouterr().out
    assert "stopped by: duration" in text
    for source in ("nic", "host", "task", "task_memory", "task_traffic", "flows"):
        assert f"\n{source} " in text
    assert f"{out}: " in text


def test_help_is_quick_and_imports_no_source() -> None:
    script = (
        "import sys\nfrom driple.agents.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('driple.agents.') or m in ('pynvml', 'ctypes', 'subprocess')])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines()[-1] == (
        "['driple.agents.cli', 'driple.agents.sampler', 'driple.agents.sampler.command_line']"
    )


def test_an_interrupt_while_it_loads_leaves_no_traceback() -> None:
    script = (
        "import sys\nfrom driple.agents.cli import main\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'argparse': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.exit(main(['--help']))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_seal_says_what_is_damaged_in_one_line(tmp_path: Path) -> None:
    streams = [Stream("trace", (Field("t_mono_ns", "int64", True),))]
    samples = tmp_path / "x.parquet.samples"
    parts = [encode_rows(0, streams[0].fields, [[t]]) for t in (1, 2)]
    samples.write_bytes(encode_header(streams, {"asked": {"hz": 100}}) + parts[0] + b"rubbish" + parts[1])
    script = "import sys; from driple.agents.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "--seal", str(samples)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == f"{tmp_path}/x.parquet: 2 rows\n"
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"driple-sample: {samples}: 7 bytes are damaged and were left out")
    assert samples.exists()
