"""The r-th searches of all arms train on the same draws, and different searches on different ones."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from made_studies import searched, small_study
from small_trials import same_weights
from torch import Tensor

from topk_platform import LabelNoise, Model, Protocol, Recipe, Regime
from topk_platform.data import load
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress
from topk_platform.specs import Trial
from topk_platform.training import Session, finish, run_trials
from topk_platform.training.ensemble import Ensemble

LOSSES = [searched("cross_entropy"), searched("smooth_topk_svm")]
NOISY = Regime("noisy", "digits", (LabelNoise(0.3),))
DRAWN = Regime("drawn", "ring", options={"per_class": 20})
SPAN = 1_000_000


def blocks(regime: Regime, ensemble: int = 1, name: str = "s") -> list[list[list[Trial]]]:
    """The trials that train first in each of two searches, by arm and search."""
    how = Protocol(searches=2, ensemble=ensemble)
    parts = {"name": name, "regimes": [regime], "models": [Model("mlp", {"hidden": 4})], "protocol": how}
    study = small_study(*LOSSES, k=2, recipe=Recipe(2), trials=4, seeds=2, **parts)
    identity = Identity("code", load(regime).fingerprint)
    states = [ArmProgress(study, arm, identity) for arm in study.arms]
    return [
        [[state.trial(slot) for slot in state.block(("search", SPAN * r, SPAN * r))] for r in range(2)]
        for state in states
    ]


def drawn(trial: Trial) -> list[Tensor]:
    """What a trial draws before its first step: data, noise, order, augmentation and initial weights."""
    session = Session.prepare(trial)
    train, batches = session.dataset.train, session.batches
    streams = [stream.get_state() for stream in (batches.order, batches.changes)]
    return [train.tensor, train.labels, *streams, *session.model.state_dict().values()]


def same(one: list[Tensor], other: list[Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(one, other, strict=True)]


@pytest.mark.parametrize("regime", [NOISY, DRAWN], ids=lambda regime: regime.name)
def test_arms_are_paired_search_by_search(regime: Regime) -> None:
    (ours, ours_next), (theirs, theirs_next) = ([drawn(trial) for (trial,) in arm] for arm in blocks(regime))
    assert all(same(ours, theirs)) and all(same(ours_next, theirs_next))
    # Noise gives the same images other labels; of a population other points are drawn, as many of each class.
    assert same(ours, ours_next)[:2] == [regime == NOISY, regime == DRAWN]
    assert not any(same(ours, ours_next)[2:])


def test_first_trials_have_the_same_values_and_other_seeds_and_results() -> None:
    for (first,), (second,) in blocks(NOISY):
        assert first.values == second.values == {"learning_rate": 0.1}
        assert (first.seed, second.seed) == (0, SPAN)
        losses = [
            record.epochs[0].train_loss for one in (first, second) for record in finish(run_trials([one]))
        ]
        assert losses[0] != losses[1]


@pytest.mark.parametrize("regime", [NOISY, DRAWN], ids=lambda regime: regime.name)
def test_a_stack_of_search_trials_has_the_draws_of_its_search(regime: Regime) -> None:
    (alone, alone_next), _ = blocks(regime)
    for stack, trial in zip(blocks(regime, ensemble=2)[0], (alone, alone_next), strict=True):
        assert [member.seed for member in stack] == [trial[0].seed] * 2
        ensemble, session = Ensemble.prepare(stack), Session.prepare(trial[0])
        for member in range(2):
            split = ensemble.datasets[member].train
            assert torch.equal(split.tensor, session.dataset.train.tensor)
            assert torch.equal(split.labels, session.dataset.train.labels)
            assert same_weights(ensemble.weights(member), session.model.state_dict())


@pytest.mark.parametrize("ensemble", [1, 2])
def test_another_name_of_the_study_changes_no_result(ensemble: int) -> None:
    for ours, theirs in zip(blocks(NOISY, ensemble), blocks(NOISY, ensemble, "renamed"), strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert [dataclasses.replace(trial, study="renamed") for trial in mine] == other
            results = [
                [(r.validation, [e.train_loss for e in r.epochs]) for r in finish(run_trials(trials))]
                for trials in (mine, other)
            ]
            assert results[0] == results[1]
