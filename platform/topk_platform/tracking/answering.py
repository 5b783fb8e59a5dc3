"""Where a study's MLflow is, and whether it answers."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from topk_platform.errors import UserError, masked, reason
from topk_platform.records.storage.store import Store
from topk_platform.specs.checks import check_not_blank
from topk_platform.tracking.trials import LEDGER

__all__ = ["SQLITE", "check_tracking", "mlflow_of", "prepare", "run_pages", "tracking_uri"]

SQLITE = "sqlite:///"
_ANSWER_SECONDS = 20.0
_DEFAULTS = {
    # By default MLflow waits two minutes for an answer and tries seven times, which is too long at the end of a study.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # A connection that was made while the disk was read-only would stay read-only, so each use makes a new one.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
    # Otherwise it prints every run's address, with the server's password if the address has one.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def prepare() -> None:
    """Make MLflow give up sooner and print less; to be called after its import and before its use."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow"):  # they log each table that they create, and errors of many lines
        logging.getLogger(name).setLevel(logging.CRITICAL)


def tracking_uri(folder: Path) -> str:
    """Return the URI of the sqlite database for the MLflow runs of a local store."""
    return f"{SQLITE}{folder / 'mlflow.db'}"


def mlflow_of(store: Store, uri: str | None) -> str | None:
    """Return the URI of a store's MLflow; None if it has none.

    Args:
        store: The store.
        uri: MLflow's tracking URI, or ``"none"``; by default a sqlite database in a local store, else none.

    Raises:
        UserError: unless MLflow answers at the URI; the store's own database need not exist yet.
    """
    if uri == "none" or (uri is None and store.local is None):
        return None
    if uri is not None:
        check_tracking(uri)
    elif "?" in str(store.local):
        raise UserError(
            f"store {str(store.local)!r} cannot hold MLflow's database, because an address of sqlite ends at the "
            "'?': choose another --store, or give --mlflow URI or --mlflow none"
        )
    return uri or tracking_uri(Path(str(store.local)))


def check_tracking(uri: str) -> None:
    """Raise ``UserError`` unless MLflow understands a tracking URI, and the server or database answers in 20 seconds.

    The check asks the server or the database for an experiment. If a sqlite file does not exist yet, the check does not
    create it, but its folder must be writable.

    Args:
        uri: MLflow's tracking URI, such as ``http://HOST:PORT`` or ``sqlite:///PATH``.
    """
    check_not_blank("mlflow", uri)
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import, which do not count as waiting

    prepare()
    file, why = Path(uri.removeprefix(SQLITE).partition("?")[0]), [f"no answer within {_ANSWER_SECONDS:g} s"]

    def ask() -> None:
        try:
            if uri.startswith(SQLITE) and not file.exists():
                Store.open(file.absolute().parent).check_writable()
            else:
                MlflowClient(tracking_uri=uri).get_experiment_by_name("topk")
            why.clear()
        except Exception as error:  # noqa: BLE001 - from MLflow, one of its plug-ins or a database's driver
            why[:] = [reason(error)]

    # A thread asks, because MLflow tries for minutes to open a database that does not answer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if why:
        raise UserError(
            "mlflow must be the URI of an MLflow server that answers, http://HOST:PORT, or of a database, "
            f"sqlite:///PATH, got {masked(uri)!r}: {why[0]}"
        )


def run_pages(uri: str) -> dict[str, str]:
    """Return the page of each study's runs in a database, as a path on the server that shows it, by the study's name.

    Once a study has results, its arms come first on the page, the best one on top.
    """
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import, for the UI alone

    prepare()
    known = MlflowClient(tracking_uri=uri).search_experiments(order_by=["name"])
    page = f"/#/experiments/{{}}/runs?viewStateShareKey={LEDGER}"
    return {study.name: page.format(study.experiment_id) for study in known if LEDGER in study.tags}
