"""Analysis of Python sources: the definitions that a piece of code uses, and whether one of them has changed."""

from topk_platform.sources.finding import (
    Source,
    find_source,
    find_spec,
    is_followed,
    is_installed,
    is_ours,
    top_of,
)
from topk_platform.sources.program import Program
from topk_platform.sources.remembering import keep
from topk_platform.sources.resolving import Node

__all__ = [
    "Node",
    "Program",
    "Source",
    "find_source",
    "find_spec",
    "is_followed",
    "is_installed",
    "is_ours",
    "keep",
    "top_of",
]
