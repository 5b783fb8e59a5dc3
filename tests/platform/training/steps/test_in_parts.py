"""Scoring in parts, against scoring at once: the same numbers, and never all scores in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from topk_platform import EMA, Arm, LongTail, Loss, Model, Protocol, Recipe, Regime, Study, UserError
from topk_platform.data import Split
from topk_platform.metrics import Scorer
from topk_platform.specs import Trial
from topk_platform.training import finish, run_trials
from topk_platform.training.session import score
from topk_platform.training.steps.in_parts import score_in_parts

MEASURES = ("autkc5", "ece", "nll", "brier")
CLASSES, SAMPLES = 40, 9000  # three parts
GROUPS = tuple(torch.arange(CLASSES) % 3 == number for number in range(3))


class Rounded(nn.Module):
    """A linear network whose scores tie often, some of them NaN if asked for."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.layer, self.broken = nn.Linear(8, CLASSES), broken

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = (4 * self.layer(inputs)).round()
        return scores.masked_fill(inputs[:, :1] > 2, torch.nan) if self.broken else scores


def a_split() -> Split:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 8, generator=draw)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=draw)
    return Split(inputs, labels, torch.arange(SAMPLES) // 100)


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("measures", [(), MEASURES])
def test_parts_give_the_numbers_of_the_whole(broken: bool, measures: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    network, split = Rounded(broken), a_split()
    scorer = Scorer((1, 5, 10), (0.5, 0.9), GROUPS, measures)
    given = (network, split, None, Recipe(1), "cpu", scorer)
    whole, parts = score(*given), score_in_parts(*given)
    assert torch.equal(whole.measures, parts.measures)
    assert whole.measures[0] == (0 if broken else 1)
    assert torch.equal(whole.ranks, parts.ranks)
    sound = whole.scores.isfinite().all(1)
    for k in (1, 5, 10):
        chosen, expected = parts.guesses(k), whole.guesses(k)
        values = [whole.scores.gather(1, guesses)[sound] for guesses in (chosen, expected)]
        assert torch.equal(*values), "ties are in any order, their scores are not"
    assert parts.cluster is not None
    assert torch.equal(parts.cluster, torch.arange(SAMPLES) // 100)


class Largest(TorchFunctionMode):
    """Notes the most numbers that any function of torch returned in one tensor."""

    most = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.most = max(self.most, result.numel())
        return result


def test_all_scores_are_never_in_memory_at_once() -> None:
    given = (Rounded(), a_split(), None, Recipe(1), "cpu", Scorer((1, 5), (), GROUPS, MEASURES))
    with Largest() as at_once:
        score(*given)
    with Largest() as in_parts:
        score_in_parts(*given)
    assert at_once.most == SAMPLES * CLASSES
    assert in_parts.most <= max(4096 * CLASSES, SAMPLES * 10)


@pytest.mark.parametrize("average", [None, EMA(0.5)])
def test_a_trial_ends_with_the_same_record_and_files(
    make_trial: Callable[..., Trial], memory: Any, average: EMA | None
) -> None:
    recipe = Recipe(2, average=average, keep=("top1",))
    regime, kept, results = Regime("tail", "digits", (LongTail(20),)), [], []
    for scoring in ("", "parts"):
        trial = make_trial(regime=regime, recipe=replace(recipe, scoring=scoring), measures=("nll",))
        keeper = memory()
        results += finish(run_trials([trial], keeper))
        kept.append((keeper.ranks[trial.key], keeper.guesses[trial.key]))
    usual, parts = results
    assert usual.status == "completed", usual.reason
    assert (usual.test, usual.validation) == (parts.test, parts.validation)
    for one, other in zip(*kept, strict=True):
        assert torch.equal(one, other)


def an_arm(k: int = 3, ensemble: int = 1, **changes: Any) -> Arm:
    recipe = Recipe(1, scoring="parts", **changes)
    return Arm(
        Regime("r", "digits"),
        Model("mlp"),
        Loss("cross_entropy"),
        k,
        recipe,
        "top1",
        Protocol(ensemble=ensemble),
    )


def test_what_needs_all_scores_is_refused() -> None:
    with pytest.raises(UserError, match=r"leave out size95, or Recipe.scoring"):
        Study("s", [an_arm()], topk=(1, 3), measures=("nll", "size95"))
    with pytest.raises(UserError, match=r"keeps the best 3 classes, .* its k is 5"):
        Study("s", [an_arm(k=5)], topk=(1, 3))
    with pytest.raises(UserError, match=r"cannot go with test_crops 'softmax'"):
        an_arm(test_crops="softmax")
    with pytest.raises(UserError, match=r"leave out Recipe.scoring"):
        an_arm(ensemble=2)
