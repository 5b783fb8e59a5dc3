"""Batches in parts: the same steps as whole ones, but for how sums are rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from topk_platform import Augmentation, Model, Recipe, UserError
from topk_platform.models import build_model
from topk_platform.specs import Trial
from topk_platform.training import check_ensemble, finish, run_trials
from topk_platform.training.session import Session


def trained(trial: Trial) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    session = Session.prepare(trial)
    losses = torch.stack([session.train_epoch()[0] for _ in range(2)])
    return session.weights(), losses


@pytest.mark.parametrize("augmentation", [Augmentation(), Augmentation(mix="mixup")])
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_make_the_same_steps(
    make_trial: Callable[..., Trial], parts: int, augmentation: Augmentation
) -> None:
    """1,077 samples in batches of 100: the last one has 77, which neither 2, 3 nor 7 parts need divide."""

    def run(accumulate: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        recipe = Recipe(
            2, batch_size=100, learning_rate=0.05, accumulate=accumulate, augmentation=augmentation
        )
        return trained(make_trial(recipe=recipe))

    (whole, losses), (taken, again) = run(1), run(parts)
    for name, value in whole.items():
        torch.testing.assert_close(taken[name], value, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again[:, 0], losses[:, 0], rtol=1e-5, atol=1e-6)


def test_each_part_goes_through_the_network_alone(
    make_trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session.prepare(make_trial(recipe=Recipe(1, batch_size=100, accumulate=4)))
    seen: list[int] = []
    forward: Any = session.model.forward

    def noted(inputs: torch.Tensor) -> torch.Tensor:
        seen.append(len(inputs))
        scores: torch.Tensor = forward(inputs)
        return scores

    monkeypatch.setattr(session.model, "forward", noted)
    session.train_epoch()
    assert seen == [25] * 40 + [20, 20, 20, 17]
    assert session.step == 11 == session.epoch_steps


def test_a_loss_that_draws_repeats_itself_in_parts(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial("noised_topk_hinge", recipe=Recipe(2, batch_size=100, accumulate=3))
    one, again = (finish(run_trials([trial]))[0] for _ in range(2))
    assert one.status == "completed", one.reason
    assert one.test == again.test and one.epochs[-1].train_loss == again.epochs[-1].train_loss


def test_parts_are_at_least_one_and_not_for_ensembles() -> None:
    with pytest.raises(UserError, match=r"Recipe.accumulate must be at least 1, got 0"):
        Recipe(1, accumulate=0)
    network = build_model(Model("linear"), (2,), 3, "linear")
    with pytest.raises(UserError, match="accumulate must be 1"):
        check_ensemble(network, Recipe(1, accumulate=2), ())
