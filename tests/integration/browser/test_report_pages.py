"""Pages in a real browser: they load nothing, complain of nothing, can be sorted, and show something."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.formats.inspector import SCHEMA_VERSION
from driple.pipeline.cli_report import main

pytestmark = pytest.mark.integration

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLAYWRIGHT = "chromium-*/chrome-linux*/chrome"


def find_browser() -> str | None:
    """A Chromium of this machine: on the PATH, or in a cache of playwright."""
    caches = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), Path.home() / ".cache/ms-playwright", "/ms-playwright"]
    cached = [str(found) for cache in caches if cache for found in sorted(Path(cache).glob(PLAYWRIGHT))]
    return next(filter(None, [*map(shutil.which, NAMES), *reversed(cached)]), None)


BROWSER = find_browser()
needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")


class Browser:
    """A headless Chromium, spoken to over two pipes: messages are JSON and end with a zero byte."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        # Nothing resolves: a page that wanted something from elsewhere would not get it, and would be seen to ask.
        options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking"]
        command = [BROWSER, *options, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer; what happens meanwhile is kept."""
        self._number += 1
        request: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def open(self, page: Path) -> None:
        """Opens a file and waits until all of it is there."""
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def run(self, script: str) -> Any:
        """The value of a script in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, *, width: int, height: int, scheme: str) -> Any:
        """Pixels of the window."""
        from matplotlib import image

        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        found = base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])
        return image.imread(io.BytesIO(found), format="png")[:, :, :3]

    def close(self) -> None:
        """Ends it, whatever it does."""
        os.close(self._out)  # it leaves when its pipe does
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser is gone"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of each kind, of real runs; the inspector's from files as training leaves them."""
    from driple.pipeline.datasets.build import build_dataset
    from driple.pipeline.datasets.engine import Engine

    folder = tmp_path_factory.mktemp("pages")
    runs = checkout / "tests/data/runs"
    build_dataset([runs], output=folder / "datasets", engine=Engine(jobs=1))
    inspector = folder / "inspectors/cpu-p1w2-1g"
    inspector.mkdir(parents=True)
    about: dict[str, object] = {"schema": "inspector", "schema_version": SCHEMA_VERSION}
    about |= {"setting": "cpu-p1w2-1g", "role": "worker"}
    about["config"] = {"a": 1}
    errors = [
        {"side": "test", "predictor": predictor, "target": target, "nrmse": nrmse, "mape": nrmse, "r2": nrmse}
        for predictor, nrmse in (("inspector", 0.1), ("mean", 0.3))
        for target in ("net_rx_burst_s", "net_tx_burst_s", "all")
    ]
    (inspector / "inspector.json").write_text(json.dumps(about))
    (inspector / "report.json").write_text(json.dumps({"errors": errors}))
    found = {}
    for name, path in (("sweep", runs), ("dataset", folder / "datasets"), ("inspector", inspector)):
        found[name] = folder / f"{name}.html"
        assert main([str(path), "--output", str(found[name])]) == 0
    return found


@needs_browser
@pytest.mark.parametrize("name", ["sweep", "dataset", "inspector"])
def test_a_page_loads_nothing_and_complains_of_nothing(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    asked = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert asked == [pages[name].as_uri()]
    said = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    assert [event for event in browser.events if event["method"] in said] == []
    assert browser.run("document.querySelectorAll('svg[role=img]:not([aria-label])').length") == 0
    assert browser.run("document.querySelectorAll('svg').length") > 0
    assert (
        browser.run(
            "document.querySelectorAll('table:not(:has(thead th[scope=col])), table:not(:has(caption))').length"
        )
        == 0
    )


@needs_browser
@pytest.mark.parametrize("name", ["sweep", "dataset", "inspector"])
@pytest.mark.parametrize("width", [1200, 390])
def test_a_page_shows_something_dark_and_light(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.open(pages[name])
    pictures = {scheme: browser.screenshot(width=width, height=1400, scheme=scheme) for scheme in ("light", "dark")}
    assert pictures["light"][2, 2].mean() > 0.9  # paper
    assert pictures["dark"][2, 2].mean() < 0.2
    for picture in pictures.values():
        drawn = abs(picture - picture[2, 2]).max(axis=2) > 0.1
        assert drawn.mean() > 0.01  # neither blank ...
        assert drawn.any(axis=1).mean() > 0.2  # ... nor a line on top of nothing
    assert browser.run("document.documentElement.scrollWidth") <= width  # a phone scrolls one way


@needs_browser
def test_a_click_on_a_title_sorts_by_value(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["sweep"])
    column = """[...document.querySelectorAll("table.sortable")].at(-1)"""
    times = f"[...{column}.tBodies[0].rows].map(row => Number(row.cells[8].dataset.v))"
    click = f"{column}.tHead.rows[0].cells[8].firstElementChild.click()"
    assert browser.run(f"{column}.tHead.rows[0].cells[8].textContent") == "step time"
    browser.run(click)
    up = browser.run(times)
    assert up == sorted(up)
    assert len(set(up)) == 3
    assert browser.run(f"{column}.tHead.rows[0].cells[8].getAttribute('aria-sort')") == "ascending"
    browser.run(click)
    assert browser.run(times) == sorted(up, reverse=True)


@needs_browser
def test_script_in_a_file_of_a_run_is_not_run(browser: Browser, tmp_path: Path) -> None:
    hostile = '<script>document.title = "taken"</script><img src="http://example.invalid/x" onerror="document.title=1">'
    folder = tmp_path / "inspector"
    folder.mkdir()
    about = {"schema": "inspector", "schema_version": SCHEMA_VERSION, "setting": hostile, "config": {hostile: hostile}}
    (folder / "inspector.json").write_text(json.dumps(about))
    assert main([str(folder)]) == 0
    browser.open(folder / "report.html")
    assert browser.run("document.title").startswith("Inspector of <script>")
    assert browser.run("document.querySelectorAll('script, img').length") == 1
    assert not [e for e in browser.events if "example.invalid" in json.dumps(e.get("params", {}).get("request", {}))]
