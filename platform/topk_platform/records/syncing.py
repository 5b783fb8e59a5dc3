"""Bringing MLflow up to date with a ledger, later or from another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from topk_platform.errors import StoreError, UserError, reason
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.notes.undone import Undone
from topk_platform.records.storage.store import Store
from topk_platform.records.tracked import tracking_uri
from topk_platform.records.tracking import Extras, TrackingSink
from topk_platform.records.tracking_check import check_tracking

__all__ = ["open_sink", "sync"]


def open_sink(
    store: Store, ledger: Ledger, uri: str | None, stale: tuple[str, ...] = ()
) -> TrackingSink | None:
    """Return a started MLflow sink for a ledger, or None if there is no MLflow to write to.

    Args:
        store: The store.
        ledger: The study's ledger in it.
        uri: MLflow's tracking URI; by default a sqlite database in a local store.
        stale: Keys of trials whose runs are made anew.
    """
    local = store.local
    if uri is None and local is None:
        return None
    own = uri is None or (local is not None and uri == tracking_uri(local))
    artifacts = local / "mlflow-artifacts" if own and local is not None else None
    sink = TrackingSink(uri or tracking_uri(Path(store.root)), artifacts, ledger, stale)
    sink.start()
    return sink


def sync(
    study: str,
    *,
    store: str | Path = "runs",
    mlflow_uri: str | None = None,
    extras: Extras | None = None,
) -> None:
    """Write to MLflow what it lacks of a study's ended trials and tables; train nothing.

    Args:
        study: The study's name.
        store: Folder or URI of the results.
        mlflow_uri: MLflow's tracking URI; by default a sqlite database in a local store.
        extras: Makes the report, plots and networks' graphs; without it those in MLflow stay.

    Raises:
        UserError: if the store holds nothing of the study, or MLflow cannot be written.
    """
    place = Store.open(store)
    ledger = Ledger.open(place, study)
    if not ledger.exists:
        raise StoreError(f"store {str(store)!r} holds nothing of study {study!r}")
    if mlflow_uri is not None:
        check_tracking(mlflow_uri)
    sink = open_sink(place, ledger, mlflow_uri)
    if sink is None:
        raise UserError(
            "mlflow must be told for a store that is no folder, such as --mlflow http://HOST:PORT"
        )
    names = [name for name in ledger.store.names("tables") if not name.endswith(".parquet")]
    sink.put_files({name: ledger.store.read(f"tables/{name}").decode() for name in names}, extras)
    if (error := sink.close()) is not None:
        raise UserError(f"mlflow cannot be written: {reason(error)}") from error
    replace(Undone.read(ledger.store), tracking="").note(ledger.store)
