"""Small trials, a keeper in memory, and what of a record has to repeat itself."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from topk_platform import Arm, LabelNoise, Loss, Model, Recipe, Regime
from topk_platform.data import load
from topk_platform.specs import Inputs, Trial, TrialRecord
from topk_platform.training import Heartbeat, Training, finish, run_trials

IMAGES = Regime(
    "images",
    "synthetic_images",
    options={"classes": 4, "superclasses": 2, "train": 40, "validation": 8, "test": 8},
)


IMAGES_OF_TEN = Regime(
    "images",
    "synthetic_images",
    options={"classes": 10, "superclasses": 5, "train": 100, "validation": 20, "test": 20},
)


class Memory:
    """Keeps what trials want kept; with ``cut``, the process dies after the checkpoint of that step."""

    seconds = 0.0
    pauses: Sequence[float] = ()

    def __init__(self, cut: int = 0) -> None:
        self.cut = cut
        self.states: list[dict[str, Any]] = []
        self.models: dict[str, dict[str, Any]] = {}
        self.ranks: dict[str, Tensor] = {}
        self.guesses: dict[str, Tensor] = {}
        self.inputs: dict[str, Inputs] = {}

    def load(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        return self.states[-1] if self.states else None

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        self.states.append(copy.deepcopy(state))
        if step == self.cut:
            self.cut = 0
            raise KeyboardInterrupt  # which no trial catches

    def save_model(self, trial: Trial, model: nn.Module, inputs: Inputs) -> str:
        self.inputs[trial.key] = inputs
        self.models[trial.key] = {name: value.clone() for name, value in model.state_dict().items()}
        return "of the network"

    def save_ranks(self, trial: Trial, ranks: Tensor, images: str, *groups: Any) -> str:
        self.ranks[trial.key] = ranks
        return "of the ranks"

    def save_guesses(self, trial: Trial, guesses: Tensor, images: str) -> str:
        self.guesses[trial.key] = guesses
        return "of the guesses"


def listened(training: Training) -> tuple[list[Heartbeat], list[TrialRecord]]:
    """Run a training to its end; return its heartbeats and its records."""
    pulses = []
    while True:
        try:
            pulses.append(next(training))
        except StopIteration as end:
            return pulses, end.value


def a_trial(
    loss: Loss | str = "cross_entropy",
    *,
    recipe: Recipe | None = None,
    model: Model | None = None,
    regime: Regime | None = None,
    metric: str = "",
    head: str = "linear",
    **changes: Any,
) -> Trial:
    """A confirmation on noisy digits; the other keywords are fields of the trial."""
    arm = Arm(
        regime or Regime("noisy", "digits", (LabelNoise(0.2),)),
        model or Model("mlp", {"hidden": 16}),
        Loss(loss, head=head) if isinstance(loss, str) else loss,
        3,
        recipe or Recipe(epochs=3),
        metric,
    )
    trial = Trial(
        study="s",
        arm_id="a",
        arm=arm,
        topk=(1, 3),
        targets=(0.9,),
        phase="confirm",
        number=0,
        seed=1,
        root=0,
        values={},
        dataset_fingerprint=load(arm.regime).fingerprint,
        code_version="c",
    )
    return dataclasses.replace(trial, **changes)


def trained(trial: Trial, keeper: Any = None) -> TrialRecord:
    """Return the record of a trial, however it ended."""
    (record,) = finish(run_trials([trial], keeper))
    return record


def completed(trial: Trial, keeper: Any = None) -> TrialRecord:
    """Return the record of a trial, which must end well."""
    record = trained(trial, keeper)
    assert record.status == "completed", record.reason
    return record


def cut_and_resumed(trials: Sequence[Trial], keeper: Any) -> list[TrialRecord]:
    """Return the records of trials whose process dies where the keeper says, and which another process goes on with."""
    with pytest.raises(KeyboardInterrupt):
        finish(run_trials(trials, keeper))
    torch.manual_seed(999)  # as in another process
    return finish(run_trials(trials, keeper))


def same_weights(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def bits(*records: TrialRecord) -> list[str]:
    """Everything but times and what was stored."""
    kept = []
    for record in records:
        plain = json.loads(record.to_json())
        for name in ("started", "ended", "train_seconds", "artifacts"):
            del plain[name]
        for epoch in plain["epochs"]:
            del epoch["seconds"], epoch["step_seconds"]
        kept.append(json.dumps(plain, sort_keys=True))
    return kept
