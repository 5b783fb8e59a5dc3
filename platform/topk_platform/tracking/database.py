"""MLflow's own sqlite database in a local store: its address, and the studies' experiments in it."""

from __future__ import annotations

import logging
from pathlib import Path

__all__ = ["SQLITE", "experiments", "silence", "tracking_uri"]

SQLITE = "sqlite:///"


def tracking_uri(folder: Path) -> str:
    """Return the URI of the sqlite database for the MLflow runs of a local store."""
    return f"{SQLITE}{folder / 'mlflow.db'}"


def silence() -> None:
    """Keep MLflow and Alembic from logging each table that they create, and errors of many lines."""
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def experiments(uri: str) -> dict[str, str]:
    """Return the ids of the studies' experiments in a database, by name."""
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import, for the UI alone

    silence()
    known = MlflowClient(tracking_uri=uri).search_experiments(order_by=["name"])
    return {one.name: str(one.experiment_id) for one in known if "topk.ledger" in one.tags}
