from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_trials import (
    IMAGES,
    Memory,
    a_trial,
    bits,
    completed,
    cut_and_resumed,
    listened,
    same_weights,
    trained,
)
from torch import nn

from topk_platform import EMA, Augmentation, Loss, Model, Recipe, Schedule
from topk_platform.records.networks import StoreKeeper, forget
from topk_platform.records.storage.store import Store
from topk_platform.specs import Trial
from topk_platform.training import finish, run_trials

RECIPES = {
    "plain": Recipe(epochs=5),
    "adam, kept, clipped, warm": Recipe(
        epochs=5, optimizer="adam", learning_rate=0.01, keep=("top1", "top3"), clip_norm=0.5, warmup=1.5
    ),
    "milestones, evaluated now and then": Recipe(
        epochs=5, schedule="milestones", milestones=(2, 4), evaluate_every=2
    ),
    "reweighted": Recipe(epochs=5, reweighting=2),
    "adamw, averaged": Recipe(
        epochs=5, optimizer="adamw", learning_rate=0.01, average=EMA(0.9), keep=("top1",)
    ),
}
STEPS = 17
"""Of an epoch: 1,077 samples in batches of 64."""
CUTS = {
    "after the first step": 1,
    "before an epoch's last step": 16,
    "at an epoch's end": 17,
    "in the middle": 45,
    "before the last step": 84,
}


def with_dropout(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    """A network that draws from the global generator."""
    hidden = nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3)
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(32, classes))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", RECIPES)
def test_a_trial_cut_off_ends_bitwise_as_one_that_was_not(name: str, cut: str) -> None:
    trial = a_trial("noised_topk_hinge", recipe=RECIPES[name])
    whole, resumed = Memory(), Memory()
    expected = completed(trial, whole)
    torch.manual_seed(999)  # another process, which finds what the first one kept until then
    resumed.states = whole.states[: CUTS[cut]]
    assert bits(trained(trial, resumed)) == bits(expected)
    assert same_weights(whole.models[trial.key], resumed.models[trial.key])


def test_a_trial_whose_process_dies_after_every_step_ends_as_any_other() -> None:
    recipe = Recipe(3, batch_size=300, reweighting=1, warmup=1.5, keep=("top1",))
    trial = a_trial("noised_topk_hinge", recipe=recipe, model=Model(f"{__name__}:with_dropout"))
    whole, dying = Memory(), Memory()
    expected = completed(trial, whole)
    for step in range(1, 3 * 4):
        dying.cut = step
        with pytest.raises(KeyboardInterrupt):
            trained(trial, dying)
        assert len(dying.states) == step
    assert bits(trained(trial, dying)) == bits(expected)
    assert same_weights(whole.models[trial.key], dying.models[trial.key])


AUGMENTED = {
    mix: Recipe(4, augmentation=Augmentation(crop=4, flip=True, cutout=8, mix=mix))
    for mix in ("", "mixup", "cutmix")
}
CONVNET = {"regime": IMAGES, "model": Model("convnet", {"width": 4})}  # 160 images: an epoch has 3 steps
SEARCHED: dict[str, Any] = {"together": (1, 2, 3), "recipe": Recipe(3, reweighting=1)}
CROPPED = Recipe(3, augmentation=Augmentation(crop=2, flip=True))
STACK = {"regime": IMAGES, "model": Model("linear"), "recipe": CROPPED, "together": (1, 2)}
DRAWN = Loss(
    "noised_imbalanced_topk_hinge",
    fixed={"epsilon": Schedule("cosine", 1.0, 0.01), "samples": Schedule("linear", 2, 5)},
)
SCALED = Loss("ldam", fixed={"scale": Schedule("linear", 5.0, 20.0)})
COME_BACK: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "averaged statistics": ({**CONVNET, "recipe": Recipe(3, average=EMA(0.9))}, (2, 7)),
    **{f"augmented {mix}": ({**CONVNET, "recipe": how}, (1, 2, 6, 8)) for mix, how in AUGMENTED.items()},
    "an ensemble that draws": ({"loss": "noised_topk_hinge", **SEARCHED}, (1, 17, 45)),
    "an ensemble with margins": ({"loss": "ldam", **SEARCHED}, (1, 17, 45)),
    "an ensemble on augmented images": (STACK, (2, 3, 5)),
    "schedules of draws": ({"loss": DRAWN, "recipe": Recipe(4)}, (1, 17, 30, 45, 51)),
    "a schedule and weights": ({"loss": SCALED, "recipe": Recipe(4, reweighting=1)}, (1, 17, 30, 45, 51)),
}


@pytest.mark.parametrize("name", COME_BACK)
def test_all_that_a_trial_has_comes_back(name: str) -> None:
    given, cuts = COME_BACK[name]
    seeds = given.get("together", (1,))
    rates = {seed: {"learning_rate": 0.1 * seed} if "loss" in given else {} for seed in seeds}
    trials = [a_trial(seed=seed, values=rates[seed], **given) for seed in seeds]
    expected = finish(run_trials(trials))
    assert {record.status for record in expected} == {"completed"}, expected[0].reason
    for cut in cuts:
        assert bits(*cut_and_resumed(trials, Memory(cut))) == bits(*expected), f"cut after step {cut}"


def test_a_pause_changes_nothing() -> None:
    """Left and gone on with in one process after every step; each pause is told of, as is each epoch."""
    trial = a_trial("noised_topk_hinge", recipe=Recipe(3))
    pulses, records = listened(run_trials([trial], Memory()))
    assert bits(*records) == bits(*finish(run_trials([trial])))
    # Twice more at the end: before the test set is scored, and before the network is kept.
    epochs = [pulse.epoch for pulse in pulses]
    assert epochs == [*(step // STEPS for step in range(1, 3 * STEPS + 1)), 3, 3]


def test_an_epochs_times_are_those_of_all_its_processes() -> None:
    trial, keeper = a_trial(recipe=Recipe(2)), Memory(5)
    with pytest.raises(KeyboardInterrupt):
        trained(trial, keeper)
    keeper.states[-1]["since_lap"] += 1000.0
    keeper.states[-1]["step_seconds"] += 100.0 * STEPS
    first, second = trained(trial, keeper).epochs
    assert 1000 < first.seconds < 2000 and second.seconds < 1000
    assert first.step_seconds is not None and second.step_seconds is not None
    assert 100 < first.step_seconds < 200 and second.step_seconds < 100


@pytest.fixture
def keeper(tmp_path: Path) -> StoreKeeper:
    return StoreKeeper(Store.open(tmp_path), seconds=0.0)


def files(keeper: StoreKeeper, trial: Trial) -> list[Path]:
    return sorted(Path(keeper.store.root).glob(f"checkpoints/{trial.key}/*.ckpt"))


def test_checkpoints_lie_in_the_store_until_the_trial_is_recorded(keeper: StoreKeeper) -> None:
    trial = a_trial(recipe=Recipe(epochs=6))
    expected = finish(run_trials([trial]))
    training = run_trials([trial], keeper)
    for _ in range(2 * STEPS + 4):
        next(training)
    training.close()
    assert [path.name for path in files(keeper, trial)] == ["000000000037.ckpt", "000000000038.ckpt"]
    assert bits(*finish(run_trials([trial], keeper))) == bits(*expected)
    forget(keeper.store, [trial.key])
    assert not files(keeper, trial)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "left"),
    [("truncated", 2 * STEPS), ("corrupted", 2 * STEPS + 1), ("empty", 2 * STEPS + 4)],
)
def test_a_damaged_checkpoint_falls_back_to_one_before(damage: str, left: int, keeper: StoreKeeper) -> None:
    trial = a_trial(recipe=Recipe(epochs=6))
    expected = finish(run_trials([trial]))
    training = run_trials([trial], keeper)
    for _ in range(left):
        next(training)
    training.close()
    newest = files(keeper, trial)[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes({"truncated": bytes(data[:-100]), "corrupted": bytes(data), "empty": b""}[damage])
    with pytest.warns(UserWarning, match=rf"{left:012d}\.ckpt .* is skipped"):
        state = keeper.load([trial])
    assert state is not None
    assert (state["learner"]["step"], state["epoch"]) == (left - 1, (left - 1) // STEPS)
    with pytest.warns(UserWarning, match="is skipped"):
        assert bits(*finish(run_trials([trial], keeper))) == bits(*expected)


def test_a_store_that_cannot_be_written_stops_no_trial(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.warns(UserWarning, match="no checkpoint of trial"):
        (record,) = finish(run_trials([a_trial(phase="search")], StoreKeeper(Store.open(tmp_path), 0.0)))
    assert record.status == "completed"


def test_checkpoints_come_no_more_often_than_asked(keeper: StoreKeeper) -> None:
    trial = a_trial(phase="search")
    finish(run_trials([trial], StoreKeeper(keeper.store, seconds=3600.0)))
    assert not files(keeper, trial)
