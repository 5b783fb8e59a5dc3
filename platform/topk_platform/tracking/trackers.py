"""The trackers of a run: selected by name or given as objects, and filled together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import cast, get_args

from topk_platform.errors import UserError, masked, reason
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.specs import TrialRecord
from topk_platform.specs.checks import check_place
from topk_platform.tracking.feed import Feed
from topk_platform.tracking.tracker import Extras, TrackedStudy, Tracker
from topk_platform.tracking.trials import SearchTrials, study_result

__all__ = ["GROUP", "OWN", "Feeds", "Track", "Tracking", "TrackingError", "known_trackers", "make_tracker"]

GROUP = "topk.trackers"
"""The entry point group in which packages name their trackers."""

OWN = {
    "mlflow": "topk_platform.tracking.mlflow.tracker:MlflowTracker",
    "tensorboard": "topk_platform.tracking.tensorboard:TensorboardTracker",
    "wandb": "topk_platform.tracking.wandb:WandbTracker",
}
"""The trackers of this package. They are entry points too; this table makes them available without an installation."""

Track = str | Tracker | Sequence[str | Tracker]
"""Trackers by name, by name and location (``"tensorboard=logs"``), or as objects; ``"none"`` for none."""


class TrackingError(Exception):
    """Trackers are not up to date; the message names each of them with the reason."""


def known_trackers() -> list[str]:
    """Return the names of all trackers, those of installed packages included."""
    return sorted({*OWN, *(entry.name for entry in entry_points(group=GROUP))})


def make_tracker(text: str) -> Tracker:
    """Return a tracker by its name.

    Args:
        text: ``NAME`` or ``NAME=LOCATION``.

    Raises:
        UserError: if no package has a tracker of this name, or it cannot be imported.
    """
    name, given, location = text.partition("=")
    if given:
        check_place(f"the location of track {name}", location)
    entry = EntryPoint(name, OWN[name], GROUP) if name in OWN else _entry_point(name)
    try:
        make = entry.load()
    except ImportError as error:
        raise UserError(f"tracker {name!r} cannot be imported: {reason(error)}") from error
    made = make(location or None)
    if not isinstance(made, Tracker):
        raise UserError(
            f"tracker {name!r} must be a subclass of topk_platform.tracking.Tracker, got {entry.value}"
        )
    return made


def _entry_point(name: str) -> EntryPoint:
    for entry in entry_points(group=GROUP, name=name):
        return entry
    raise UserError(f"track must be none or one of {', '.join(known_trackers())}, got {name!r}")


def _items(track: Track, mlflow_uri: str | None) -> list[str | Tracker]:
    """Return the trackers that a user named; MLflow has its URI as location."""
    items = [track] if isinstance(track, (str, Tracker)) else [*track]
    if items == ["none"]:
        items = []
    if "none" in items:
        raise UserError("track must be none alone, or trackers without none, got none beside others")
    if mlflow_uri is not None:
        if "mlflow" not in items:
            raise UserError(
                "mlflow is given but no --track is mlflow without a location: add --track mlflow, or leave --mlflow out"
            )
        items[items.index("mlflow")] = f"mlflow={mlflow_uri}"
    for item in items:
        if items.count(item) > 1:
            raise UserError(f"track must name each tracker once, got {masked(str(item))!r} twice")
    return items


@dataclass(frozen=True)
class Tracking:
    """The trackers of a run, and what they show.

    Args:
        trackers: The trackers.
        search: Which search trials they show.
        networks: Whether confirmations come with their networks.
        mlflow_uri: MLflow's tracking URI as the user gave it, by either option.
    """

    trackers: tuple[Tracker, ...] = ()
    search: SearchTrials = "all"
    networks: bool = True
    mlflow_uri: str | None = None

    @classmethod
    def of(
        cls,
        store: Store,
        track: Track | None = None,
        *,
        mlflow_uri: str | None = None,
        search: str = "all",
        networks: bool = True,
    ) -> Tracking:
        """Return the trackers that a user asked for.

        Args:
            store: The store.
            track: The trackers; by default MLflow, unless the store is not a folder and there is no ``mlflow_uri``.
            mlflow_uri: MLflow's tracking URI.
            search: Which search trials they show: ``all``, ``best`` or ``none``.
            networks: Whether confirmations come with their networks.

        Raises:
            UserError: if a tracker is unknown or an argument is invalid.

        Example:
            >>> Tracking.of(Store.open("s3://bucket/runs")).trackers
            ()
            >>> [tracker.title for tracker in Tracking.of(Store.open("runs"), ("mlflow", "tensorboard")).trackers]
            ['MLflow', 'TensorBoard']
        """
        if search not in get_args(SearchTrials):
            raise UserError(f"track_search must be all, best or none, got {search!r}")
        if track is None:
            track = "mlflow" if mlflow_uri is not None or store.local is not None else "none"
        items = _items(track, mlflow_uri)
        if not items and search != "all":
            raise UserError(
                f"track_search must be left out where there is no tracker, got {search!r}: add --track NAME"
            )
        made = tuple(make_tracker(item) if isinstance(item, str) else item for item in items)
        texts = [item.partition("=") for item in items if isinstance(item, str)]
        uris = [location for name, _, location in texts if name == "mlflow" and location]
        return cls(made, cast(SearchTrials, search), networks, next(iter(uris), None))

    def check(self, store: Store, name: str) -> None:
        """Raise ``UserError`` if one of the trackers cannot be used.

        Args:
            store: The store.
            name: The study's name.
        """
        for tracker in self.trackers:
            tracker.check(TrackedStudy(name, "", store.local))

    def open(self, store: Store, ledger: Ledger, stale: Collection[str] = ()) -> Feeds:
        """Return the started feeds of the trackers.

        Args:
            store: The store.
            ledger: The study's ledger in it.
            stale: The keys of trials that are written again.
        """
        study = TrackedStudy(ledger.study, ledger.identity, store.local)
        feeds = [
            Feed(tracker, study, ledger, self.search, networks=self.networks, stale=stale)
            for tracker in self.trackers
        ]
        for feed in feeds:
            feed.start()
        return Feeds(feeds)


@dataclass(frozen=True)
class Feeds:
    """The feeds of all trackers of a run.

    Args:
        feeds: The feeds.
    """

    feeds: Sequence[Feed] = ()

    def put(self, record: TrialRecord) -> None:
        """Hand over an ended trial that is in the ledger, without waiting for the trackers."""
        for feed in self.feeds:
            feed.put(record)

    def put_files(self, files: Mapping[str, str], extras: Callable[[], Extras] | None = None) -> None:
        """Hand over the study's tables, after all trials, without waiting for the trackers.

        Args:
            files: The text files of the tables, by name.
            extras: A function that makes the report, the plots and graphs.
        """
        result = study_result(files, extras)
        for feed in self.feeds:
            feed.put_result(result)

    def close(self, patience: float | None = None) -> TrackingError | None:
        """Wait until all is written, or until one more try has failed; return an error that names what failed, or None.

        Args:
            patience: How many seconds to wait while a tracker makes no progress; a minute by default.
        """
        closed = [(feed, feed.close() if patience is None else feed.close(patience)) for feed in self.feeds]
        lines = [
            f"{feed.tracker.title} is behind: {reason(error)}" for feed, error in closed if error is not None
        ]
        return TrackingError("; ".join(lines)) if lines else None
