"""Commands that repair a damaged study and bring MLflow up to date."""

from __future__ import annotations

from topk_platform.cli.consoles import say
from topk_platform.cli.options import (
    MlflowOption,
    RecordedArgument,
    SmokeOption,
    StoreOption,
    recorded_name,
)
from topk_platform.cli.studies import known_studies, requested_study
from topk_platform.records import Extras
from topk_platform.records import repair as repair_study
from topk_platform.records import sync as sync_study
from topk_platform.running.driver.recording import extras_of, report_wanted

__all__ = ["repair", "sync"]


def repair(
    study: RecordedArgument,
    store: StoreOption = "runs",
    smoke: SmokeOption = False,
) -> None:
    """Read every file of a study's records, and repair damaged ones; the next `topk run` trains lost trials again.

    The damaged table is kept in the folder `damaged` of the study, and lost files are named. To check a bundle, use
    `topk verify`.
    """
    repaired = repair_study(recorded_name(study, smoke), store)
    for name in repaired.damaged:
        say(f"set aside: {name} is now in the folder damaged")
    for name in repaired.missing:
        say(f"missing: {name}")
    for name in repaired.made:
        say(f"made anew: {name}")
    if repaired.kept:
        say(f"a new table holds all sound rows; the old table is {repaired.kept}")
    if repaired.trials:
        say(f"{repaired.trials} trials whose epochs were lost will run again as well")
    if repaired.is_nothing:
        say("nothing is damaged")


def sync(
    study: RecordedArgument,
    store: StoreOption = "runs",
    mlflow: MlflowOption = None,
    smoke: SmokeOption = False,
) -> None:
    """Bring MLflow up to date with a study's ledger, later or from another machine.

    For a study that `topk list` shows, MLflow also gets the report, plots and graphs; other studies bring them with
    their next run.
    """
    name = recorded_name(study, smoke)
    sync_study(name, store=store, mlflow_uri=mlflow, extras=_extras(study, store, smoke))
    say(f"MLflow has all of {name}")


def _extras(name: str, store: str, smoke: bool) -> Extras | None:
    """Return the report, plots and graphs of a study for MLflow; None if the study's definition is unknown."""
    if not report_wanted() or name not in known_studies():
        return None
    return extras_of(requested_study(name, smoke), store)
