"""Commands that repair a damaged ledger, and bring trackers up to date."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from topk_platform.cli.consoles import say
from topk_platform.cli.options import (
    MlflowOption,
    RecordedArgument,
    SmokeOption,
    StoreOption,
    TrackNetworksOption,
    TrackOption,
    TrackSearchOption,
    recorded_name,
)
from topk_platform.cli.studies import known_studies, wanted_study

if TYPE_CHECKING:
    from topk_platform.tracking import Extras

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
    from topk_platform.records import repair as repair_study  # noqa: PLC0415

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
    track: TrackOption = None,
    track_search: TrackSearchOption = "all",
    track_networks: TrackNetworksOption = True,
    smoke: SmokeOption = False,
) -> None:
    """Bring trackers, by default MLflow, up to date with a study's ledger, later or from elsewhere.

    For a study that `topk list` shows, MLflow gets the report, plots and graphs too; for others the study's next run
    brings them.
    """
    from topk_platform.tracking import sync as sync_study  # noqa: PLC0415

    name = recorded_name(study, smoke)
    titles = sync_study(
        name,
        store=store,
        track=track,
        mlflow_uri=mlflow,
        track_search=track_search,
        track_networks=track_networks,
        extras=_extras(study, store, smoke),
    )
    for title in titles:
        say(f"{title} has all of {name}")


def _extras(name: str, store: str, smoke: bool) -> Callable[[], Extras] | None:
    """Return what makes the report and more of a study; None if the study's definition is not found by its name."""
    from topk_platform.running.driver.recording import draws_report, make_extras  # noqa: PLC0415 - pyarrow and numpy

    if not draws_report() or name not in known_studies():
        return None
    return partial(make_extras, wanted_study(name, smoke), store)
