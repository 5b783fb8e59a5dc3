from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from topk_platform import Augmentation, Model, Recipe, Regime
from topk_platform.records import Store, StoreKeeper, forget
from topk_platform.specs import Trial, TrialRecord
from topk_platform.training import finish, run_trials

MakeTrial = Callable[..., Trial]

IMAGES = Regime(
    "images",
    "synthetic_images",
    options={"classes": 4, "superclasses": 2, "train": 40, "validation": 8, "test": 8},
)
RECIPES = {
    "plain": Recipe(epochs=5),
    "adam, kept, clipped, warm": Recipe(
        epochs=5, optimizer="adam", learning_rate=0.01, keep=("top1", "top3"), clip_norm=0.5, warmup=1.5
    ),
    "milestones, evaluated now and then": Recipe(
        epochs=5, schedule="milestones", milestones=(2, 4), evaluate_every=2
    ),
    "reweighted": Recipe(epochs=5, reweighting=2),
}


class Drops(nn.Sequential):
    """Draws from the global generator."""


def with_dropout(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    return Drops(
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, classes),
    )


def bits(records: list[TrialRecord]) -> list[str]:
    """Everything but times."""
    kept = []
    for record in records:
        plain = json.loads(record.to_json())
        for name in ("started", "ended", "train_seconds"):
            del plain[name]
        for epoch in plain["epochs"]:
            del epoch["seconds"], epoch["step_seconds"]
        kept.append(json.dumps(plain, sort_keys=True))
    return kept


def cut_and_resumed(trials: list[Trial], keeper: Any) -> list[TrialRecord]:
    with pytest.raises(KeyboardInterrupt):
        finish(run_trials(trials, keeper))
    torch.manual_seed(999)  # another process
    return finish(run_trials(trials, keeper))


def same_weights(one: dict[str, dict[str, Tensor]], other: dict[str, dict[str, Tensor]]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[key][name])
        for key, weights in one.items()
        for name, value in weights.items()
    )


@pytest.mark.parametrize("cut", [1, 3])
@pytest.mark.parametrize("name", RECIPES)
def test_a_trial_cut_off_ends_bitwise_as_one_that_was_not(
    name: str, cut: int, make_trial: MakeTrial, memory: Any
) -> None:
    trial = make_trial("noised_topk_hinge", recipe=RECIPES[name])
    whole, cutting = memory(), memory(cut)
    expected = finish(run_trials([trial], whole))
    assert expected[0].status == "completed", expected[0].reason
    assert bits(cut_and_resumed([trial], cutting)) == bits(expected)
    assert same_weights(whole.models, cutting.models)


def test_buffers_and_global_streams_come_back(make_trial: MakeTrial, memory: Any) -> None:
    trial = make_trial(model=Model(f"{__name__}:with_dropout"))
    whole, cutting = memory(), memory(2)
    expected = finish(run_trials([trial], whole))
    assert expected[0].status == "completed", expected[0].reason
    assert bits(cut_and_resumed([trial], cutting)) == bits(expected)
    assert same_weights(whole.models, cutting.models)


def test_augmented_images_come_back(make_trial: MakeTrial, memory: Any) -> None:
    augmentation = Augmentation(crop=4, flip=True, cutout=8, mix="cutmix")
    trial = make_trial(regime=IMAGES, model=Model("convnet"), recipe=Recipe(4, augmentation=augmentation))
    expected = finish(run_trials([trial]))
    assert expected[0].status == "completed", expected[0].reason
    assert bits(cut_and_resumed([trial], memory(2))) == bits(expected)


def test_an_ensemble_comes_back(make_trial: MakeTrial, memory: Any) -> None:
    trials = [
        make_trial("noised_topk_hinge", seed=seed, together=(1, 2, 3), values={"learning_rate": 0.1 * seed})
        for seed in (1, 2, 3)
    ]
    expected = finish(run_trials(trials))
    assert {record.status for record in expected} == {"completed"}
    assert bits(cut_and_resumed(trials, memory(2))) == bits(expected)


@pytest.fixture
def keeper(tmp_path: Path) -> StoreKeeper:
    return StoreKeeper(Store.open(tmp_path), seconds=0.0)


def files(keeper: StoreKeeper, trial: Trial) -> list[Path]:
    return sorted(Path(keeper.store.root).glob(f"checkpoints/{trial.key}/*.ckpt"))


def test_checkpoints_lie_in_the_store_until_the_trial_is_recorded(
    keeper: StoreKeeper, make_trial: MakeTrial
) -> None:
    trial = make_trial(recipe=Recipe(epochs=6))
    expected = finish(run_trials([trial]))
    training = run_trials([trial], keeper)
    for _ in range(4):
        next(training)
    training.close()
    assert [path.name for path in files(keeper, trial)] == ["00000002.ckpt", "00000003.ckpt"]
    assert bits(finish(run_trials([trial], keeper))) == bits(expected)
    forget(keeper.store, [trial.key])
    assert not files(keeper, trial)


@pytest.mark.parametrize("damage", ["truncated", "corrupted", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_it(
    damage: str, keeper: StoreKeeper, make_trial: MakeTrial
) -> None:
    trial = make_trial(recipe=Recipe(epochs=6))
    expected = finish(run_trials([trial]))
    training = run_trials([trial], keeper)
    for _ in range(4):
        next(training)
    training.close()
    newest = files(keeper, trial)[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes({"truncated": bytes(data[:-100]), "corrupted": bytes(data), "empty": b""}[damage])
    with pytest.warns(UserWarning, match=r"00000003\.ckpt .* passed over"):
        state = keeper.load([trial])
    assert state is not None
    assert state["epoch"] == 2
    with pytest.warns(UserWarning, match="passed over"):
        assert bits(finish(run_trials([trial], keeper))) == bits(expected)


def test_a_store_that_cannot_be_written_stops_no_trial(tmp_path: Path, make_trial: MakeTrial) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.warns(UserWarning, match="no checkpoint of trial"):
        (record,) = finish(run_trials([make_trial(phase="search")], StoreKeeper(Store.open(tmp_path), 0.0)))
    assert record.status == "completed"


def test_checkpoints_come_no_more_often_than_asked(keeper: StoreKeeper, make_trial: MakeTrial) -> None:
    trial = make_trial(phase="search")
    finish(run_trials([trial], StoreKeeper(keeper.store, seconds=3600.0)))
    assert not files(keeper, trial)
