"""MLflow, where people look at trials and compare them. It is filled from the ledger and decides nothing.

Each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.references import first_use

if TYPE_CHECKING:
    from topk_platform.tracking.answering import check_tracking, mlflow_of, moved, run_pages, tracking_uri
    from topk_platform.tracking.feed import Feed, Pictures, sync

__all__ = ["Feed", "Pictures", "check_tracking", "mlflow_of", "moved", "run_pages", "sync", "tracking_uri"]

if not TYPE_CHECKING:  # otherwise a type checker would accept any name as one of this package
    __getattr__ = first_use(__name__)
