"""Storing the files of a confirmation, all of them before its record is returned."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Generator, Iterator

from topk_platform.errors import RefusingStoreError, StoreError, reason
from topk_platform.training.setup import Learner
from topk_platform.training.trials.group import Group, Heartbeat, Keeper, Network
from topk_platform.training.trials.pace import FIRST_SECONDS

__all__ = ["store_files"]

_PERMANENT = (FileExistsError, NotADirectoryError, IsADirectoryError)  # something else has the file's name


def store_files(group: Group, learner: Learner, keeper: Keeper) -> Generator[Heartbeat, None, None]:
    """Store the ranks and guesses of all confirmations, then the networks, and note what is stored.

    If the store refuses, storing is tried again after growing pauses. All files of the group share the keeper's pauses.
    A confirmation has no result without its ranks and guesses. Without its network it has a result, and the record says
    why the network is missing.

    Raises:
        RefusingStoreError: if ranks or guesses cannot be stored.
    """
    pauses = iter(keeper.pauses)
    yield group.heartbeat(FIRST_SECONDS)
    for network in group.networks:
        yield from _store_ranks_and_guesses(group, network, keeper, pauses)
    for network in group.networks:
        yield from _store_network(group, learner, network, keeper, pauses)


def _store_ranks_and_guesses(
    group: Group, network: Network, keeper: Keeper, pauses: Iterator[float]
) -> Generator[Heartbeat, None, None]:
    """Store the ranks and guesses of a network."""
    trial = group.trials[network.trial_number]
    stored = group.stored[trial.key]

    def ranks() -> str:
        return keeper.save_ranks(trial, network.ranks, network.images, network.cluster, network.clusters)

    def guesses() -> str:
        return keeper.save_guesses(trial, network.guesses, network.images)

    try:
        stored.artifacts["ranks"] = yield from _with_retries(group, ranks, pauses)
        stored.artifacts["guesses"] = yield from _with_retries(group, guesses, pauses)
    except Exception as error:
        raise RefusingStoreError(
            f"its ranks and guesses cannot be stored: {reason(error)} (on {platform.node()})"
        ) from error


def _store_network(
    group: Group, learner: Learner, network: Network, keeper: Keeper, pauses: Iterator[float]
) -> Generator[Heartbeat, None, None]:
    """Store a network, or note why it cannot be stored."""
    trial = group.trials[network.trial_number]
    stored = group.stored[trial.key]

    def model() -> str:
        built = learner.network(network.trial_number, network.weights)
        return keeper.save_model(trial, built, learner.inputs(network.trial_number))

    try:
        stored.artifacts["network"] = yield from _with_retries(group, model, pauses)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's network may raise anything; the record holds it
        stored.missing["network"] = f"{type(error).__name__}: {reason(error)}"


def _with_retries(
    group: Group, save: Callable[[], str], pauses: Iterator[float]
) -> Generator[Heartbeat, None, str]:
    """Call ``save`` and return its result; if the store refuses, try again after each pause that is left."""
    while True:
        try:
            return save()
        except (StoreError, OSError) as error:
            if _is_permanent(error) or (pause := next(pauses, None)) is None:
                raise
        time.sleep(pause)
        yield group.heartbeat(FIRST_SECONDS)


def _is_permanent(error: BaseException) -> bool:
    """Return whether waiting cannot help, because something else has the file's name."""
    return isinstance(error, _PERMANENT) or isinstance(error.__cause__, _PERMANENT)
