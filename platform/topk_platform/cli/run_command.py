"""The command that runs a study, what it prints of the run, and its exit code.

Its options are those of :class:`~topk_platform.running.run_options.RunOptions`.
"""

from __future__ import annotations

import inspect
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from topk_platform.cli import options
from topk_platform.cli.consoles import Exit, make_console, print_json
from topk_platform.cli.options import under
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.running.loop import run as run_study
from topk_platform.running.run_options import HEADINGS, RunOptions, help_of
from topk_platform.running.summary import Summary, problems
from topk_platform.running.views import view_on
from topk_platform.running.watching import Event, OnEvent, Watch

__all__ = [
    "Course",
    "exit_code",
    "interrupts_reported",
    "print_event",
    "print_summary",
    "run",
    "summary_data",
]

_ENDING = (signal.SIGTERM, signal.SIGHUP)

_output = under("Output")

Quiet = Annotated[bool, _output("--quiet", "-q", help="Print only problems.")]
Events = Annotated[bool, _output("--json", help="Print every event as a line of JSON.")]
_TYPED = {str | Path: str, str | Path | None: str | None, str | Sequence[str] | None: list[str] | None}


def _with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run, in the place of its ``**given``."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    types, texts, fields = get_type_hints(RunOptions), help_of(), RunOptions.__dataclass_fields__
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=fields[name].default,
            annotation=Annotated[
                _TYPED.get(types[name], types[name]),
                under(heading)(f"--{name.replace('_', '-')}", help=texts[name]),
            ],
        )
        for heading, names in HEADINGS.items()
        for name in names
    ]
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own[:1], *added, *own[1:])
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@_with_run_options
def run(
    study: options.Study,
    smoke: options.Smoke = False,
    quiet: Quiet = False,
    json: Events = False,
    **given: Any,
) -> None:
    """Run what is missing of a study, then print its table. The same command resumes an interrupted study.

    Example: topk run letters_quick --only 'noise-0.8/*' --max-hours 2
    """
    if quiet and json:
        raise UserError("--quiet and --json exclude each other: leave one out")
    chosen = RunOptions(**given)
    if json and chosen.tune_table:
        raise UserError("--tune-table and --json exclude each other: leave one out")
    console = None if quiet or json else make_console()
    requested = requested_study(study, smoke, str(chosen.store), address=chosen.address, notice_to=console)
    waiting = (lambda _: None) if quiet else partial(typer.echo, err=True)
    course = Course(json=json)
    view = nullcontext(print_event) if json else view_on(None if chosen.tune_table else console)
    with interrupts_reported(course) as signals, view as show:
        summary = run_study(requested, chosen, waiting=waiting, progress=course.followed(show))
    code = 128 + signals[0] if summary.outcome.interrupted and signals else exit_code(summary)
    if json:
        print_json({**summary_data(summary), "exit_code": code}, lines=True)
    elif console is None:
        console = make_console(stderr=True)
        for line in problems(summary):
            console.print(line)
    else:
        print_summary(console, summary)
    raise typer.Exit(code)


class Course:
    """The progress of a run, so that an interrupt can report it.

    Args:
        json: Whether to print the end as an event too.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self._watch: Watch | None = None
        self._ran = 0

    def followed(self, view: OnEvent) -> OnEvent:
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
            left = None if self._watch is None else self._watch.progress.left
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


def exit_code(summary: Summary) -> int:
    """Return a run's exit code.

    The code is 130 after an interrupt; otherwise 4 if a limit of this run is reached and no fault left a trial open;
    otherwise 3 if faults left trials without a result or ended the run; otherwise 1 if a trial failed or an arm ended
    without a result; otherwise 0.
    """
    if summary.outcome.interrupted:
        return 128 + signal.SIGINT
    if summary.outcome.partial and not summary.outcome.open:
        return Exit.PARTIAL
    if summary.left:
        return Exit.OPEN
    return Exit.FAILED if summary.table.failures or summary.table.fruitless else Exit.DONE


def print_summary(console: Console, summary: Summary) -> None:
    """Print a run's table, the folder of its results, its problems, and the command that shows its trials."""
    console.print(summary)
    store = str(summary.options.store)
    behind = summary.outcome.tracking_error
    if summary.options.mlflow is None and not behind and Path(store, "mlflow.db").is_file():
        console.print(
            f"Look into every trial in the MLflow UI: {sys.argv[0]} ui --store {shlex.quote(store)}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def summary_data(summary: Summary) -> dict[str, Any]:
    """Return a run's summary as JSON types."""
    outcome = summary.outcome
    return {
        "event": "finished",
        "interrupted": outcome.interrupted,
        "ran": summary.ran,
        "beyond": summary.beyond,
        "left": summary.left,
        "exit_code": exit_code(summary),
        "folder": summary.folder,
        "partial": outcome.partial,
        "failures": [{"key": key, "arm": arm, "reason": why} for key, arm, why in summary.table.failures],
        "open": outcome.open,
        "ended": outcome.lost,
        "unsaved": outcome.unsaved,
        "tracking_error": summary.outcome.tracking_error or None,
    }


def print_event(watch: Watch, event: Event) -> None:
    """Print an event as a line of JSON, one for each of its trials."""
    progress = watch.progress
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    shown: dict[str, Any] = {"event": event.kind, "time": now}
    if event.kind == "begun":
        shown |= {"study": watch.study, "workers": watch.slots, "not_counted": dict(progress.outdated)}
    shown |= {"busy": watch.workers, "total": progress.total, "left": progress.left}
    if event.record is not None:
        record = event.record
        shown |= {"status": record.status, "reason": record.reason, "seconds": record.train_seconds}
        shown |= {"validation": record.validation, "test": record.test}
    elif event.why:
        shown["why"] = event.why
    named = ("key", "phase", "number", "seed", "values")
    trials = [{"arm": t.arm.name, **{name: getattr(t, name) for name in named}} for t in event.trials]
    for trial in trials or [{}]:
        print_json({**shown, **trial}, lines=True)
