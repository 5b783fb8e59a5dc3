"""Filling MLflow in a test, and MLflow databases that are copies of one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from topk_platform.records.ledger import Ledger
from topk_platform.tracking.feed import SQLITE, Feed, Pictures, tracking_uri
from topk_platform.tracking.writing import make_database

__all__ = ["copy_database", "fill", "runs", "start_feed"]


@cache
def _template() -> tempfile.TemporaryDirectory[str]:
    """The folder of a database without runs, which is deleted when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="topk-mlflow-")
    make_database(tracking_uri(Path(folder.name)))
    return folder


def copy_database(uri: str) -> None:
    """Copy an empty MLflow database to where there is none: MLflow takes a second to make one."""
    path = Path(uri.removeprefix(SQLITE))
    if uri.startswith(SQLITE) and not path.exists():
        shutil.copyfile(Path(_template().name) / "mlflow.db", path)


def start_feed(
    folder: Path | None,
    ledger: Ledger,
    uri: str | None = None,
    pause: float = 0.01,
    pictures: Pictures | None = None,
) -> Feed:
    """Return a started feed, by default of MLflow's database in ``folder``, made if missing."""
    if uri is None and folder is not None:
        copy_database(tracking_uri(folder))
    feed = Feed(uri or tracking_uri(folder or Path()), ledger, folder, pictures)
    feed.pause = pause
    feed.start()
    return feed


def fill(feed: Feed, files: Mapping[str, str]) -> None:
    """Hand over tables, and check that all is written."""
    assert feed.close(files) == ""


def runs(uri: str, tag: str = "", study: str = "s", where: str = "") -> list[Run]:
    """Return a study's runs in MLflow, those alone that have a tag and meet a condition."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(study)
    result = client.search_runs([experiment.experiment_id], where, max_results=1000) if experiment else []
    return [run for run in result if not tag or tag in run.data.tags]
