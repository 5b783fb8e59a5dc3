"""Confirmations whose files are missing or damaged; they train again, as if they had not ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from topk_platform.identity import Identity
from topk_platform.records import (
    NEEDED,
    ArmHistory,
    Row,
    StudyRows,
    Unsound,
    damaged_artifacts,
    missing_artifacts,
    results_of,
)
from topk_platform.records.artifacts.files import Kind
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few

__all__ = ["complete_histories", "trained_again", "used"]

_NAMED = 3


def complete_histories(
    rows: StudyRows, study: Study, counted: Mapping[str, Identity], kinds: Sequence[Kind] = NEEDED
) -> dict[str, ArmHistory]:
    """Return the arms' histories without the confirmations whose files are missing or damaged; all files are read.

    Args:
        rows: The recorded rows.
        study: The study, which says how many trials and seeds there are.
        counted: Which rows count, by arm identity.
        kinds: The kinds of files that a confirmation must have.

    Raises:
        StoreError: if the store cannot be read.
    """
    histories, store = rows.histories(study, counted), rows.ledger.store
    needed = used(study, histories)
    files = [*missing_artifacts(store, needed, kinds), *damaged_artifacts(store, needed, kinds)]
    keys = {file.key for file in files}
    return {
        arm_id: replace(
            history, confirm={slot: row for slot, row in history.confirm.items() if row["key"] not in keys}
        )
        for arm_id, history in histories.items()
    }


def used(study: Study, histories: Mapping[str, ArmHistory]) -> list[Row]:
    """Return the rows of the confirmations that a study's table uses.

    Args:
        study: The study, which says how many trials and seeds there are.
        histories: The histories of its arms, by identity.
    """
    arms = results_of(study, histories).values()
    return [row for arm in arms for row in arm.confirmations().values()]


def trained_again(files: Sequence[Unsound]) -> str:
    """Return the line that says how many confirmations are trained again, and why; empty if there are none.

    Example:
        >>> trained_again([Unsound("0a1b", "ranks"), Unsound("0a1b", "guesses")])
        '1 confirmation is trained again: ranks/0a1b.parquet, guesses/0a1b.parquet are gone or damaged'
    """
    count = len({file.key for file in files})
    if not count:
        return ""
    who = "1 confirmation is" if count == 1 else f"{count} confirmations are"
    names = first_few([file.name for file in files], _NAMED)
    return f"{who} trained again: {names} {'is' if len(files) == 1 else 'are'} gone or damaged"
