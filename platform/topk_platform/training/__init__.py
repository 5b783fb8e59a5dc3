"""Training of trials, alone or many at once; knows neither Ray nor MLflow.

- ``run`` trains from the first epoch to the records: read it first; ``setup`` builds what a trial's spec names;
- ``session`` makes the steps of one network, ``ensemble`` those of a stack;
- ``member`` is a trial's state, ``group`` that of the trials that train together, and ``scoring`` scores them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.references import first_use

if TYPE_CHECKING:
    from topk_platform.training.group import Heartbeat, Keeper
    from topk_platform.training.loss_table import LOSSES
    from topk_platform.training.losses import build_loss, check_loss, check_parameters
    from topk_platform.training.process import environment
    from topk_platform.training.run import Training, finish, run_trials
    from topk_platform.training.session import Session
    from topk_platform.training.stacking import check_ensemble

__all__ = [
    "LOSSES",
    "Heartbeat",
    "Keeper",
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

# Training imports torch, which defining a study does not need.
if not TYPE_CHECKING:  # a type checker would take any name for one of this package's
    __getattr__ = first_use(__name__)
