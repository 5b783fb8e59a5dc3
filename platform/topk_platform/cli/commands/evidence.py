"""Commands about the evidence of a study: results that are checked, adopted, and kept in one file."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.codes import Exit
from topk_platform.cli.consoles import check_suffix, plain, print_json, say, write_file
from topk_platform.cli.options import nonblank
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.evidence import bundle as bundle_study
from topk_platform.evidence import verify as verify_file
from topk_platform.evidence.adopting import Adoption, give_up
from topk_platform.evidence.adopting import adopt as adopt_results
from topk_platform.evidence.verifying import Checked, Verification
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few, plural

__all__ = ["adopt", "bundle", "verify"]

_NAMED = 4  # arms in a line
_TOLERANCE = 0.005


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
        report=(lambda _: None) if json else partial(_print, "trial"),
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


def _print(kind: str, one: Checked) -> None:
    say(f"{kind} {one.name.removeprefix('results/')}: {one.outcome}{f' ({one.why})' if one.why else ''}")


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


def bundle(
    study: options.Study,
    to: options.To,
    store: options.Store = "runs",
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    smoke: options.Smoke = False,
) -> None:
    """Write a study as one file that can be cited: definition, ledger, ranks, tables, claims, versions.

    Example: topk bundle letters_quick --to letters.topk
    """
    check_suffix(Path(to), [".topk"])
    requested = requested_study(study, smoke, store=store, searches=searches, trials=trials, seeds=seeds)

    bundled = bundle_study(requested, store=store)
    data = bundled.to_bytes()
    write_file(Path(to), data)
    say(
        f"{to}: {plural(bundled.manifest['trials'], 'trial')} of {bundled.study.name}, {len(data):,} bytes, "
        f"sha256 {hashlib.sha256(data).hexdigest()}"
    )


def verify(
    file: Annotated[str, typer.Argument(help="A file that `topk bundle` wrote.", callback=nonblank)],
    again: Annotated[
        int, typer.Option("--replay", help="How many of the bundle's trials to train again.")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed for drawing these trials; 0 by default.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            help=f"By how much their metrics may differ, as a fraction of 1; {_TOLERANCE} by default.",
        ),
    ] = None,
    data: options.Data = None,
    trust: options.Trust = None,
    json: options.Json = False,
) -> None:
    """Compute a bundle's tables and claims again, and train some trials again. Exit code 1: something is not the same.

    Trials whose data, network or loss are code outside this package are trained only if --trust names its module.
    To check and repair a study's ledger in a store, use `topk repair`.

    Example: topk verify letters.topk --replay 3
    """
    if not again and (seed, tolerance, data, trust or None) != (None,) * 4:
        raise UserError(
            "--seed, --tolerance, --data and --trust are for trials that are trained again: give --replay N"
        )
    verification = verify_file(
        file,
        again=again,
        seed=seed or 0,
        tolerance=_TOLERANCE if tolerance is None else tolerance,
        data=data,
        trust=trust or (),
    )
    if json:
        print_json({**plain(verification), "holds": verification.holds})
    else:
        _print_verification(verification)
    raise typer.Exit(Exit.DONE if verification.holds else Exit.FAILED)


def _print_verification(verification: Verification) -> None:
    for one in verification.results:
        _print("result", one)
    for one in verification.trials:
        _print("trial", one)
    say(
        f"{verification.study}: "
        + ("everything came out the same" if verification.holds else "not everything came out the same")
    )
