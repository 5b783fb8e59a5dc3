"""The protocol: what to try next, what to stop, what was best."""

from topk_platform.search.board import ArmBoard, Board
from topk_platform.search.pruning import stopping_values
from topk_platform.search.suggest import suggest, to_optuna

__all__ = ["ArmBoard", "Board", "stopping_values", "suggest", "to_optuna"]
