"""Commands that repair a damaged study and bring MLflow up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import say
from topk_platform.cli.options import nonblank, recorded_name
from topk_platform.cli.studies import known_studies, requested_study
from topk_platform.records.merging import merge as merge_stores
from topk_platform.records.repairing import repair as repair_study
from topk_platform.references import is_reference
from topk_platform.running.recording import drawing
from topk_platform.specs.checks import plural
from topk_platform.tracking.feed import Pictures
from topk_platform.tracking.feed import sync as sync_study

__all__ = ["merge", "repair", "sync"]


def repair(
    study: options.Recorded,
    store: options.Store = "runs",
    smoke: options.Smoke = False,
) -> None:
    """Read every file of a study's records, and repair damaged ones; the next `topk run` trains lost trials again.

    The damaged table is kept in the folder `damaged` of the study, and lost files are named.

    Example: topk repair letters_quick
    """
    repaired = repair_study(recorded_name(study, smoke), store)
    for name in repaired.damaged:
        say(f"set aside: {name} is now in the folder damaged")
    for name in repaired.missing:
        say(f"missing: {name}")
    for name in repaired.made:
        say(f"made again: {name}")
    if repaired.kept:
        say(
            f"a new table has the {plural(repaired.sound, 'trial')} that could be read; all others run again; "
            f"the old table is {repaired.kept}"
        )
    if repaired.trials:
        say(f"{plural(repaired.trials, 'trial')} whose epochs were lost will run again as well")
    if repaired.is_nothing:
        say("nothing is damaged")


def merge(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A store, such as that of a cluster.", callback=nonblank)
    ],
    store: options.Store = "runs",
) -> None:
    """Copy the trials that a store lacks from another one, with their files, so that several machines share a study.

    Each machine runs a part of the study, such as with --only. The code, the data and the kind of machine must be the
    same. Trials that both stores hold stay as they are, and FROM is not changed.

    Example: topk merge /mnt/laptop/runs --store runs
    """
    for name, trials in merge_stores(source, store).items():
        say(f"{name}: {plural(trials, 'trial')} copied from {source}")


def sync(
    study: options.Recorded,
    store: options.Store = "runs",
    mlflow: options.Mlflow = None,
    smoke: options.Smoke = False,
) -> None:
    """Bring MLflow up to date with a study's ledger, later or from another machine.

    For a study that `topk list` shows, MLflow also gets the report and the plots; other studies bring them with their
    next run.

    Example: topk sync letters_quick --mlflow http://127.0.0.1:5000
    """
    name = recorded_name(study, smoke)
    sync_study(name, store=store, mlflow_uri=mlflow, pictures=_pictures(study, store, smoke))
    say(f"MLflow has all of {name}")


def _pictures(name: str, store: str, smoke: bool) -> Pictures | None:
    """Return a function that makes a study's report and plots.

    None if reports are switched off, or if the name does not lead to the study's definition.
    """
    known = is_reference(name) or name in known_studies()
    return drawing(requested_study(name, smoke), store) if known else None
