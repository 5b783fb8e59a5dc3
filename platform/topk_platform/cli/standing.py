"""How a study stands, beside its trials: who drives it, and what is left undone and why."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_platform.records import Ledger

__all__ = ["standing"]


def standing(ledger: Ledger) -> list[str]:
    """Return the lines that tell who drives a study, and what is left undone."""
    from topk_platform.records import Undone, driven  # noqa: PLC0415

    undone, begun = Undone.read(ledger.store), ledger.store.folders("checkpoints")
    ended = _ended(ledger, {*begun, *(trial.key for trial in undone.open)})
    lines = [f"{ledger.study}: {driven(ledger.store)}"]
    if cut_off := len(set(begun) - ended):
        lines.append(f"checkpoints: {cut_off} trials have begun and go on from there")
    lines += [f"{trial} (noted {trial.when})" for trial in undone.open if trial.key not in ended]
    if undone.tracking:
        lines.append(f"MLflow is behind: {undone.tracking}; `topk sync` fills it in, or the next run")
    return lines


def _ended(ledger: Ledger, keys: Collection[str]) -> set[str]:
    """Return those of a few trials that have ended."""
    names = ", ".join(f"'{key}'" for key in keys if key.isalnum())
    found = ledger.read("trials", ["key"], where=f"key in ({names})") if names else None
    return set(found["key"].to_pylist()) if found else set()
