"""The update of MLflow from a ledger, later or from another machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from topk_platform.errors import UserError
from topk_platform.records.ledger.ledger import Ledger, nothing_of
from topk_platform.records.storage.checked_json import damaged
from topk_platform.records.storage.store import Store
from topk_platform.records.table.mark import command_of
from topk_platform.records.undone import Undone
from topk_platform.tracking.answering import mlflow_of
from topk_platform.tracking.feed import Feed, Pictures
from topk_platform.tracking.trials import ARMS, results_of_arms

__all__ = ["sync"]


def sync(
    study: str,
    *,
    store: str | Path = "runs",
    mlflow_uri: str | None = None,
    pictures: Pictures | None = None,
) -> None:
    """Write a study's ended trials and tables to an MLflow that lacks them; train nothing.

    Args:
        study: The study's name.
        store: Folder or URI of the results.
        mlflow_uri: MLflow's tracking URI; by default a sqlite database in a local store.
        pictures: A function that makes the report and the plots; without it, MLflow keeps those that it has.

    Raises:
        UserError: if the store holds nothing of the study, its tables are damaged, or MLflow cannot be written.
    """
    opened = Store.open(store)
    ledger = Ledger.open(opened, study)
    if not ledger.exists:
        raise nothing_of(store, study)
    uri = mlflow_of(opened, mlflow_uri)
    if uri is None:
        raise UserError(f"mlflow must name an MLflow to fill, such as http://HOST:PORT, got {mlflow_uri}")
    tables = _tables(ledger.store)
    feed = Feed(uri, ledger, opened.local)
    feed.start()
    feed.put_files(tables, pictures)
    if problem := feed.close():
        raise UserError(f"not everything could be written: {problem}")
    undone = Undone.read(ledger.store)
    if undone.tracking:
        replace(undone, tracking="").note(ledger.store)


def _tables(store: Store) -> dict[str, str]:
    """Return the text files in a study's folder of tables, by name.

    Raises:
        DamagedError: if the file of the arms' results is damaged.
    """
    texts, names = {}, [name for name in store.names("tables") if not name.endswith(".parquet")]
    for name in names:
        with suppress(UnicodeDecodeError):  # somebody's own file, such as a picture
            texts[name] = store.read(f"tables/{name}").decode()
    try:
        if ARMS in names:
            results_of_arms({ARMS: texts[ARMS]})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(store, f"tables/{ARMS}", f"`{command_of(store, 'run')}` makes it again") from error
    return texts
