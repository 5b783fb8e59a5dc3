"""The output of an interrupted run: a line for people, and an event for programs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer

from topk_platform.cli.consoles import print_json
from topk_platform.running.events import Event
from topk_platform.running.progress.watching import Watch

__all__ = ["Course", "interrupts_reported"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Course:
    """The progress of a run, so that an interrupt can report it.

    Args:
        json: Whether to print the end as an event too.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self._watch: Watch | None = None
        self._ran = 0

    def followed(self, view: Callable[[Watch, Event], None]) -> Callable[[Watch, Event], None]:
        """Return a view that notes every event here before it passes it on to another view."""

        def show(watch: Watch, event: Event) -> None:
            self._watch = watch
            self._ran += event.kind == "ended"
            view(watch, event)

        return show

    def end(self, code: int) -> None:
        """Print that the run was interrupted, and whether anything had begun.

        Args:
            code: The exit code.
        """
        when = " before anything began" if self._watch is None else "; ended trials are kept"
        typer.echo(f"Interrupted{when}; the same command goes on from here.", err=True)
        if self._json:
            left = None if self._watch is None else self._watch.board.left
            ended = {"event": "finished", "interrupted": True, "ran": self._ran, "left": left}
            print_json({**ended, "exit_code": code}, lines=True)


@contextmanager
def interrupts_reported(course: Course) -> Iterator[list[int]]:
    """Report an interrupt in one line; yield the list of the signals received.

    SIGTERM counts as an interrupt like Ctrl-C, because SLURM and Kubernetes end jobs with it. So does SIGHUP, which a
    terminal sends when it is closed. A signal that is ignored stays ignored, such as SIGHUP after nohup.
    """
    received: list[int] = []
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        if number == signal.SIGHUP:
            _silence(terminals)
        # A background process of a script ignores SIGINT, but SIGTERM must end it.
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    handled = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in handled}
    # Caught here, not in main, because Typer turns an interrupt into an exit of its own and prints nothing.
    try:
        yield received
    except KeyboardInterrupt as error:
        code = 128 + (received or [signal.SIGINT])[0]
        course.end(code)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        raise typer.Exit(code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silence(descriptors: Sequence[int]) -> None:
    """Discard all output to a terminal that is closed, because writing to it would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
