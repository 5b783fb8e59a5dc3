"""``topk adopt``: lets results of other code or another machine count, after some of them were trained again."""

from __future__ import annotations

from typing import Annotated

import typer

from topk_platform.cli.codes import Exit
from topk_platform.cli.consoles import plain, print_json
from topk_platform.cli.options import (
    DataOption,
    JsonOption,
    OnlyOption,
    SmokeOption,
    StoreOption,
    StudyArgument,
)
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.evidence.adopting import Adoption, give_up
from topk_platform.evidence.adopting import adopt as adopt_results
from topk_platform.evidence.verifying import Checked
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few

__all__ = ["adopt"]

_NAMED = 4  # arms in a line


def adopt(
    study: StudyArgument,
    again: Annotated[
        int,
        typer.Option(
            "--replay",
            help="How many trials to train again: at least one of each arm, code version and machine.",
        ),
    ] = 1,
    within: Annotated[
        float | None,
        typer.Option(
            "--within",
            help="By how much a metric may differ, as a fraction of 1, such as 0.02; by default not by a bit.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed for drawing these trials.")] = 0,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what was adopted.")] = False,
    only: OnlyOption = None,
    data: DataOption = None,
    store: StoreOption = "runs",
    smoke: SmokeOption = False,
    json: JsonOption = False,
) -> None:
    """Train some recorded trials again; if they come out the same, count all trials like them.

    It is for results that no longer count because the code, the machine or a package's version has changed. The table
    says what was adopted and why. Exit code 1: a trial came out differently, and nothing was adopted.
    """
    requested = requested_study(study, smoke, store=store)
    if undo:
        _undo(requested, store, only, json=json)
        return

    adoption = adopt_results(
        requested,
        store=store,
        again=again,
        seed=seed,
        within=within,
        only=only,
        data=data,
        report=(lambda _: None) if json else _print,
    )
    if json:
        print_json({**plain(adoption), "adopted": bool(adoption.summary)})
    else:
        typer.echo(_outcome(adoption))
    raise typer.Exit(Exit.FAILED if adoption.differing else Exit.DONE)


def _undo(study: Study, store: str, only: list[str] | None, *, json: bool) -> None:

    arms = give_up(study, store=store, only=only)
    if not arms:
        raise UserError(f"study {study.name} has no adopted results")
    if json:
        print_json({"study": study.name, "arms": arms})
    else:
        typer.echo(f"{study.name}: the adopted results of {first_few(arms, _NAMED)} no longer count")


def _print(one: Checked) -> None:
    typer.echo(f"trial {one.name}: {one.outcome}{f' ({one.why})' if one.why else ''}")


def _outcome(adoption: Adoption) -> str:
    if not adoption.checked:
        return (
            f"{adoption.study}: there is nothing to adopt: all recorded trials of these arms and data count"
        )
    whose = f"{adoption.trials} trials of {first_few(adoption.arms, _NAMED)}"
    if adoption.differing:
        names = first_few([one.name for one in adoption.differing], _NAMED)
        return f"{adoption.study}: {whose} are not adopted, because of {len(adoption.differing)}: {names}"
    return f"{adoption.study}: {whose} are adopted: {adoption.summary}"
