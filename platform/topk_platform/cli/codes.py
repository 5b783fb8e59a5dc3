"""The exit codes and their meaning; ``topk --help`` and the documentation show this list."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["MEANINGS", "Exit"]


class Exit(IntEnum):
    """The exit codes of ``topk``; codes above 128 mean signals, as in any shell."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    OPEN = 3
    PARTIAL = 4
    UNEXPECTED = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[Exit, str] = {
    Exit.DONE: "everything is done",
    Exit.FAILED: "a trial failed, an arm has no result, an input cannot be read, or a check shows a difference",
    Exit.BAD_INPUT: "bad input, an error in your own code, or a store that cannot be used; one line says which",
    Exit.OPEN: "faults of machines left trials without a result; the same command tries them again",
    Exit.PARTIAL: "a limit such as --max-hours is reached; the same command goes on",
    Exit.UNEXPECTED: "an error of the program itself; the line names a file with its traceback",
    Exit.HUNG_UP: "ended by SIGHUP, as its terminal was closed; the same command goes on",
    Exit.INTERRUPTED: "interrupted by Ctrl-C; the same command goes on",
    Exit.TERMINATED: "ended by SIGTERM; the same command goes on",
}
"""The meaning of each code in one line."""
