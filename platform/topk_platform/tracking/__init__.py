"""Trackers: where people look at trials and compare them. MLflow, TensorBoard and Weights & Biases are three of them.

A tracker is filled from the ledger and decides nothing. Each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.lazy import first_use

if TYPE_CHECKING:
    from topk_platform.tracking.locations import moved
    from topk_platform.tracking.mlflow.answering import check_tracking
    from topk_platform.tracking.mlflow.database import experiments, tracking_uri
    from topk_platform.tracking.syncing import sync
    from topk_platform.tracking.tracker import (
        ArmResult,
        Dataset,
        Extras,
        Point,
        StudyResult,
        TrackedStudy,
        TrackedTrial,
        Tracker,
    )
    from topk_platform.tracking.trackers import Feeds, Track, Tracking, TrackingError, known_trackers
    from topk_platform.tracking.trials import SearchTrials

__all__ = [
    "ArmResult",
    "Dataset",
    "Extras",
    "Feeds",
    "Point",
    "SearchTrials",
    "StudyResult",
    "Track",
    "TrackedStudy",
    "TrackedTrial",
    "Tracker",
    "Tracking",
    "TrackingError",
    "check_tracking",
    "experiments",
    "known_trackers",
    "moved",
    "sync",
    "tracking_uri",
]

if not TYPE_CHECKING:  # otherwise a type checker would accept any name as one of this package
    __getattr__ = first_use(__name__)
