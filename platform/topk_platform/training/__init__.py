"""Training of trials, alone or many at once; knows neither Ray nor MLflow."""

from topk_platform.training.ensemble import check_ensemble
from topk_platform.training.losses import LOSSES, build_loss, check_loss
from topk_platform.training.optim import SEARCHABLE, split_parameters
from topk_platform.training.run import Keeper, Training, finish, run_trials
from topk_platform.training.session import Session

__all__ = [
    "LOSSES",
    "SEARCHABLE",
    "Keeper",
    "Session",
    "Training",
    "build_loss",
    "check_ensemble",
    "check_loss",
    "finish",
    "run_trials",
    "split_parameters",
]
