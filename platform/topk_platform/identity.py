"""The code, data and machine that the results of an arm must have in common to be in one table."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

__all__ = [
    "CHOOSER",
    "Adopted",
    "Identity",
    "Provenance",
    "bits_of",
    "chooser_of",
    "counts_in_words",
    "environment_of",
    "machine_of",
    "provenance_of",
]

_BITS = ("machine", "torch", "losses")
CHOOSER = "optuna"
"""The package that chooses the values of trials.

Its version changes no trial's result, so a search also uses trials that were made with other versions.
"""


@dataclass(frozen=True)
class Provenance:
    """The code, data and environment that made a row of the ledger.

    Args:
        code_version: See :class:`Identity`.
        dataset_fingerprint: Likewise.
        environment: The part of the environment that decides the last bits, in words.
    """

    code_version: str
    dataset_fingerprint: str
    environment: str


@dataclass(frozen=True)
class Adopted:
    """Rows that count besides an identity's own rows, because some of them were trained again with its code.

    Args:
        was: The provenance of the rows.
        code_version: The code version of the identity for which they count.
        environment: Likewise.
        evidence: The evidence that the results are the same, in words.
    """

    was: Provenance
    code_version: str
    environment: Mapping[str, str]
    evidence: str

    def counts_for(self, identity: Identity) -> bool:
        """Return whether the rows count for an identity."""
        environment = identity.bits
        return self.code_version == identity.code_version and environment in ({}, self.environment)


@dataclass(frozen=True)
class Identity:
    """The code, the data and the kind of machine that an arm's results come from; an empty field matches any.

    Args:
        code_version: Hash of the code that its trials execute, see :func:`~topk_platform.code_version.code_version`.
        dataset_fingerprint: Fingerprint of the data before conditions.
        environment: Package versions and kind of machine, see :func:`~topk_platform.training.environment`. For an arm
            that searches, also Optuna's version; rows with another version of it still count.
        adopted: Rows of other code or another environment that count nevertheless.
    """

    code_version: str = ""
    dataset_fingerprint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    adopted: tuple[Adopted, ...] = ()

    @property
    def bits(self) -> dict[str, str]:
        """The environment without the package that chooses the values of trials."""
        return {name: value for name, value in self.environment.items() if name != CHOOSER}

    @property
    def own(self) -> Identity:
        """The identity without adopted rows."""
        return replace(self, adopted=())

    def to_data(self) -> dict[str, Any]:
        """Return its own fields as JSON-ready data; adopted rows are stored elsewhere."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "adopted"}

    def adopts(self, row: Mapping[str, Any]) -> Adopted | None:
        """Return the adoption by which a row counts; None if it counts without one, or does not count.

        Args:
            row: A row of the ledger.
        """
        adopted = [one for one in self.adopted if one.counts_for(self)]
        if not adopted or not self.own.excludes(row):
            return None
        was = provenance_of(row)
        if self.dataset_fingerprint not in ("", was.dataset_fingerprint):
            return None
        return next((one for one in adopted if one.was == was), None)

    def excludes(self, row: Mapping[str, Any]) -> str:
        """Return why a row of the ledger does not count, to follow the word "of"; empty if it counts.

        Example:
            >>> row = {"code_version": "c", "dataset_fingerprint": "f", "versions": '{"torch": "2.14.0"}'}
            >>> Identity("c", "f", {"torch": "2.15.0"}).excludes(row)
            'torch 2.14.0 in place of 2.15.0'
            >>> Identity("c").excludes(row)
            ''
        """
        if self.adopted and self.adopts(row) is not None:
            return ""
        if self.code_version not in ("", row["code_version"]):
            return "other code"
        if self.dataset_fingerprint not in ("", row["dataset_fingerprint"]):
            return "other data"
        versions = _versions(row["versions"] or "{}")
        differing = (
            f"{name} {versions.get(name, 'unknown')} in place of {needed}"
            for name, needed in self.bits.items()
            if versions.get(name) != needed
        )
        return ", ".join(differing)


@lru_cache(maxsize=256)  # a ledger's rows share a few texts
def _versions(text: str) -> Mapping[str, str]:
    versions: Mapping[str, str] = json.loads(text)
    return versions


def provenance_of(row: Mapping[str, Any]) -> Provenance:
    """Return the provenance of a ledger's row.

    Example:
        >>> row = {"code_version": "c", "dataset_fingerprint": "f", "versions": '{"torch": "2.14.0", "optuna": "5"}'}
        >>> provenance_of(row)
        Provenance(code_version='c', dataset_fingerprint='f', environment='torch 2.14.0')
    """
    return Provenance(row["code_version"], row["dataset_fingerprint"], bits_of(row))


def chooser_of(row: Mapping[str, Any]) -> str:
    """Return the package that chose the values of a search's trial; empty if none did.

    Example:
        >>> chooser_of({"versions": '{"torch": "2.14.0", "optuna": "5.0.0"}'})
        'optuna 5.0.0'
    """
    return _environment(row["versions"] or "{}", (CHOOSER,))


def bits_of(row: Mapping[str, Any]) -> str:
    """Return the part of the environment that decided the last bits of a row, to follow the word "of".

    Example:
        >>> bits_of({"versions": '{"machine": "NVIDIA H200", "optuna": "5.0.0", "torch": "2.14.0"}'})
        'machine NVIDIA H200, torch 2.14.0'
    """
    return _environment(row["versions"] or "{}", _BITS)


def environment_of(row: Mapping[str, Any]) -> str:
    """Return the environment in which a row was made, to follow the word "of".

    Example:
        >>> environment_of({"versions": '{"machine": "NVIDIA H200", "python": "3.12.1", "torch": "2.14.0"}'})
        'machine NVIDIA H200, torch 2.14.0'
    """
    return _environment(row["versions"] or "{}", (*_BITS, CHOOSER))


@lru_cache(maxsize=256)
def _environment(text: str, names: Iterable[str]) -> str:
    versions = _versions(text)
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions)


def machine_of(row: Mapping[str, Any]) -> str:
    """Return the kind of machine that a ledger's row was made on: a GPU's or a processor's model, empty if unknown.

    Example:
        >>> machine_of({"versions": '{"machine": "NVIDIA H200", "torch": "2.14.0"}'})
        'NVIDIA H200'
    """
    return _versions(row["versions"] or "{}").get("machine", "")


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Return counts by reason in words, the most frequent first.

    Example:
        >>> counts_in_words({"other code": 3, "torch 2.14.0 in place of 2.15.0": 1})
        '3 of other code; 1 of torch 2.14.0 in place of 2.15.0'
    """
    return "; ".join(f"{count} of {reason}" for reason, count in Counter(counts).most_common())
