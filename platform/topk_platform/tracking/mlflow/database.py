"""MLflow's own sqlite database: read without MLflow, whose import takes seconds, and created in one step."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

__all__ = ["DRAWN", "SQLITE", "experiments", "is_tracked", "make_database", "tracking_uri"]

SQLITE = "sqlite:///"

DRAWN = "topk.drawn"
"""The tag of a study's run with the digest of the tables from which its report and plots were drawn."""

_READ = ("topk.key", "topk.tables", DRAWN)
_TAGS = """
select tags.key, tags.value from experiments
join runs on runs.experiment_id = experiments.experiment_id
join tags on tags.run_uuid = runs.run_uuid
join experiment_tags on experiment_tags.experiment_id = experiments.experiment_id
where experiment_tags.key = 'topk.ledger' and experiment_tags.value = ? and experiments.lifecycle_stage = 'active'
and runs.lifecycle_stage = 'active' and runs.status <> 'RUNNING' and tags.key in (?, ?, ?)
"""
_EXPERIMENTS = """
select name, experiment_id from experiment_tags join experiments using (experiment_id)
where key = 'topk.ledger' and lifecycle_stage = 'active' order by name
"""


def tracking_uri(folder: Path) -> str:
    """Return the URI of the sqlite database in which a local store's runs are tracked."""
    return f"{SQLITE}{folder / 'mlflow.db'}"


def experiments(uri: str) -> dict[str, str]:
    """Return the ids of the studies' experiments in a sqlite database, by name."""
    return {name: str(number) for name, number in _query(uri, _EXPERIMENTS) or ()}


def is_tracked(
    uri: str,
    ledger: str,
    keys: Collection[str],
    tables: str,
    *,
    drawn: bool = False,
    without: Collection[str] = (),
) -> bool:
    """Return whether MLflow holds a complete run of every trial, and these tables.

    False also where only MLflow can say: for a server, and for a database in another format.

    Args:
        uri: MLflow's tracking URI.
        ledger: The ledger's identity, as in the experiment's tag ``topk.ledger``.
        keys: The trials' keys, as in the tag ``topk.key``.
        tables: The digest of the tables, as in the tag ``topk.tables``.
        drawn: Whether it must also hold the report and plots of these tables.
        without: Keys that it must not hold.
    """
    if (rows := _query(uri, _TAGS, ledger, *_READ)) is None:
        return False
    held = {name: {value for tag, value in rows if tag == name} for name in _READ}
    right = held["topk.key"].issuperset(keys) and held["topk.key"].isdisjoint(without)
    return right and held["topk.tables"] == {tables} and (not drawn or held[DRAWN] == {tables})


def _query(uri: str, query: str, *values: str) -> list[tuple[str, str]] | None:
    """Return a query's rows; None if there is no database that can be read like this."""
    path = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE) or not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.Error:
        return None


def make_database(uri: str) -> None:
    """Create a sqlite database in one step: MLflow could never use one that a kill left half made."""
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import

    path = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE) or path.exists():
        return
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    MlflowClient(tracking_uri=f"{SQLITE}{hidden}")
    hidden.rename(path)
