"""The history of adopted results: results of other code or another machine that count, and the evidence for it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topk_platform.identity import Adopted, Identity, Provenance
from topk_platform.records.storage.checked_json import read_checked, with_checksum, without_checksum
from topk_platform.records.storage.store import Store

__all__ = ["ADOPTED", "Evidence", "note_adopted", "read_adopted", "take_back"]

ADOPTED = "adopted.json"
"""The name of the file with this history, in a study's folder."""


@dataclass(frozen=True)
class Evidence:
    """Why adopted results count.

    Args:
        summary: The outcome in words.
        trials: For each trial that was trained again, its ``key``, ``arm``, ``outcome`` and ``why``.
        seed: The seed by which these trials were drawn.
        within: By how much a metric was allowed to differ, as a fraction of 1; None if every bit had to be equal.
    """

    summary: str
    trials: Sequence[Mapping[str, str]]
    seed: int
    within: float | None


def read_adopted(store: Store) -> dict[str, tuple[Adopted, ...]]:
    """Return what a study adopted and did not take back, by arm identity.

    Raises:
        StoreError: if the file is damaged.
    """
    remedy = "put back a copy of it, or delete it and adopt again"
    return read_checked(store, ADOPTED, remedy, _standing) or {}


def _standing(content: Mapping[str, Any]) -> dict[str, tuple[Adopted, ...]]:
    """Return what was adopted and not taken back, by arm identity."""
    adopted: dict[str, list[Adopted]] = defaultdict(list)
    for event in content["events"]:
        if event["event"] == "taken back":
            for arm_id in event["arms"]:
                adopted.pop(arm_id, None)
        else:
            for arm_id, arm in event["arms"].items():
                adopted[arm_id] += _adopted(arm, event["evidence"]["told"])
    return {arm_id: tuple(results) for arm_id, results in adopted.items()}


def _adopted(arm: Mapping[str, Any], evidence: str) -> list[Adopted]:
    counts_for = arm["for"]
    return [
        Adopted(
            Provenance(**was),
            counts_for["code_version"],
            counts_for["environment"],
            evidence,
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
    """Note that rows count although they do not have their arms' identities.

    Args:
        store: The study's folder, which this process holds for writing.
        names: The arms' names, by identity.
        was: The provenances of the rows, by arm identity.
        identities: The identities that the rows count for.
        evidence: Why they count.
    """
    arms = {
        arm_id: {
            "name": names[arm_id],
            "was": [dataclasses.asdict(one) for one in made],
            "for": {
                "code_version": identities[arm_id].code_version,
                "environment": identities[arm_id].bits,
            },
        }
        for arm_id, made in was.items()
    }
    facts = {"trials": [*evidence.trials], "seed": evidence.seed, "within": evidence.within}
    _add(store, {"event": "adopted", "arms": arms, "evidence": {"told": evidence.summary, **facts}})


def take_back(store: Store, arms: Iterable[str]) -> None:
    """Note that the adopted rows of some arms, given by identity, no longer count."""
    _add(store, {"event": "taken back", "arms": sorted(arms)})


def _add(store: Store, event: dict[str, Any]) -> None:
    read_adopted(store)  # a damaged file is not overwritten
    before = without_checksum(store.read(ADOPTED))["events"] if store.exists(ADOPTED) else []
    now = datetime.now(UTC).isoformat(timespec="seconds")
    store.write(ADOPTED, with_checksum({"events": [*before, {"when": now, **event}]}))
