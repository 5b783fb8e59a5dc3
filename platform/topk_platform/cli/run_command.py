"""The command that runs a study: its options are those of :class:`~topk_platform.running.run_options.RunOptions`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.options import under
from topk_platform.cli.run_output import (
    Course,
    exit_code,
    interrupts_reported,
    print_event,
    print_summary,
    summary_data,
)
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.running.loop import run as run_study
from topk_platform.running.run_options import HEADINGS, RunOptions, help_of
from topk_platform.running.summary import problems
from topk_platform.running.views import view_on

__all__ = ["run"]

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
        print_summary(console, summary, chosen)
    raise typer.Exit(code)
