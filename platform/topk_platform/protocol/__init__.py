"""The protocol: what is tried next, what is stopped, what was best, and what is left; pure functions and values."""

from topk_platform.protocol.arm_progress import ArmProgress
from topk_platform.protocol.pruning import stopping_values
from topk_platform.protocol.search_progress import Ended, Slot
from topk_platform.protocol.study_progress import Counts, Durations, Pace, StudyProgress, Tally

__all__ = [
    "ArmProgress",
    "Counts",
    "Durations",
    "Ended",
    "Pace",
    "Slot",
    "StudyProgress",
    "Tally",
    "stopping_values",
]
