"""Studies trained here, without Ray, to the records and networks that a run of them leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from topk_platform import Study
from topk_platform.code_version import code_versions
from topk_platform.data import load
from topk_platform.identity import Identity
from topk_platform.protocol.ended import Ended
from topk_platform.records import Ledger, Store, StoreKeeper, read_history
from topk_platform.running.driver.boards import make_board
from topk_platform.training import finish, run_trials


@pytest.fixture(scope="session")
def train_study() -> Callable[[Study, Path], None]:
    return confirm


def confirm(study: Study, store: Path) -> None:
    """Train all that a study asks for, here."""
    arms, codes = {study.arm_id(arm): arm for arm in study.arms}, code_versions(study)
    identities = {i: Identity(codes[i], load(arm.regime).fingerprint) for i, arm in arms.items()}
    ledger = Ledger.open(Store.open(store), study.name)
    with ledger.writing(study) as writer:
        ledger.identify(identities)
        board = make_board(study, identities, read_history(ledger, study, identities))
        while trials := board.next_trials():
            for trial in trials:
                (record,) = finish(run_trials([trial], StoreKeeper(ledger.store, 1e9)))
                assert record.status == "completed"
                writer.put(record)
                board.end(trial, Ended.from_record(record))
