"""Finding a recorded trial by its key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from topk_platform.errors import UserError
from topk_platform.records.ledger.ledger import Ledger, is_study
from topk_platform.records.storage.store import Store
from topk_platform.records.table.rows import Row
from topk_platform.specs import Trial

__all__ = ["Found", "find"]


@dataclass(frozen=True)
class Found:
    """A recorded trial: its ledger row and its epochs' rows."""

    row: Row
    epochs: list[Row]

    @property
    def trial(self) -> Trial:
        """The trial as it was planned."""
        return Trial.from_json(self.row["config"])


def find(key: str, store: str | Path = "runs") -> Found:
    """Return the trial whose key begins with ``key``, from any study of the store.

    Args:
        key: The trial's key or its first characters.
        store: Folder or URI of the results.

    Raises:
        UserError: if no trial or several match, or ``key`` cannot be a trial's.
        StoreError: if the store cannot be listed, or no trial matches and a study that cannot be read may hold it.
    """
    root = Store.open(store)
    matches, errors, where = [], list[UserError](), f"starts_with(key, '{_checked(key)}')"
    for study in root.folders():
        try:
            ledger = Ledger.open(root, study)
            matches += [(ledger, row) for row in ledger.rows(where)]
        except UserError as error:
            # A folder that is not a study, such as MLflow's artifacts, cannot hold the trial.
            errors += [error] if is_study(root, study) else []
    if errors and not matches:
        raise errors[0]
    if len(matches) != 1:
        raise UserError(
            f"key {key!r} must be the key of one trial in store {str(store)!r}, got {len(matches)} trials; "
            "`topk export STUDY --format csv --to trials.csv` lists a study's trials with their keys"
        )
    ledger, row = matches[0]
    return Found(row, ledger.read("epochs", where=f"key = '{row['key']}'").to_pylist())


def _checked(key: str) -> str:
    if not key.isalnum():
        raise UserError(f"key must be a trial's key or its first letters, got {key!r}")
    return key
