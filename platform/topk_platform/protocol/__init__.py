"""The protocol: what to try next, what to stop, what was best."""

from topk_platform.protocol.arm_board import ArmBoard
from topk_platform.protocol.board import Board
from topk_platform.protocol.correlations import early_correlations
from topk_platform.protocol.lane import Slot
from topk_platform.protocol.order import Pace, alike, paces
from topk_platform.protocol.pruning import Stopping, expected_part, stopping_values
from topk_platform.protocol.samplers import check_packages, check_sampler, informed

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
