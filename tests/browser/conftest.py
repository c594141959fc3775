"""A project that ran once from the command line and goes on in the real web UI, and a browser to look at it.

Pictures go to the folder in CALIPER_SCREENSHOTS, when it is set.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.browser.graphql import Server
from tests.defs.scripted import GATED, SCRIPT, SPEC, lay_out

CALIPER = [sys.executable, "-m", "caliper_pipeline.interfaces.cli"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
JUDGED = SPEC.replace("    activates: [triage]\n", "    activates: [triage]\n    expect: It flags the mail.\n", 1)
PLAYED = (
    "tokens: {input: 70, output: 7}\n"
    + SCRIPT
    + "judge: {tasks: {One: {passed: true, reasoning: It names both mails.}}}\n"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)
            # All share one server.
            item.add_marker(pytest.mark.xdist_group("browser"))


@dataclass(frozen=True)
class Ui:
    root: Path
    server: Server


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    root = tmp_path_factory.mktemp("ui") / "project"
    (root / ".caliper").mkdir(parents=True)
    (root / "caliper.yaml").write_text("model: scripted\n", encoding="utf-8")
    lay_out(root, spec=JUDGED, script=PLAYED)
    lay_out(root, name="gated", script=GATED)
    environment = {name: value for name, value in os.environ.items() if name not in ("DAGSTER_HOME", "CALIPER_ROOT")}
    for arm in ([], ["--ablate", "triage"]):
        command = [*CALIPER, "run", "mail.eval.yaml", "--wait", *arm]
        subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [*CALIPER, "ui", "--port", str(port)], cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if f"Serving {url}" in line:
                    break
            else:
                pytest.fail(
                    "caliper ui ended: " + (root / ".caliper/dagster/ui.log").read_text(encoding="utf-8")[-2000:]
                )
            yield Ui(root, Server(url))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
    assert not _answers(url)


def _answers(url: str) -> bool:
    time.sleep(0.2)
    try:
        urllib.request.urlopen(f"{url}/server_info", timeout=2)
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.fail("The browser tests need Debian's chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_context(viewport={"width": 1500, "height": 1000}).new_page()
        page.set_default_timeout(60_000)
        yield page
        browser.close()


@pytest.fixture
def page(browser_page: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    yield browser_page
    folder = os.environ.get("CALIPER_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser_page.screenshot(path=f"{folder}/{re.sub(r'[^a-z0-9_]+', '-', request.node.name)}.png")
