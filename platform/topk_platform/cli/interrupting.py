"""How a run that is interrupted ends: with a line that says what that means, or an event."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer

from topk_platform.cli.consoles import print_json
from topk_platform.running.progress.events import Event
from topk_platform.running.progress.watching import Watch

__all__ = ["Course", "interrupts_told"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Course:
    """How far a run has come.

    Args:
        json: Whether programs are told of it, and so of its end.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self._watch: Watch | None = None
        self._ran = 0

    def told(self, view: Callable[[Watch, Event], None]) -> Callable[[Watch, Event], None]:
        """Return a view that follows the course and hands every event on."""

        def tell(watch: Watch, event: Event) -> None:
            self._watch = watch
            self._ran += event.kind == "ended"
            view(watch, event)

        return tell

    def end(self, code: int) -> None:
        """Say that the run was interrupted, and whether anything had begun.

        Args:
            code: The exit code.
        """
        when = " before anything began" if self._watch is None else "; what had ended is kept"
        go_on = "; the same command goes on" if self._watch is None else ", and the same command goes on"
        typer.echo(f"Interrupted{when}{go_on} from here.", err=True)
        if self._json:
            left = None if self._watch is None else self._watch.board.left
            ended = {"event": "finished", "interrupted": True, "ran": self._ran, "left": left}
            print_json({**ended, "exit_code": code}, lines=True)


@contextmanager
def interrupts_told(course: Course) -> Iterator[list[int]]:
    """Report an interrupt in one line.

    SIGTERM, with which SLURM and Kubernetes end a job, counts as an interrupt like Ctrl-C, and so does SIGHUP, which a
    terminal sends when it is closed. A signal that is ignored, as SIGHUP is after nohup, stays so. Yields the signals
    received.
    """
    came: list[int] = []
    shown = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        if number == signal.SIGHUP:
            _silence(shown)
        if (
            signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        ):  # as in a script's background, which SIGTERM still ends
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    heard = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    # Here and not in main, for Typer turns an interrupt into its own exit and says nothing.
    try:
        yield came
    except KeyboardInterrupt as error:
        code = 128 + (came or [signal.SIGINT])[0]
        course.end(code)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        raise typer.Exit(code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silence(descriptors: Sequence[int]) -> None:
    """Let what is written to a terminal that is gone go nowhere, where it would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
