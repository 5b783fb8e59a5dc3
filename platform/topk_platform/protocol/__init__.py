"""The protocol: what is tried next, what is stopped, what was best, and what is left; pure functions and values.

- ``study_progress`` chooses the arm whose trial is next, in ``StudyProgress.next_trials``;
- ``search_progress`` says which slot of the arm's searches that is, and ``arm_progress`` makes the slot's trial;
- ``suggest`` asks Optuna for its values, with one of ``samplers``; ``pruning`` fixes its thresholds.
"""

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
