"""A study's results as values: its table, statistics, claims and findings.

- a table's way: ``from_store`` takes the rows that count, ``runs`` has those of each arm, ``contrasts`` their means and
  differences with ``intervals`` and the part of the ``images``, ``significance`` tests them, and ``cells`` marks them;
- ``decisions`` decides claims, and ``by_class`` looks at classes;
- ``findings`` are a table in a small file.

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
