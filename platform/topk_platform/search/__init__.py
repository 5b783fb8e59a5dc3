"""The protocol: what to try next, what to stop, what was best."""

from topk_platform.search.board import ArmBoard, Board, Slot
from topk_platform.search.order import Pace, alike, paces
from topk_platform.search.pruning import Stopping, stopping_values
from topk_platform.search.samplers import check_packages, check_sampler
from topk_platform.search.trust import early_correlations

__all__ = [
    "ArmBoard",
    "Board",
    "Pace",
    "Slot",
    "Stopping",
    "alike",
    "check_packages",
    "check_sampler",
    "early_correlations",
    "paces",
    "stopping_values",
]
