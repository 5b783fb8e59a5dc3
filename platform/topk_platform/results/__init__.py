"""A study's results as values: its table, statistics, claims, tuning and findings.

The code that shows them is in ``topk_platform.reports``.
"""

from topk_platform.results.cells import Cell
from topk_platform.results.from_store import build_table
from topk_platform.results.intervals import Estimate, estimate
from topk_platform.results.table import ChosenValues, Fruitless, Table

__all__ = [
    "Cell",
    "ChosenValues",
    "Estimate",
    "Fruitless",
    "Table",
    "build_table",
    "estimate",
]
