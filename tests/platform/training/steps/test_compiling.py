"""One compiled network for all trials of a shape: an earlier trial leaves nothing behind for a later one."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from topk_platform import Model, Numerics, Recipe, RetrainedClassifier
from topk_platform.specs import Trial
from topk_platform.training import Session
from topk_platform.training.retrained import RetrainedSession

MakeTrial = Callable[..., Trial]
COMPILED = Numerics(compiled=True)


def half_frozen(shape: tuple[int, ...], classes: int, head: str) -> nn.Module:
    """A network that trains its last layer alone."""
    first = nn.Linear(math.prod(shape), 8)
    return nn.Sequential(nn.Flatten(), first.requires_grad_(False), nn.Linear(8, classes))


def trained(session: Session) -> list[str]:
    return [name for name, parameter in session.model.named_parameters() if parameter.requires_grad]


def test_a_trial_after_a_retrained_classifier_trains_every_layer(make_trial: MakeTrial) -> None:
    """Nothing but the second stage's start runs, so nothing is compiled."""
    retrained = Recipe(3, numerics=COMPILED, after=RetrainedClassifier(1))
    first = RetrainedSession.prepare(make_trial(recipe=retrained))
    every = trained(first)
    first._begin_second()
    assert trained(first) == [f"{first.classifier}.weight", f"{first.classifier}.bias"] != every
    later = Session.prepare(make_trial(recipe=Recipe(3, numerics=COMPILED), seed=2))
    assert later.model is first.model
    assert trained(later) == every


def test_what_a_network_freezes_itself_stays_frozen(make_trial: MakeTrial) -> None:
    trial = make_trial(recipe=Recipe(1, numerics=COMPILED), model=Model(f"{__name__}:half_frozen"))
    for _ in range(2):
        assert trained(Session.prepare(trial)) == ["2.weight", "2.bias"]
