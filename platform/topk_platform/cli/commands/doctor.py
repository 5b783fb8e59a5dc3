"""``topk doctor``: checks for problems that would keep a study from running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from topk_platform.cli import options
from topk_platform.cli.codes import Exit
from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.options import nonblank, under
from topk_platform.cli.studies import load_study
from topk_platform.running.preflight.doctor import CheckResult, Diagnosis, diagnose

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
    requested = None if study is None else load_study(study)

    diagnosis = diagnose(requested, store=store, address=address, mlflow_uri=mlflow, data=data)
    if json:
        print_json(_data(diagnosis))
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
    wrong = [result for result in diagnosis.results if result.state == "wrong"]
    notes = sum(result.state == "warning" for result in diagnosis.results)
    text = (
        f"{len(wrong)} things are wrong"
        if len(wrong) > 1
        else "1 thing is wrong"
        if wrong
        else "Nothing is wrong"
    )
    return text + (f", {notes} to note" if notes else "") + "."


def _data(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "sound": diagnosis.sound,
        "results": [_as_json(result) for result in diagnosis.results],
        "driver": diagnosis.driver,
        "nodes": diagnosis.nodes,
    }


def _as_json(result: CheckResult) -> dict[str, Any]:
    return {
        "check": result.check,
        "state": result.state,
        "nodes": result.nodes,
        "found": result.finding,
        "remedy": result.remedy,
    }
