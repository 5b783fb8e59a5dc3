"""The protocol: what to try next, what to stop, what was best."""

from topk_platform.search.board import ArmBoard, Board
from topk_platform.search.pruning import stopping_values

__all__ = ["ArmBoard", "Board", "stopping_values"]
