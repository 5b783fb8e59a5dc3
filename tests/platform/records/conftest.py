from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from topk_platform import Arm, Choice, Float, Int, Loss, Model, Recipe, Regime, Study
from topk_platform.specs import EpochRecord, Trial, TrialRecord


@pytest.fixture
def study() -> Study:
    return make_study()


def make_study(*more: Loss) -> Study:
    losses = (Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1}), *more)
    arms = [Arm(Regime("r", "digits"), Model("mlp"), loss, 3, Recipe(epochs=2)) for loss in losses]
    return Study("s", arms, topk=(1, 3), trials=4, seeds=2)


@pytest.fixture
def wider_study() -> Study:
    space = {"learning_rate": Float(0.01, 1), "samples": Int(1, 9), "mode": Choice(("a", 2))}
    return make_study(Loss("noised_topk_hinge", space, {"learning_rate": 0.1, "samples": 3, "mode": "a"}))


@pytest.fixture
def record() -> Callable[..., TrialRecord]:
    def make(
        study: Study,
        number: int = 0,
        *,
        arm: int = 0,
        seed: int = 0,
        status: str = "completed",
        top3: float = 0.5,
        code: str = "c",
        versions: Mapping[str, str] | None = None,
    ) -> TrialRecord:
        chosen = study.arms[arm]
        trial = Trial(
            study.name,
            study.arm_id(chosen),
            chosen,
            study.topk,
            "confirm" if seed else "search",
            number,
            seed,
            0,
            chosen.loss.first,
            "f",
            code,
        )
        metrics = dict.fromkeys(study.metrics, top3)
        epochs = tuple(EpochRecord(e, 1.0 / e, metrics, 0.5, 0.1) for e in (1, 2))
        return TrialRecord(
            trial,
            status,
            "" if status == "completed" else "why",
            metrics,
            metrics if seed else None,  # type: ignore[arg-type]
            epochs,
            1.0,
            1000.0 + number,
            1001.0 + number,
            versions or {"torch": "x"},
        )

    return make
