"""Two stores of one study become one, such as those of a laptop and of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from topk_platform.errors import StoreError, UserError
from topk_platform.identity import Identity
from topk_platform.records.files import KINDS, artifact_name, read_artifact
from topk_platform.records.ledger import Ledger, is_study
from topk_platform.records.recorded import LastRun, note_plan, read_plan
from topk_platform.records.rows import Row
from topk_platform.records.run_notes import note_data, read_data
from topk_platform.records.storage.lease import check_undriven
from topk_platform.records.storage.opened import Opened
from topk_platform.records.storage.store import Store

__all__ = ["merge"]

_AT_ONCE = 500  # trials of one commit, which bounds its memory


def merge(source: str | Path, store: str | Path) -> dict[str, int]:
    """Copy the trials that a store lacks from another one, with their epochs and files.

    What the trials of an arm depend on must be the same in both stores: the code, the data and the machine. Trials that
    both stores hold stay as they are.

    Args:
        source: Folder or URI of the results to copy; it is not changed.
        store: Folder or URI of the results that get them.

    Returns:
        The number of copied trials of each study.

    Raises:
        StoreError: if the source has no results, a run still writes one of the stores, or a store cannot be used.
        UserError: if the results of an arm come from other code, data or machines.
    """
    theirs = Store.open(source)
    studies = [name for name in theirs.folders() if is_study(theirs, name)]
    if not studies:
        raise StoreError(f"store {str(source)!r} holds no study")
    pairs = [(Ledger.open(theirs, name), Ledger.open(Store.open(store), name)) for name in studies]
    for pair in pairs:
        _identities(*pair)
    return {ours.study: _merged(theirs, ours) for theirs, ours in pairs}


def _merged(theirs: Ledger, ours: Ledger) -> int:
    check_undriven(theirs.store)
    last = read_plan(theirs.store)
    if last is None:
        raise StoreError(f"store {theirs.store.uri!r} does not say what its last run was asked for")
    with ours.writing(last.study) as writer:
        held = set(ours.keys())
        new = [row for row in theirs.rows(without=("config",)) if row["key"] not in held]
        for row in new:
            _copy_files(theirs.store, ours.store, row)
        for start in range(0, len(new), _AT_ONCE):
            keys = ", ".join(f"'{row['key']}'" for row in new[start : start + _AT_ONCE])
            writer.table.append(Opened.of(theirs.store).query(f"select * from ledger where key in ({keys})"))  # noqa: S608
        ours.identify(_identities(theirs, ours))
        _note(ours.store, read_plan(ours.store), last)
        note_data(ours.store, {**read_data(theirs.store), **read_data(ours.store)})
    return len(new)


def _identities(theirs: Ledger, ours: Ledger) -> Mapping[str, Identity]:
    """Return which rows count in both stores together, by arm ID."""
    merged = dict(ours.identities())
    for arm_id, identity in theirs.identities().items():
        own = merged.get(arm_id)
        if own is None or not own.dataset_fingerprint:  # no run of this store was asked for the arm
            merged[arm_id] = identity
        elif identity.dataset_fingerprint and (own.bits, *_parts(own)) != (identity.bits, *_parts(identity)):
            raise UserError(
                f"study {ours.study}: an arm's results come from other code, data or machines in store "
                f"{theirs.store.uri!r}, {identity}, than in {ours.store.uri!r}, {own}"
            )
    return merged


def _parts(identity: Identity) -> tuple[str, str]:
    return identity.code_version, identity.dataset_fingerprint


def _copy_files(source: Store, store: Store, row: Row) -> None:
    """Copy the files of a confirmation whose bytes are those that were recorded; missing ones stay missing."""
    for kind in KINDS if row["artifacts"] else ():
        with suppress(FileNotFoundError):
            store.write(artifact_name(kind, row["key"]), read_artifact(source, kind, row))


def _note(store: Store, ours: LastRun | None, theirs: LastRun) -> None:
    """Note the arms of both last runs as those of one run."""
    study = theirs.study
    if ours is not None:
        known = {arm.name for arm in ours.study.arms}
        more = [arm for arm in study.arms if arm.name not in known]
        study = ours.study
        with suppress(UserError):  # other searches, which do not go together in one study
            study = replace(study, arms=(*study.arms, *more))
    note_plan(store, study, (ours or theirs).data or None)
