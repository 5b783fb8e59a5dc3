"""A note in a study's folder about where its MLflow runs are, so that a later run can say that it writes elsewhere."""

from __future__ import annotations

from topk_platform.errors import masked
from topk_platform.records.storage.store import Store

__all__ = ["moved"]

_FILE = "tracking.txt"


def moved(store: Store, uri: str | None) -> str:
    """Note where a study's MLflow runs go now; return a line if the last run wrote to another URI, else an empty text.

    Args:
        store: The study's folder. The caller must hold its ledger for writing.
        uri: MLflow's tracking URI as the user gave it; None for the store's own database or for no MLflow.
    """
    now = "" if uri is None else masked(uri)
    before = store.read(_FILE).decode(errors="replace") if store.exists(_FILE) else ""
    if before == now:
        return ""
    store.write(_FILE, now.encode())
    if not before:
        return ""
    where = f"--mlflow {now}" if now else "no --mlflow"
    return (
        f"MLflow: the last run of this study wrote to {before}; this one has {where}, and does not change what the "
        f"last one wrote (to write to it again, give --mlflow {before})"
    )
