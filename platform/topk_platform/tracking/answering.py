"""The check, before a study starts, that MLflow answers at a URI."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topk_platform.errors import StoreError, UserError, masked, reason
from topk_platform.records.storage.store import Store
from topk_platform.specs.checks import check_place
from topk_platform.tracking.database import SQLITE, tracking_uri

__all__ = ["check_tracking", "mlflow_of"]

_ANSWER_SECONDS = 20.0
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


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
        return uri
    if "?" in str(store.local):
        raise UserError(
            f"store {str(store.local)!r} cannot hold MLflow's database, because an address of sqlite ends at the "
            "'?': choose another --store, or give --mlflow URI or --mlflow none"
        )
    return tracking_uri(Path(str(store.local)))


def check_tracking(uri: str) -> None:
    """Raise ``UserError`` unless MLflow understands a tracking URI, and the server or database answers in 20 seconds.

    The check asks the server or the database for an experiment. If a sqlite file does not exist yet, the check does not
    create it, but its folder must be writable.

    Args:
        uri: MLflow's tracking URI, such as ``http://HOST:PORT`` or ``sqlite:///PATH``.
    """
    check_place("mlflow", uri)
    file = Path(uri.removeprefix(SQLITE).partition("?")[0])
    why = _unwritable(file) if uri.startswith(SQLITE) and not file.exists() else _refusal(uri)
    if why:
        raise UserError(
            "mlflow must be the URI of an MLflow server that answers, http://HOST:PORT, or of a database, "
            f"sqlite:///PATH, got {masked(uri)!r}: {why}"
        )


def _unwritable(file: Path) -> str:
    try:
        Store.open(file.absolute().parent).check_writable()
    except StoreError as error:
        return str(error)
    return ""


def _refusal(uri: str) -> str:
    """Return why MLflow cannot work with the URI; empty if it can.

    A thread asks, because MLflow tries for minutes to open a database that another process has locked.
    """
    from mlflow import MlflowClient  # noqa: F401, PLC0415 - seconds of import, which do not count as waiting

    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(_asked(uri)), daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    return answers[0] if answers else f"no answer within {_ANSWER_SECONDS:g} s"


def _asked(uri: str) -> str:
    from mlflow import MlflowClient  # noqa: PLC0415 - as above
    from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException  # noqa: PLC0415

    try:
        with _impatient():
            MlflowClient(tracking_uri=uri).get_experiment_by_name("topk")
    except UnsupportedModelRegistryStoreURIException as error:
        return f"the schemes that it knows are {', '.join(filter(None, error.supported_uri_schemes))}"
    except Exception as error:  # noqa: BLE001 - from MLflow, one of its plug-ins or a database's driver
        return reason(error)
    return ""


@contextmanager
def _impatient() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _IMPATIENT}
    os.environ.update(_IMPATIENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
