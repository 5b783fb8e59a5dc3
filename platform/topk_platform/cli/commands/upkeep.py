"""Commands that repair a damaged ledger, and bring MLflow up to date."""

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
    """Read every file of a study's records; of damaged ones keep what is sound, and let the lost trials run again.

    The damaged table is kept whole, in the folder `damaged` of the study; what was lost is named.
    Whether a bundle's results can be computed again is what `topk verify` tells.
    """
    found = repair_study(recorded_name(study, smoke), store)
    for name in found.damaged:
        say(f"set aside: {name} is now in the folder damaged")
    for name in found.missing:
        say(f"missing: {name}")
    for name in found.made:
        say(f"made anew: {name}")
    if found.kept:
        say(f"a new table holds all that is sound; the old one is {found.kept}")
    if found.trials:
        say(f"{found.trials} trials whose epochs were lost run again as well")
    if found.is_nothing:
        say("nothing is damaged")


def sync(
    study: RecordedArgument,
    store: StoreOption = "runs",
    mlflow: MlflowOption = None,
    smoke: SmokeOption = False,
) -> None:
    """Bring MLflow up to date with a study's ledger, later or from elsewhere.

    For a study that `topk list` shows, MLflow gets the report, plots and graphs too; for others the study's next run
    brings them.
    """
    name = recorded_name(study, smoke)
    sync_study(name, store=store, mlflow_uri=mlflow, extras=_extras(study, store, smoke))
    say(f"MLflow has all of {name}")


def _extras(name: str, store: str, smoke: bool) -> Extras | None:
    """Return what a finished study adds to MLflow; None if the study's definition is not found by its name."""
    if not report_wanted() or name not in known_studies():
        return None
    return extras_of(requested_study(name, smoke), store)
