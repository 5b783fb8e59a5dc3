"""``topk doctor``: checks for problems that would keep a study from running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from topk_platform.cli import options
from topk_platform.cli.codes import Exit
from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.options import nonblank, under
from topk_platform.cli.studies import load_study
from topk_platform.running.preflight.doctor import Diagnosis, diagnose
from topk_platform.specs.checks import plural

__all__ = ["doctor"]

_MARKS = {"wrong": ("WRONG", "bold red"), "warning": ("note", "yellow"), "good": ("ok", "green")}
_MANY = 3  # a line names at most so many nodes; for more nodes, it shows their number


def doctor(
    study: Annotated[
        str | None, typer.Argument(help="A study whose data and modules are checked as well.")
    ] = None,
    store: options.Store = "runs",
    address: Annotated[
        str | None,
        under("Where things are")(
            help="A Ray cluster, host:port or auto, whose nodes are all checked; by default this machine alone.",
            callback=nonblank,
        ),
    ] = None,
    mlflow: options.Mlflow = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Check this machine, or every node of a cluster, for what would keep a study from running.

    Exit code 1: something is wrong. Include the output in a bug report.

    Example: topk doctor letters_quick --address 10.0.0.1:6379 --store s3://bucket/runs
    """
    requested = None if study is None else load_study(study, store)

    diagnosis = diagnose(requested, store=store, address=address, mlflow_uri=mlflow, data=data)
    if json:
        print_json({"sound": diagnosis.sound, **vars(diagnosis)})
    else:
        make_console().print(_table(diagnosis))
        typer.echo(_summary(diagnosis))
    raise typer.Exit(Exit.DONE if diagnosis.sound else Exit.FAILED)


def _table(diagnosis: Diagnosis) -> Table:
    table = Table("", "check", "where", "result and remedy", box=None, pad_edge=False, header_style="bold")
    for result in sorted(diagnosis.results, key=lambda result: [*_MARKS].index(result.state)):
        mark, style = _MARKS[result.state]
        text = Text(result.finding)
        if result.remedy:
            text.append(f"\n{result.remedy}", style)
        table.add_row(Text(mark, style), Text(result.check), Text(_where(result.nodes)), text)
    return table


def _where(nodes: Sequence[str]) -> str:
    return f"{len(nodes)} nodes" if len(nodes) > _MANY else ", ".join(nodes)


def _summary(diagnosis: Diagnosis) -> str:
    wrong, notes = (sum(one.state == state for one in diagnosis.results) for state in ("wrong", "warning"))
    is_wrong = (
        f"{plural(wrong, 'thing')} {'is' if wrong == 1 else 'are'} wrong" if wrong else "Nothing is wrong"
    )
    return f"{is_wrong}{f', {notes} to note' if notes else ''}."
