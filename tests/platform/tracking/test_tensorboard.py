"""What TensorBoard's folders hold after several results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from feeds import fill, start_feed

from topk_platform import Study
from topk_platform.records import Ledger, Store
from topk_platform.specs import TrialRecord
from topk_platform.tracking.tensorboard import TensorboardTracker

Make = Callable[..., TrialRecord]


@pytest.mark.parametrize("name", ["results", "results2", "r"])
def test_new_results_replace_old_ones_and_no_trials(
    name: str, tmp_path: Path, study: Study, record: Make
) -> None:
    """Whatever the regime's name is."""
    arm = study.arms[0]
    study = dataclasses.replace(
        study, arms=[dataclasses.replace(arm, regime=dataclasses.replace(arm.regime, name=name))]
    )
    ledger = Ledger.open(Store.open(tmp_path), "s")
    with ledger.writing(study) as writer:
        writer.put(record(study, 0))
    for text in ("# one", "# two"):
        fill(start_feed(tmp_path, ledger, TensorboardTracker()), {"table.md": text})
    runs = [path.parent for path in (tmp_path / "tensorboard" / "s").rglob("events.out.tfevents.*")]
    assert sorted(run.name.partition(" ")[0] for run in runs) == ["results", "seed"]
