"""``topk adopt``: results of other code or another machine count again, after some of them were trained again."""

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
    """Train some recorded trials again with the code at hand; if they come out the same, count all like them.

    For results that count no more because the code, the machine or a package's version has changed. The table says
    what was adopted and on what evidence. Exit code 1: a trial came out differently, and nothing was adopted.
    """
    wanted = requested_study(study, smoke, store=store)
    if undo:
        _undo(wanted, store, only, json=json)
        return

    found = adopt_results(
        wanted,
        store=store,
        again=again,
        seed=seed,
        within=within,
        only=only,
        data=data,
        tell=(lambda _: None) if json else _print,
    )
    if json:
        print_json({**plain(found), "adopted": bool(found.told)})
    else:
        typer.echo(_outcome(found))
    raise typer.Exit(Exit.FAILED if found.differing else Exit.DONE)


def _undo(study: Study, store: str, only: list[str] | None, *, json: bool) -> None:

    arms = give_up(study, store=store, only=only)
    if not arms:
        raise UserError(f"nothing was adopted of study {study.name}")
    if json:
        print_json({"study": study.name, "arms": arms})
    else:
        typer.echo(f"{study.name}: what was adopted of {first_few(arms, _NAMED)} does not count any more")


def _print(one: Checked) -> None:
    typer.echo(f"trial {one.name}: {one.outcome}{f' ({one.why})' if one.why else ''}")


def _outcome(found: Adoption) -> str:
    if not found.checked:
        return f"{found.study}: there is nothing to adopt: all recorded trials of these arms and data count"
    whose = f"{found.trials} trials of {first_few(found.arms, _NAMED)}"
    if found.differing:
        names = first_few([one.name for one in found.differing], _NAMED)
        return f"{found.study}: {whose} are not adopted, because of {len(found.differing)}: {names}"
    return f"{found.study}: {whose} are adopted: {found.told}"
