"""Training of one trial; knows neither Ray nor MLflow."""

from topk_platform.training.losses import LOSSES, build_loss, check_loss
from topk_platform.training.optim import SEARCHABLE, split_parameters
from topk_platform.training.run import SaveModel, Training, finish, run_trial
from topk_platform.training.session import Session

__all__ = [
    "LOSSES",
    "SEARCHABLE",
    "SaveModel",
    "Session",
    "Training",
    "build_loss",
    "check_loss",
    "finish",
    "run_trial",
    "split_parameters",
]
