"""The command that lets recorded results count again."""

from __future__ import annotations

from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.codes import Exit
from topk_platform.cli.consoles import plain, print_json, say
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.evidence.adopting import Adoption, Checked, give_up
from topk_platform.evidence.adopting import adopt as adopt_results
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few

__all__ = ["adopt"]

_NAMED = 4  # arms in a line


def adopt(
    study: options.Study,
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
    searches: options.Searches = None,
    trials: options.Trials = None,
    only: options.Only = None,
    data: options.Data = None,
    store: options.Store = "runs",
    smoke: options.Smoke = False,
    json: options.Json = False,
) -> None:
    """Train some recorded trials again; if they come out the same, count all trials like them.

    It is for results that no longer count because the code, the machine or a package's version has changed. The table
    says what was adopted and why. Exit code 1: a trial did not come out the same, and nothing was adopted.

    Example: topk adopt letters_quick --replay 3
    """
    if undo and ((again, seed) != (1, 0) or within is not None or data is not None):
        raise UserError("--replay, --within, --seed and --data are not for --undo: it trains nothing")
    requested = requested_study(study, smoke, store=store, searches=searches, trials=trials)
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
        say(_outcome(adoption))
    raise typer.Exit(Exit.FAILED if adoption.differing else Exit.DONE)


def _undo(study: Study, store: str, only: list[str] | None, *, json: bool) -> None:
    arms = give_up(study, store=store, only=only)
    if not arms:
        raise UserError(f"study {study.name} has no adopted results")
    if json:
        print_json({"study": study.name, "arms": arms})
    else:
        say(f"{study.name}: the adopted results of {first_few(arms, _NAMED)} no longer count")


def _print(one: Checked) -> None:
    say(f"trial {one.name}: {one.outcome}{f' ({one.why})' if one.why else ''}")


def _outcome(adoption: Adoption) -> str:
    if not adoption.checked:
        return (
            f"{adoption.study}: there is nothing to adopt: all recorded trials of these arms and data count"
        )
    whose = f"{adoption.trials} trials of {first_few(adoption.arms, _NAMED)}"
    if adoption.differing:
        names = first_few([one.name for one in adoption.differing], _NAMED)
        why = f"because {len(adoption.differing)} did not come out the same: {names}"
        return f"{adoption.study}: {whose} are not adopted, {why}"
    return f"{adoption.study}: {whose} are adopted: {adoption.summary}"
