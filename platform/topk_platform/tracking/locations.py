"""Where a study's MLflow runs are, noted in its folder, so that a run that writes them elsewhere can say so."""

from __future__ import annotations

from topk_platform.errors import masked
from topk_platform.records.storage.store import Store

__all__ = ["moved"]

_FILE = "tracking.txt"


def moved(store: Store, uri: str | None) -> str:
    """Note where MLflow's runs of a study go now; return a line if they went elsewhere before, else nothing.

    Args:
        store: The study's folder, whose ledger is held for writing.
        uri: MLflow's tracking URI as the user gave it; None for the store's own database, or none.
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
        f"MLflow: the last run of this study wrote to {before}; this one has {where}, and leaves what is there as it "
        f"is (--mlflow {before} goes on there)"
    )
