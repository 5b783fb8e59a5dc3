"""Every accuracy of a confirmed run comes back from the ranks that it left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from topk_platform import Recipe
from topk_platform.data import load
from topk_platform.records import Store, StoreKeeper, read_ranks
from topk_platform.specs import Trial
from topk_platform.training import finish, run_trials

MakeTrial = Callable[..., Trial]


@pytest.mark.parametrize("together", [(), (1, 2, 3)])
def test_accuracies_come_back_from_the_ranks(
    together: tuple[int, ...], make_trial: MakeTrial, tmp_path: Path
) -> None:
    trials = [make_trial(recipe=Recipe(1), seed=seed, together=together) for seed in together or (1,)]
    store = Store.open(tmp_path)
    for record in finish(run_trials(trials, StoreKeeper(store))):
        assert record.test is not None, record.reason
        ranks = read_ranks(store, record.trial.key)
        assert ranks is not None
        greater, tied = ranks
        assert len(greater) == len(load(record.trial.arm.regime).test)
        for k in record.trial.topk:
            credit = np.clip((k - greater) / (tied + 1), 0, 1)
            assert credit.mean() == pytest.approx(record.test[f"top{k}"], abs=1e-12)


def test_they_are_those_of_the_weights_that_were_kept(make_trial: MakeTrial, memory: Any) -> None:
    keeper = memory()
    trial = make_trial(recipe=Recipe(4, learning_rate=3.0, keep=("top1", "top3")))
    (record,) = finish(run_trials([trial], keeper))
    assert record.test is not None
    greater, tied = keeper.ranks[trial.key]
    first = trial.arm.metric
    credit = ((int(first.removeprefix("top")) - greater) / (tied + 1)).clamp(0, 1)
    assert credit.double().mean().item() == pytest.approx(record.test[first])


def test_ties_and_many_classes_are_kept_as_they_are(make_trial: MakeTrial, tmp_path: Path) -> None:
    store, trial = Store.open(tmp_path), make_trial()
    greater, tied = torch.tensor([0, 70_000, 3]), torch.tensor([2, 0, 65_535])
    StoreKeeper(store).save_ranks(trial, greater, tied)
    found = read_ranks(store, trial.key)
    assert found is not None
    assert [column.tolist() for column in found] == [greater.tolist(), tied.tolist()]
    assert read_ranks(store, "none") is None


def test_they_take_two_bytes_an_image(make_trial: MakeTrial, tmp_path: Path) -> None:
    store, trial = Store.open(tmp_path), make_trial()
    random = torch.randint(1000, (50_000,), generator=torch.Generator().manual_seed(0))
    StoreKeeper(store).save_ranks(trial, random, torch.zeros_like(random))
    (file,) = (tmp_path / "ranks").iterdir()
    assert file.stat().st_size < 2 * len(random) + 10_000  # the schema, the trial and some headers
