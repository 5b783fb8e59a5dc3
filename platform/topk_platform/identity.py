"""The code, data and machine that the results of an arm must have in common to be in one table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

__all__ = ["BITS", "CHOOSER", "Identity", "counts_in_words", "environment_of"]

BITS = ("machine", "torch", "losses")
"""What decides the last bits of a result, besides its code."""

CHOOSER = "optuna"
"""The package that chooses the values of trials.

Its version changes no trial's result, so a search also uses trials that were made with other versions.
"""


@dataclass(frozen=True)
class Identity:
    """The code, the data and the kind of machine that an arm's results come from; an empty field matches any.

    Args:
        code_version: The components that its trials use with their versions, see
            :func:`~topk_platform.versions.version_of`.
        dataset_fingerprint: Fingerprint of the data before conditions.
        environment: Package versions and kind of machine, see :func:`~topk_platform.training.environment`. For an arm
            that searches, also Optuna's version; rows with another version of it still count.
    """

    code_version: str = ""
    dataset_fingerprint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def bits(self) -> dict[str, str]:
        """The environment without the package that chooses the values of trials."""
        return {name: value for name, value in self.environment.items() if name != CHOOSER}

    def excludes(self, row: Mapping[str, Any]) -> str | None:
        """Return why a row of the ledger does not count, to follow the word "of"; None if it counts.

        Example:
            >>> row = {"code_version": "c", "dataset_fingerprint": "f", "versions": '{"torch": "2.14.0"}'}
            >>> Identity("c", "f", {"torch": "2.15.0"}).excludes(row)
            'torch 2.14.0 in place of 2.15.0'
            >>> Identity("c").excludes(row) is None
            True
        """
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
        return ", ".join(differing) or None


@lru_cache(maxsize=256)  # a ledger's rows share a few texts
def _versions(text: str) -> Mapping[str, str]:
    versions: Mapping[str, str] = json.loads(text)
    return versions


def environment_of(row: Mapping[str, Any], names: tuple[str, ...] = (*BITS, CHOOSER)) -> str:
    """Return the environment in which a row was made, to follow the word "of".

    Args:
        row: The row.
        names: What to name: :data:`BITS` decide the last bits, :data:`CHOOSER` the values of a search's trial.

    Example:
        >>> row = {"versions": '{"machine": "NVIDIA H200", "optuna": "5.0.0", "python": "3.12.1", "torch": "2.14.0"}'}
        >>> environment_of(row), environment_of(row, (CHOOSER,))
        ('machine NVIDIA H200, torch 2.14.0, optuna 5.0.0', 'optuna 5.0.0')
    """
    return _environment(row["versions"] or "{}", names)


@lru_cache(maxsize=256)
def _environment(text: str, names: tuple[str, ...]) -> str:
    versions = _versions(text)
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions)


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Return counts by reason in words, the most frequent first.

    Example:
        >>> counts_in_words({"other code": 3, "torch 2.14.0 in place of 2.15.0": 1})
        '3 of other code; 1 of torch 2.14.0 in place of 2.15.0'
    """
    return "; ".join(f"{count} of {reason}" for reason, count in Counter(counts).most_common())
