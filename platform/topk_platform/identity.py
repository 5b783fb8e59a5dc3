"""What the results of an arm have to have in common to stand in one table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

__all__ = ["Identity", "environment_of", "told"]

_ENVIRONMENT = ("machine", "torch", "losses", "optuna")


@dataclass(frozen=True)
class Identity:
    """The program, the data and the machine that an arm's results come from; what is empty stands for any.

    Args:
        code_version: Of the sources, see :func:`~topk_platform.code_version.code_version`.
        dataset_fingerprint: Of the data before conditions.
        environment: The versions and the kind of machine, see :func:`~topk_platform.training.environment`; with
            Optuna's version for an arm that searches, for its suggestions change with it.
    """

    code_version: str = ""
    dataset_fingerprint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def excludes(self, row: Mapping[str, Any]) -> str:
        """Return why a ledger's row does not count, to follow "of", or nothing if it does.

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
        differing = (
            f"{name} {versions.get(name, 'unknown')} in place of {wanted}"
            for name, wanted in self.environment.items()
            if versions.get(name) != wanted
        )
        return ", ".join(differing)


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
    versions = _versions(row["versions"] or "{}")
    return ", ".join(f"{name} {versions[name]}" for name in _ENVIRONMENT if name in versions)


def told(counts: Mapping[str, int]) -> str:
    """Return how many rows there are of what, the most frequent first.

    Example:
        >>> told({"other code": 3, "torch 2.14.0 in place of 2.15.0": 1})
        '3 of other code; 1 of torch 2.14.0 in place of 2.15.0'
    """
    return "; ".join(f"{count} of {reason}" for reason, count in Counter(counts).most_common())
