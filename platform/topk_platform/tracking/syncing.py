"""The update of trackers from a ledger, later or from another machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from topk_platform.errors import UserError
from topk_platform.records.ledger.absent import nothing_of
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.notes.undone import Undone
from topk_platform.records.storage.checked_json import damaged
from topk_platform.records.storage.store import Store
from topk_platform.records.table.mark import command_of
from topk_platform.tracking.tracker import Extras
from topk_platform.tracking.trackers import Track, Tracking
from topk_platform.tracking.trials import ARMS, study_result

__all__ = ["sync"]

_BEHIND = re.compile(r"(?:^|; )([^:;]+) is behind: ")
"""The trackers that a :class:`~topk_platform.tracking.TrackingError` names."""


def sync(
    study: str,
    *,
    store: str | Path = "runs",
    track: Track | None = None,
    mlflow_uri: str | None = None,
    track_search: str = "all",
    track_networks: bool = True,
    extras: Callable[[], Extras] | None = None,
) -> list[str]:
    """Write a study's ended trials and tables to trackers that lack them; train nothing.

    Args:
        study: The study's name.
        store: Folder or URI of the results.
        track: The trackers; by default MLflow.
        mlflow_uri: MLflow's tracking URI; by default a sqlite database in a local store.
        track_search: Which search trials the trackers show, ``all``, ``best`` or ``none``. The others are removed.
        track_networks: Whether confirmations come with their networks.
        extras: A function that makes the report, plots and graphs; without it, the trackers keep those that they have.

    Returns:
        The names of the trackers.

    Raises:
        UserError: if the store holds nothing of the study, its tables are damaged, or a tracker cannot be written.
    """
    opened = Store.open(store)
    ledger = Ledger.open(opened, study)
    if not ledger.exists:
        raise nothing_of(store, study)
    tracking = Tracking.of(
        opened, track or "mlflow", mlflow_uri=mlflow_uri, search=track_search, networks=track_networks
    )
    if not tracking.trackers:
        raise UserError("track must name a tracker to fill, got none")
    tracking.check(opened, study)
    tables = _tables(ledger.store)
    feeds = tracking.open(opened, ledger)
    feeds.put_files(tables, extras)
    if (error := feeds.close()) is not None:
        raise UserError(f"not everything could be written: {error}") from error
    titles = [tracker.title for tracker in tracking.trackers]
    undone = Undone.read(ledger.store)
    if {*_BEHIND.findall(undone.tracking)} <= {*titles}:
        replace(undone, tracking="").note(ledger.store)
    return titles


def _tables(store: Store) -> dict[str, str]:
    """Return the text files in a study's folder of tables, by name.

    Raises:
        DamagedError: if the file of the arms' results is damaged.
    """
    texts, names = {}, [name for name in store.names("tables") if not name.endswith(".parquet")]
    for name in names:
        with suppress(UnicodeDecodeError):  # somebody's own file, such as a picture
            texts[name] = store.read(f"tables/{name}").decode()
    try:
        if ARMS in names:
            study_result({ARMS: texts[ARMS]})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(store, f"tables/{ARMS}", f"`{command_of(store, 'run')}` makes it again") from error
    return texts
