"""How many trials the nodes of a cluster hold at once. Ray's list of nodes is made up."""

from __future__ import annotations

import pytest
import ray

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.running.cluster.capacity import slots


@pytest.mark.parametrize(("share", "held"), [(1.0, 3), (0.6, 3), (0.5, 6), (0.4, 6), (1 / 3, 9), (0.1, 20)])
def test_a_trial_spans_neither_two_gpus_nor_two_nodes(
    share: float, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 10.0, "GPU": gpus}} for gpus in (1.0, 2.0)]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    arm = Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), 5, Recipe(1))
    assert slots(Study("s", [arm], device="cuda", gpus=share), None, may_grow=False) == held
