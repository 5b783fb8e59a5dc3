"""MLflow's UI as a user goes through it, in a browser: the best run of an arm, two compared, the study's report.

With ``TOPK_PICTURES=FOLDER`` the pictures of docs/mlflow.md are kept there.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from topk_platform import Float, LabelNoise, Loss, Model, NoPruning, Protocol, Recipe, Regime, Study, grid
from topk_platform.records import Ledger, Store, last_counted, read_history
from topk_platform.running.driver.recording import Recorder, make_pictures
from topk_platform.tracking import Feed, tracking_uri

CHROMIUM = Path("/usr/bin/chromium")
ARM = "clean/mlp/smooth_topk_svm"
PATIENCE = 240.0  # seconds; an idle machine needs two
# MLflow's assistant covers a quarter of a new visitor's page, some time after the page has loaded. This visitor has
# closed it before.
CLOSED = """
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
"""
# Whether the plot of parallel coordinates has lines: Plotly draws them later than the axes, on a canvas of their own.
LINES = """() => {
    const canvas = document.querySelector(".js-plotly-plot canvas.gl-canvas-focus");
    if (!canvas || !canvas.width || !canvas.height) return false;
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
    copy.drawImage(canvas, 0, 0);
    const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.some((value, place) => place % 4 == 3 && value > 0);
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
    pytest.mark.skipif(not CHROMIUM.is_file(), reason=f"there is no {CHROMIUM}"),
]


def a_study() -> Study:
    rate = Float(0.01, 1, log=True)
    return Study(
        "which-loss",
        grid(
            [Regime("clean", "digits"), Regime("noise-0.6", "digits", conditions=(LabelNoise(0.6),))],
            [Model("mlp", {"hidden": 32})],
            [
                Loss("cross_entropy", {"learning_rate": rate}, {"learning_rate": 0.1}),
                Loss(
                    "smooth_topk_svm",
                    {"learning_rate": rate, "tau": Float(0.01, 10, log=True)},
                    {"learning_rate": 0.1, "tau": 1.0},
                ),
            ],
            k=3,
            recipe=Recipe(epochs=8),
            protocol=Protocol(pruner=NoPruning()),
        ),
        topk=(1, 3),
        trials=5,
        seeds=2,
    )


@pytest.fixture(scope="module")
def store(train_study: Callable[[Study, Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as a run leaves it, with its runs, tables and report in MLflow."""
    folder, study = tmp_path_factory.mktemp("store"), a_study()
    train_study(study, folder)
    opened = Store.open(folder)
    ledger = Ledger.open(opened, study.name)

    def known(wanted: Study) -> Any:
        return read_history(ledger, wanted, last_counted(ledger, wanted), curves=False)

    with ledger.writing(study) as writer:
        feed = Feed(tracking_uri(folder), ledger, folder)
        feed.start()
        recorder = Recorder(ledger, writer, feed, partial(make_pictures, store=opened.address))
        recorder.close(study, known)
    assert recorder.tracking_error == ""
    return folder


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    """Of ``topk ui`` over that store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from topk_platform.cli import main; main()"
    command = [sys.executable, "-c", code, "ui", "--store", str(store), "--port", str(port)]
    server = subprocess.Popen(command, start_new_session=True)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/health")
            connection.getresponse()
        except ConnectionError:
            assert time.monotonic() < end, "no server came up"
            time.sleep(0.2)
        else:
            return
        finally:
            connection.close()


def experiment(address: str) -> str:
    """The study's, by its name."""
    client = MlflowClient(address)
    return str(client.get_experiment_by_name("which-loss").experiment_id)


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    """The study's runs, in a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1200, "height": 640})
        opened.set_default_timeout(1000 * PATIENCE)
        opened.add_init_script(CLOSED)
        opened.goto(f"{address}/#/experiments/{experiment(address)}/runs", wait_until="commit")
        opened.get_by_test_id("search-box").wait_for()
        yield opened
        browser.close()


def keep(page: Any, name: str) -> None:
    """Keep a picture for the documentation if it is wanted, once the page no longer changes."""
    if folder := os.environ.get("TOPK_PICTURES"):
        before, result = b"", page.screenshot()
        while result != before:
            page.wait_for_timeout(1000)
            before, result = result, page.screenshot()
        (Path(folder) / f"mlflow-{name}.png").write_bytes(result)


def searched(store: Path) -> dict[str, float]:
    """The arm's search trials: what validation said, by the names of their runs in MLflow."""
    rows = Ledger.open(Store.open(store), "which-loss").rows(where=f"arm = '{ARM}' and phase = 'search'")
    return {f"{ARM} search {row['number']}.0": row["validation.top3"] for row in rows}


def names(page: Any) -> list[str]:
    """The names of the runs that are shown at this moment, from the top; rows may be in another order in the page."""
    result: list[str] = page.locator(".ag-row a[href*='/runs/']").evaluate_all(
        """links => links.map(link => [link.getBoundingClientRect(), link.innerText])
            .filter(([box, name]) => box.width > 0)
            .sort(([one, name], [other, more]) => one.y - other.y)
            .map(([box, name]) => name)"""
    )
    return result


def show_searches(page: Any, values: Mapping[str, float]) -> list[str]:
    """Show the search trials of one arm, the best first, as docs/mlflow.md says; return their names, from the top.

    The page asks the server again for the filter and for the order, and shows the old rows until it has the new ones.
    """
    other = page.get_by_role("link", name="which-loss tables")
    other.wait_for()
    box = page.get_by_test_id("search-box")
    box.fill(f"tags.arm = '{ARM}' and tags.`topk.phase` = 'search'")
    box.press("Enter")
    other.wait_for(state="hidden")
    page.get_by_test_id("sort-select-dropdown").click()
    page.get_by_text("validation.top3", exact=True).first.click()
    wanted, shown = sorted(values.values(), reverse=True), names(page)
    for _ in range(int(PATIENCE)):
        if [values.get(name) for name in shown] == wanted:
            break
        page.wait_for_timeout(1000)
        shown = names(page)
    return shown


def test_the_best_run_of_an_arm_is_found(page: Any, store: Path) -> None:
    values = searched(store)
    shown = show_searches(page, values)
    assert len(values) == 5 and [values.get(name) for name in shown] == sorted(values.values(), reverse=True)
    keep(page, "best")


def test_two_runs_are_compared(page: Any, store: Path) -> None:
    first = show_searches(page, searched(store))[:2]
    # By name, because the rows may be sorted anew, and their order in the page is not the visible one.
    for name in first:
        row = page.locator(".ag-row").filter(has=page.get_by_role("link", name=name, exact=True))
        row.get_by_label("Press Space to toggle row selection").check(force=True)
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Comparing 2 Runs").wait_for()
    for name in first:
        page.get_by_text(name).first.wait_for(state="attached")
    plot = page.locator(".js-plotly-plot")
    for axis in ("learning_rate", "tau", "validation.top1"):
        plot.get_by_text(axis, exact=True).first.wait_for()
    page.wait_for_function(LINES)
    keep(page, "compared")


def test_the_studys_report_opens(page: Any) -> None:
    page.get_by_role("link", name="which-loss tables").click()
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("report.html").first.click()
    heading = page.frame_locator("iframe").locator("h1").first
    heading.wait_for()
    assert "which-loss" in heading.inner_text()
    keep(page, "report")
