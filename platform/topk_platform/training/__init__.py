"""Training of trials, alone or many at once; knows neither Ray nor MLflow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topk_platform.training.ensemble import check_ensemble
    from topk_platform.training.group import Keeper, Pulse
    from topk_platform.training.loss_table import LOSSES
    from topk_platform.training.losses import build_loss, check_loss, check_parameters
    from topk_platform.training.machine import environment
    from topk_platform.training.run import Training, finish, run_trials
    from topk_platform.training.session import Session

__all__ = [
    "LOSSES",
    "Keeper",
    "Pulse",
    "Session",
    "Training",
    "build_loss",
    "check_ensemble",
    "check_loss",
    "check_parameters",
    "environment",
    "finish",
    "run_trials",
]

_MODULES = {
    "Keeper": "group",
    "LOSSES": "loss_table",
    "Pulse": "group",
    "Session": "session",
    "Training": "run",
    "build_loss": "losses",
    "check_ensemble": "ensemble",
    "check_loss": "losses",
    "check_parameters": "losses",
    "environment": "machine",
    "finish": "run",
    "run_trials": "run",
}


def __getattr__(name: str) -> Any:
    # Training imports torch; defining a study, with one of the named recipes beside it, should not.
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
