"""Callbacks of Ray Tune, the user's own and Ray's, see each trial of a study as a trial of Tune's."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from labs import rows
from ray import tune
from tensorboardX.proto.event_pb2 import Event

from topk_platform import run

pytestmark = pytest.mark.timeout(3600)


class Seen(tune.Callback):  # type: ignore[misc]  # Ray has no types
    """What Tune shows of each trial, by the trial's key."""

    def __init__(self) -> None:
        self.results: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        assert trial.config["arm"] == "plain/with_dropout/none"
        self.results[trial.config["key"]].append(dict(result))


def scalars(file: Path) -> dict[str, float]:
    """Return the last values in a file of TensorBoard's events: records of a length, a sum, the event and a sum."""
    content, values = file.read_bytes(), dict[str, float]()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event = Event.FromString(content[12 : 12 + length])
        values.update({value.tag: value.simple_value for value in event.summary.value})
        content = content[16 + length :]
    return values


def test_each_trial_is_one_of_tunes_with_its_metrics_by_name(
    shared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from lab import plain

    seen, progress = Seen(), tmp_path / "progress"
    monkeypatch.chdir(tmp_path)
    run(
        plain(),
        store=tmp_path / "store",
        mlflow="none",
        progress=False,
        workers=1,
        tensorboard="progress",
        tune_table=True,
        callbacks=[seen],
    )
    recorded = {row["key"]: row for row in rows(tmp_path / "store")}
    assert seen.results.keys() == recorded.keys() and len(recorded) == 2
    curves = [scalars(file) for file in sorted(progress.glob("lab/plain_*/events.out.tfevents.*"))]
    assert len(curves) == 2
    table = capfd.readouterr().out.rpartition("== Status ==")[2]
    for key, row in recorded.items():
        (line,) = (line.split() for line in table.splitlines() if f"| {key} " in line)
        assert "TERMINATED" in line and "plain/with_dropout/none" in line
        last = seen.results[key][-1]
        assert last["done"] and last["validation/top3"] == row["validation.top3"] and "records" not in last
        shown = [curve["ray/tune/validation/top3"] for curve in curves]
        assert pytest.approx(row["validation.top3"]) in shown
