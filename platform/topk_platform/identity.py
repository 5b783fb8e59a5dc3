"""What the results of an arm must have in common to be in one table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from topk_platform.specs import Arm, Study, digest

__all__ = ["Identity", "environment_of", "machine_of", "told", "with_origins"]

_ENVIRONMENT = ("machine", "torch", "losses", "optuna", "cmaes", "greenlet", "scipy")


@dataclass(frozen=True)
class Identity:
    """The code, the data and the kind of machine that an arm's results come from; an empty field matches any.

    Args:
        code_version: Hash of the code that its trials execute, see :func:`~topk_platform.code_version.code_version`.
        dataset_fingerprint: Fingerprint of the data before conditions.
        environment: Package versions and kind of machine, see :func:`~topk_platform.training.environment`. For an arm
            that searches, also the versions of its sampler's packages, because its suggestions change with them.
        origin: Code and data of the arm that its search starts from, if any, see :func:`with_origins`.
    """

    code_version: str = ""
    dataset_fingerprint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""

    def excludes(self, row: Mapping[str, Any]) -> str:
        """Return why a row of the ledger does not count, to follow "of"; empty if it counts.

        Example:
            >>> row = {"code_version": "c", "dataset_fingerprint": "f", "versions": '{"torch": "2.14.0"}'}
            >>> Identity("c", "f", {"torch": "2.15.0"}).excludes(row)
            'torch 2.14.0 in place of 2.15.0'
            >>> Identity("c").excludes(row)
            ''
        """
        if self.code_version not in ("", row["code_version"]):
            return "other code"
        if self.dataset_fingerprint not in ("", row["dataset_fingerprint"]):
            return "other data"
        versions = _versions(row["versions"] or "{}")
        if self.origin not in ("", versions.get("origin", "")):
            return "another start, whose code or data have changed"
        differing = (
            f"{name} {versions.get(name, 'unknown')} in place of {wanted}"
            for name, wanted in self.environment.items()
            if versions.get(name) != wanted
        )
        return ", ".join(differing)


def with_origins(study: Study, identities: Mapping[str, Identity]) -> dict[str, Identity]:
    """Return the arms' identities, with the code and data of the arm that an arm's search starts from, if any.

    Args:
        study: The study, which says which arm starts from which.
        identities: By arm identity, with code and data.
    """

    def origin_of(arm: Arm) -> str:
        other = study.origin(arm)
        if other is None:
            return ""
        found = identities[study.arm_id(other)]
        return digest((found.code_version, found.dataset_fingerprint, origin_of(other)))

    arms = {study.arm_id(arm): arm for arm in study.arms}
    return {i: replace(identity, origin=origin_of(arms[i])) for i, identity in identities.items()}


@lru_cache(maxsize=256)  # a ledger's rows share a few texts
def _versions(text: str) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads(text)
    return found


def environment_of(row: Mapping[str, Any]) -> str:
    """Return the environment that a ledger's row was made in, to follow "of".

    Example:
        >>> environment_of({"versions": '{"machine": "NVIDIA H200", "python": "3.12.1", "torch": "2.14.0"}'})
        'machine NVIDIA H200, torch 2.14.0'
    """
    return _environment(row["versions"] or "{}")


@lru_cache(maxsize=256)
def _environment(text: str) -> str:
    versions = _versions(text)
    return ", ".join(f"{name} {versions[name]}" for name in _ENVIRONMENT if name in versions)


def machine_of(row: Mapping[str, Any]) -> str:
    """Return the kind of machine that a ledger's row was made on: a GPU's or a processor's model, empty if unknown.

    Example:
        >>> machine_of({"versions": '{"machine": "NVIDIA H200", "torch": "2.14.0"}'})
        'NVIDIA H200'
    """
    return _versions(row["versions"] or "{}").get("machine", "")


def told(counts: Mapping[str, int]) -> str:
    """Return counts by reason in words, the most frequent first.

    Example:
        >>> told({"other code": 3, "torch 2.14.0 in place of 2.15.0": 1})
        '3 of other code; 1 of torch 2.14.0 in place of 2.15.0'
    """
    return "; ".join(f"{count} of {reason}" for reason, count in Counter(counts).most_common())
