"""The protocol: what is tried next, what is stopped, what was best, and what is left; pure functions and values."""

from topk_platform.protocol.arm_board import ArmBoard
from topk_platform.protocol.board import Board, Pace
from topk_platform.protocol.correlations import early_correlations
from topk_platform.protocol.counts import Counts
from topk_platform.protocol.durations import Durations
from topk_platform.protocol.ended import Ended
from topk_platform.protocol.lane import Slot
from topk_platform.protocol.search.pruning import stopping_values
from topk_platform.protocol.search.samplers import check_sampler, informed

__all__ = [
    "ArmBoard",
    "Board",
    "Counts",
    "Durations",
    "Ended",
    "Pace",
    "Slot",
    "check_sampler",
    "early_correlations",
    "informed",
    "stopping_values",
]
