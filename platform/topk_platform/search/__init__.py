"""The protocol: what to try next, what to stop, what was best."""

from topk_platform.search.board import ArmBoard, Board
from topk_platform.search.pruning import Stopping, stopping_values
from topk_platform.search.samplers import check_packages, check_sampler
from topk_platform.search.trust import early_correlations

__all__ = [
    "ArmBoard",
    "Board",
    "Stopping",
    "check_packages",
    "check_sampler",
    "early_correlations",
    "stopping_values",
]
