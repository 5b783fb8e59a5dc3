"""Results of other code or another machine that were adopted: a history in the study's folder, with the evidence."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topk_platform.errors import StoreError
from topk_platform.identity import Adopted, Identity, Provenance
from topk_platform.records.storage.store import Store

__all__ = ["ADOPTED", "Evidence", "adopted_in", "note_adopted", "read_adopted", "take_back"]

ADOPTED = "adopted.json"
"""The name of the file in a study's folder."""


@dataclass(frozen=True)
class Evidence:
    """What adopted results rest on.

    Args:
        told: The outcome in words.
        trials: Of each trial that was trained again its ``key``, ``arm``, ``outcome`` and ``why``.
        seed: The seed of the draw.
        within: By how much a metric could differ; None: not by a bit.
    """

    told: str
    trials: Sequence[Mapping[str, str]]
    seed: int
    within: float | None


def read_adopted(store: Store) -> dict[str, tuple[Adopted, ...]]:
    """Return what was adopted and not taken back, by arm identity.

    Raises:
        StoreError: if the file is damaged.
    """
    if not store.exists(ADOPTED):
        return {}
    try:
        return adopted_in(store.read(ADOPTED))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"store {store.uri!r}: {ADOPTED} is damaged: put back a copy of it, or delete it and adopt again"
        ) from error


def adopted_in(content: bytes) -> dict[str, tuple[Adopted, ...]]:
    """Return what a file's content says that was adopted and not taken back, by arm identity."""
    found: dict[str, list[Adopted]] = defaultdict(list)
    for event in json.loads(content):
        if event["event"] == "taken back":
            for arm_id in event["arms"]:
                found.pop(arm_id, None)
        else:
            for arm_id, arm in event["arms"].items():
                found[arm_id] += _adopted(arm, event["evidence"]["told"])
    return {arm_id: tuple(adopted) for arm_id, adopted in found.items()}


def _adopted(arm: Mapping[str, Any], told: str) -> list[Adopted]:
    counts_for = arm["for"]
    return [
        Adopted(
            Provenance(**was),
            counts_for["code_version"],
            counts_for["environment"],
            counts_for["origin"],
            told,
        )
        for was in arm["was"]
    ]


def note_adopted(
    store: Store,
    names: Mapping[str, str],
    was: Mapping[str, Iterable[Provenance]],
    identities: Mapping[str, Identity],
    evidence: Evidence,
) -> None:
    """Note that rows count beside those of their arms' identities.

    Args:
        store: The study's folder, which this process holds for writing.
        names: Of the arms, by identity.
        was: What made the rows, by arm identity.
        identities: What they count for.
        evidence: What that rests on.
    """
    arms = {
        arm_id: {
            "name": names[arm_id],
            "was": [dataclasses.asdict(one) for one in made],
            "for": {
                "code_version": identities[arm_id].code_version,
                "environment": identities[arm_id].bits,
                "origin": identities[arm_id].origin,
            },
        }
        for arm_id, made in was.items()
    }
    _add(store, {"event": "adopted", "arms": arms, "evidence": dataclasses.asdict(evidence)})


def take_back(store: Store, arms: Iterable[str]) -> None:
    """Note that what was adopted of some arms, given by identity, counts no more."""
    _add(store, {"event": "taken back", "arms": sorted(arms)})


def _add(store: Store, event: dict[str, Any]) -> None:
    read_adopted(store)  # what is damaged is not written over
    before = json.loads(store.read(ADOPTED)) if store.exists(ADOPTED) else []
    now = datetime.now(UTC).isoformat(timespec="seconds")
    store.write(ADOPTED, json.dumps([*before, {"when": now, **event}], indent=1).encode())
