"""What a worker refuses to train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.code_version import code_version
from topk_platform.data import load
from topk_platform.identity import Identity
from topk_platform.running.worker import TrialActor
from topk_platform.search import ArmBoard
from topk_platform.training import environment


def result(tmp_path: Path, **planned: Any) -> dict[str, Any]:
    """What the worker brings of a trial that was planned so."""
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(1))
    known = {"dataset_fingerprint": load(arm.regime).fingerprint, "code_version": code_version(arm)}
    board = ArmBoard(Study("s", [arm], topk=(1, 3)), arm, Identity(**{**known, **planned}))
    trial = board.trial(board.next_slot())
    actor = object.__new__(TrialActor)
    actor._start(
        {"trials": [trial.to_json()], "data": "data", "store": str(tmp_path), "checkpoint_seconds": 60.0}
    )
    while not (brought := actor.step())["done"]:
        pass
    return dict(brought)


def test_what_was_planned_is_trained(tmp_path: Path) -> None:
    assert result(tmp_path).keys() == {"done", "records"}
    here = {**environment("cpu"), "optuna": "of the driver, which a worker need not have"}
    assert result(tmp_path, environment=here).keys() == {"done", "records"}


@pytest.mark.parametrize(
    ("planned", "reason"),
    [
        ({"code_version": "another"}, "arm r/linear/cross_entropy: a worker found code version"),
        ({"dataset_fingerprint": "another"}, "dataset digits has fingerprint"),
        (
            {"environment": {**environment("cpu"), "machine": "another"}},
            "arm r/linear/cross_entropy: a worker is another machine than the study began with, machine ",
        ),
    ],
)
def test_other_code_data_or_machines_than_planned_are_refused_and_bring_no_record(
    tmp_path: Path, planned: dict[str, str], reason: str
) -> None:
    found = result(tmp_path, **planned)
    assert found.keys() == {"done", "refused"} and found["done"]
    assert found["refused"].startswith(reason) and "another" in found["refused"]
