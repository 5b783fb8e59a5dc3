"""Studies trained here, without Ray, to the records and networks that a run of them leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from small_trials import completed

from topk_platform import Study
from topk_platform.data import load
from topk_platform.data.dataset_table import backbone_hash
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.recorded import as_recorded
from topk_platform.records.storage.store import Store
from topk_platform.specs import Trial, TrialRecord
from topk_platform.testing import fake_run
from topk_platform.versions import versions_of

__all__ = ["train_study"]


def train_study(
    study: Study, store: Path, changed: Callable[[TrialRecord], TrialRecord] = lambda record: record
) -> None:
    """Train all that a study asks for, here, and write its records as ``changed`` returns them."""
    study = as_recorded(study, Ledger.open(Store.open(store), study.name))
    codes = versions_of(study)
    keeper = StoreKeeper(Store.open(store).at(study.name), 1e9, backbone=backbone_hash)
    identities = {
        study.arm_id(arm): Identity(codes[study.arm_id(arm)], load(arm.regime).fingerprint)
        for arm in study.arms
    }

    def train(trial: Trial) -> TrialRecord:
        return changed(completed(trial, keeper))

    fake_run(study, store, train, identities=identities)
