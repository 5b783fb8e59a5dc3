"""The protocol: what to try next, what to stop, what was best."""

from topk_platform.search.arm_board import ArmBoard
from topk_platform.search.board import Board
from topk_platform.search.lane import Slot
from topk_platform.search.order import Pace, alike, paces
from topk_platform.search.pruning import Stopping, expected_part, stopping_values
from topk_platform.search.samplers import check_packages, check_sampler, informed
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
    "expected_part",
    "informed",
    "paces",
    "stopping_values",
]
