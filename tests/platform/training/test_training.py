from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import small_trials
import torch
from small_trials import Memory, bits, trained
from torch import nn

from topk_platform import Loss, Recipe, UserError
from topk_platform.errors import ChangedError
from topk_platform.specs import EpochRecord, Trial
from topk_platform.specs.codec import stream_seed
from topk_platform.training import LOSSES, Session, check_loss
from topk_platform.training.member import Member


def a_trial(loss: str = "cross_entropy", *, epochs: int = 2, **changes: Any) -> Trial:
    return small_trials.a_trial(loss, recipe=Recipe(epochs), targets=(), **changes)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_loss_trains_and_repeats_itself_bit_for_bit(loss: str) -> None:
    one, other = trained(a_trial(loss)), trained(a_trial(loss))
    assert one.status == "completed", one.reason
    assert one.test is not None
    assert bits(one) == bits(other)


def test_training_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    trained(a_trial("noised_topk_hinge"))
    assert torch.equal(before, torch.get_rng_state())


def test_the_last_metrics_are_those_of_the_last_epoch_and_test_is_for_confirmations() -> None:
    # A draw with many- and with medium-shot classes.
    search = trained(a_trial(phase="search", seed=2_000_000))
    assert search.test is None
    assert search.validation == search.epochs[-1].validation
    assert set(search.validation) == {
        f"{kind}top{k}" for kind in ("", "macro_", "many_", "medium_") for k in (1, 3)
    }


def test_it_learns() -> None:
    """Three seeds; chance is 0.3, and every one has to be far above it."""
    for seed in (1, 2, 3):
        assert trained(a_trial(epochs=8, seed=seed)).validation["top3"] > 0.8


def test_a_trial_below_its_threshold_is_pruned_after_that_epoch() -> None:
    record = trained(a_trial(epochs=5, stop_below=((3, 1.1),)))
    assert (record.status, len(record.epochs), record.test) == ("pruned", 3, None)
    assert "below 1.1 after epoch 3" in record.reason
    assert trained(a_trial(epochs=2, stop_below=((1, 0.0),))).status == "completed"


def test_a_diverging_trial_is_recorded_as_such() -> None:
    record = trained(a_trial(values={"learning_rate": 1e30}))
    assert record.status == "diverged"
    assert "training loss of epoch 1" in record.reason or "not finite" in record.reason


@pytest.mark.parametrize(("loss", "finite"), [(math.inf, True), (math.nan, True), (0.5, False)])
def test_a_loss_or_a_score_that_is_not_finite_is_enough(loss: float, finite: bool) -> None:
    member = Member(a_trial())
    member.note_loss(1, loss)
    assert not member.note(EpochRecord(1, loss, {"top1": 0.5}, 1.0, 0.1), finite=finite)
    assert (member.status, member.epochs) == ("diverged", [])


def test_other_data_than_planned_are_no_result_of_the_trial() -> None:
    with pytest.raises(ChangedError, match=r"dataset digits has fingerprint .* was planned with another"):
        trained(a_trial(dataset_fingerprint="another"))


def test_only_completed_confirmations_are_saved() -> None:
    models = []
    for trial in (a_trial(), a_trial(phase="search"), a_trial(values={"learning_rate": 1e30})):
        keeper = Memory()
        trained(trial, keeper)
        models += keeper.models
    assert models == [a_trial().key]


def test_one_epoch_is_plain_sgd() -> None:
    """Against a loop written out: same batches, same schedule, Nesterov momentum, weight decay."""
    trial = a_trial(epochs=1)
    session, twin = Session.prepare(trial), Session.prepare(trial)
    mean = session.advance()[0, 0].item()
    train, total, velocity = twin.dataset.train, 0.0, {}
    order = torch.randperm(len(train), generator=twin.batches.order)
    batches = torch.split(order, 64)
    for step, rows in enumerate(batches):
        loss = nn.functional.cross_entropy(twin.model(train.inputs[rows]), train.labels[rows])
        grads = torch.autograd.grad(loss, list(twin.model.parameters()))
        rate = 0.1 * (1 + math.cos(math.pi * step / len(batches))) / 2
        with torch.no_grad():
            for p, g in zip(twin.model.parameters(), grads, strict=True):
                g = g + 1e-4 * p
                velocity[p] = g if step == 0 else 0.9 * velocity[p] + g
                p -= rate * (g + 0.9 * velocity[p])
        total += float(loss.detach()) * len(rows)
    assert mean == pytest.approx(total / len(train), rel=1e-5)
    for p, q in zip(session.model.parameters(), twin.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_searched_batch_size_reaches_the_loop() -> None:
    session = Session.prepare(a_trial(epochs=1, values={"batch_size": 1077, "learning_rate": 0.1}))
    assert session.epoch_steps == 1


@pytest.mark.parametrize(
    ("name", "own", "message"),
    [
        ("smooth_topk", {}, "did you mean 'smooth_topk_svm'"),
        ("smooth_topk_svm", {"taw": 1.0}, "did you mean 'tau'"),
        ("smooth_topk_svm", {"tau": -1.0}, "tau"),
        ("cross_entropy", {"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ("smooth_topk_svm", {"k": 2}, "come from the arm"),
        ("no.such.module:loss", {}, "there is no module 'no'"),
    ],
)
def test_bad_losses_are_refused_before_anything_runs(name: str, own: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_loss(Loss(name), own, 3, torch.ones(10, dtype=torch.int64))


def test_streams_differ_by_every_part_of_their_name() -> None:
    seeds = {stream_seed(*name) for name in [(0, 0, "r"), (1, 0, "r"), (0, 1, "r"), (0, 0, "s")]}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_record_says_where_it_was_made() -> None:
    record = trained(a_trial())
    assert record.versions["torch"] == torch.__version__
    assert record.started <= record.ended
    assert record.train_seconds == sum(e.seconds for e in record.epochs)
    assert dataclasses.replace(record).trial.key == a_trial().key
