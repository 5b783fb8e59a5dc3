"""Every accuracy of a confirmed run comes back from the ranks that it left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_records import a_row
from small_trials import Memory, a_trial, trained

from topk_platform import LongTail, Recipe, Regime
from topk_platform.data import DATASETS, Dataset, digits, load
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.per_image import read_guesses, read_ranks
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import trial_row
from topk_platform.specs import GROUPS, TrialRecord
from topk_platform.training import finish, run_trials


def records(store: Store, together: tuple[int, ...], **changes: Any) -> list[TrialRecord]:
    """The records of a confirmation, or of several in one ensemble, which leave their files in a store."""
    shared = {"recipe": Recipe(1), "together": together, **changes}
    trials = [a_trial(seed=seed, **shared) for seed in together or (1,)]
    return finish(run_trials(trials, StoreKeeper(store)))


@pytest.mark.parametrize("together", [(), (1, 2, 3)])
def test_accuracies_come_back_from_the_ranks(together: tuple[int, ...], tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for record in records(store, together):
        assert record.test is not None, record.reason
        ranks = read_ranks(store, trial_row(record))
        assert ranks is not None
        test = load(record.trial.arm.regime).test
        assert (ranks.label == test.labels.numpy()).all() and ranks.images == test.fingerprint
        for k in record.trial.topk:
            credit = np.clip((k - ranks.greater) / (ranks.tied + 1), 0, 1)
            assert credit.mean() == pytest.approx(record.test[f"top{k}"], abs=1e-12)


def test_groups_of_classes_are_kept_with_them(tmp_path: Path) -> None:
    tail = Regime("tail", "digits", (LongTail(20),))
    trial, store = a_trial(recipe=Recipe(1), regime=tail), Store.open(tmp_path)
    (record,) = finish(run_trials([trial], StoreKeeper(store)))
    ranks = read_ranks(store, trial_row(record))
    assert ranks is not None and record.test is not None
    credit = np.clip((3 - ranks.greater) / (ranks.tied + 1), 0, 1)
    named = [name for name in GROUPS if f"{name}_top3" in record.test]
    assert len(named) > 1
    for name in named:
        ours = ranks.group == 1 + GROUPS.index(name)
        classes = [credit[ours & (ranks.label == label)].mean() for label in np.unique(ranks.label[ours])]
        assert np.mean(classes) == pytest.approx(record.test[f"{name}_top3"], abs=1e-12)


def test_they_are_those_of_the_weights_that_were_kept() -> None:
    keeper = Memory()
    trial = a_trial(recipe=Recipe(4, learning_rate=3.0, keep=("top1", "top3")))
    record = trained(trial, keeper)
    assert record.test is not None
    greater, tied, *_ = keeper.ranks[trial.key]
    first = trial.arm.metric
    credit = ((int(first.removeprefix("top")) - greater) / (tied + 1)).clamp(0, 1)
    assert credit.double().mean().item() == pytest.approx(record.test[first])


def test_ties_and_many_classes_are_kept_as_they_are(tmp_path: Path) -> None:
    store, trial = Store.open(tmp_path), a_trial()
    kept = torch.tensor([[0, 70_000, 3], [2, 0, 65_535], [1, 80_000, 2], [0, 3, 1]])
    best = torch.tensor([[0, 70_000], [65_535, 2], [3, 1]])
    written = StoreKeeper(store).save_ranks(trial, kept, "abc")
    guessed = StoreKeeper(store).save_guesses(trial, best, "abc")
    row = a_row(trial.key, ranks=written, guesses=guessed)
    ranks, guesses = read_ranks(store, row), read_guesses(store, row)
    assert ranks is not None and ranks.images == "abc"
    assert [column.tolist() for column in ranks[:4]] == kept.tolist()
    assert guesses is not None and guesses.images == "abc" and guesses.classes.tolist() == best.tolist()
    assert read_ranks(store, {"key": "none"}) is read_guesses(store, {"key": "none"}) is None


def test_they_take_four_bytes_an_image(tmp_path: Path) -> None:
    store, trial = Store.open(tmp_path), a_trial()
    random = torch.randint(1000, (50_000,), generator=torch.Generator().manual_seed(0))
    labels, none = random.flip(0), torch.zeros_like(random)
    StoreKeeper(store).save_ranks(trial, torch.stack([random, none, labels, none]), "abc")
    (file,) = (tmp_path / "ranks").iterdir()
    assert file.stat().st_size < 4 * len(random) + 10_000  # the schema, the trial and some headers


@pytest.mark.parametrize("together", [(), (1, 2, 3)])
def test_guesses_hold_the_true_class_where_its_rank_says(together: tuple[int, ...], tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for record in records(store, together):
        ranks, result = read_ranks(store, trial_row(record)), read_guesses(store, trial_row(record))
        assert ranks is not None and result is not None and result.images == ranks.images
        k = record.trial.arm.k
        assert result.classes.shape == (len(ranks.label), k)
        assert all(len(set(row)) == k for row in result.classes.tolist())
        alone = ranks.tied == 0
        hits = result.classes == ranks.label[:, None]
        assert (hits.any(1) == (ranks.greater < k))[alone].all()
        assert (hits.argmax(1) == ranks.greater)[alone & hits.any(1)].all()


@pytest.mark.parametrize("together", [(), (1, 2)])
def test_groups_travel_to_the_ranks(
    together: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written() -> Dataset:
        data = digits()
        writers = 7 * (torch.arange(len(data.test)) // 9)
        return Dataset(data.train, data.validation, data.test.grouped(writers), 10, groups="writers")

    monkeypatch.setitem(DATASETS, "written", written)
    store = Store.open(tmp_path)
    for record in records(store, together, regime=Regime("written", "written")):
        result = read_ranks(store, trial_row(record))
        assert result is not None and result.cluster is not None and result.clusters == "writers"
        assert result.cluster.tolist() == [n // 9 for n in range(360)]
