"""The output at the end of a run, and its exit code."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from topk_platform.cli.consoles import Exit
from topk_platform.running.summary import Summary

__all__ = ["exit_code", "print_summary", "summary_data"]


def exit_code(summary: Summary) -> int:
    """Return a run's exit code.

    The code is 130 after an interrupt; otherwise 4 if a limit of this run is reached and no fault left a trial open;
    otherwise 3 if faults left trials without a result or ended the run; otherwise 1 if a trial failed or an arm ended
    without a result; otherwise 0.
    """
    if summary.interrupted:
        return 128 + signal.SIGINT
    if summary.partial and not summary.faults.open:
        return Exit.PARTIAL
    if summary.left:
        return Exit.OPEN
    return Exit.FAILED if summary.table.failures or summary.table.fruitless else Exit.DONE


def print_summary(console: Console, summary: Summary, filled: str) -> None:
    """Print a run's table, the folder of its results, its problems, and the command that shows its trials.

    Args:
        console: The console.
        summary: The summary of the run.
        filled: The store whose MLflow has the run; empty if it has not.
    """
    console.print(summary)
    if filled and not summary.tracking_error and Path(filled, "mlflow.db").is_file():
        console.print(
            f"Look into every trial in the MLflow UI: {sys.argv[0]} ui --store {shlex.quote(filled)}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def summary_data(summary: Summary) -> dict[str, Any]:
    """Return a run's summary as JSON types."""
    faults = summary.faults
    return {
        "event": "finished",
        "interrupted": summary.interrupted,
        "ran": summary.ran,
        "beyond": summary.beyond,
        "left": summary.left,
        "exit_code": exit_code(summary),
        "folder": summary.folder,
        "partial": summary.partial,
        "failures": [{"key": key, "arm": arm, "reason": why} for key, arm, why in summary.table.failures],
        "open": faults.open,
        "ended": faults.ended,
        "unsaved": faults.unsaved,
        "tracking_error": summary.tracking_error or None,
    }
