"""MLflow, where people look at trials and compare them. It is filled from the ledger and decides nothing.

Each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.lazy import first_use

if TYPE_CHECKING:
    from topk_platform.tracking.answering import check_tracking, mlflow_of
    from topk_platform.tracking.database import experiments, tracking_uri
    from topk_platform.tracking.feed import Feed, Pictures
    from topk_platform.tracking.locations import moved
    from topk_platform.tracking.syncing import sync

__all__ = [
    "Feed",
    "Pictures",
    "check_tracking",
    "experiments",
    "mlflow_of",
    "moved",
    "sync",
    "tracking_uri",
]

if not TYPE_CHECKING:  # otherwise a type checker would accept any name as one of this package
    __getattr__ = first_use(__name__)
