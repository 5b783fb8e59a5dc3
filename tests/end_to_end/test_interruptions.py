"""Cut off in every way, a study ends as if nothing had happened; nothing of a run stays behind or can be reached."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from labs import IN_PROC, check_loopback, rows, tracked, until

pytestmark = IN_PROC


@dataclass(frozen=True)
class Cut:
    """An interrupt of a run whose two workers are both held in the middle of a training.

    Args:
        number: The signal.
        everybody: Whether every process gets it, as Ctrl-C and SLURM do it, or the driver alone, as Kubernetes does.
        code: The exit code that is due.
        allowed: How many of the trainings that began by then, in all runs, are allowed beyond their middle.
        ended: How many trials have then ended.
    """

    number: signal.Signals
    everybody: bool
    code: int
    allowed: int
    ended: int


# Two trainings begin, one is allowed to go on, and a third begins. The two that are cut off begin again, and so on.
KILLED = Cut(signal.SIGKILL, everybody=False, code=-signal.SIGKILL, allowed=1, ended=1)
CUTS = {
    "killed": (KILLED,),
    "interrupted": (Cut(signal.SIGINT, everybody=True, code=130, allowed=1, ended=1),),
    "terminated": (
        Cut(signal.SIGTERM, everybody=True, code=143, allowed=1, ended=1),
        Cut(signal.SIGTERM, everybody=False, code=143, allowed=5, ended=3),
    ),
}


@dataclass(frozen=True)
class Seen:
    """What was seen of one run that was cut off: what listened, what it said, and the rows then kept."""

    listening: list[tuple[str, str]]
    output: str
    trials: list[dict[str, Any]]
    epochs: list[dict[str, Any]]


@dataclass(frozen=True)
class Stormy:
    """What was seen of a study that was cut off again and again, and then ended: its training steps, its last words."""

    store: Path
    cuts: Sequence[Cut]
    seen: list[Seen]
    steps: int
    output: str


@pytest.fixture(
    scope="module", params=["killed", *(pytest.param(name, marks=pytest.mark.slow) for name in [*CUTS][1:])]
)
def stormy(
    request: pytest.FixtureRequest, make_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Stormy:
    lab, store = make_lab(), tmp_path_factory.mktemp("stormy")

    def cut_off(cut: Cut) -> Seen:
        process = lab.start_held(cut.allowed, store, "--workers", "2", ended=cut.ended)
        listening = lab.listening()
        (os.killpg if cut.everybody else os.kill)(process.pid, cut.number)
        output = "".join(process.communicate())
        assert process.returncode == cut.code, output
        until(lambda: not lab.running(), f"everything is gone after {cut.number!r}")
        return Seen(listening, output, rows(store, "small"), rows(store, "small", "epochs"))

    cuts = CUTS[request.param]
    seen = [cut_off(cut) for cut in cuts]
    lab.allow(10**6)
    output, _ = lab.topk("run", "my_lab:study", "--store", store, "--workers", "2")
    return Stormy(store, cuts, seen, len(lab.noted("steps")), output)


def test_everything_listens_on_loopback_alone(stormy: Stormy) -> None:
    for seen in stormy.seen:
        check_loopback(seen.listening)


def test_an_interrupt_says_how_to_go_on(stormy: Stormy) -> None:
    for cut, seen in zip(stormy.cuts, stormy.seen, strict=True):
        assert ("the same command goes on from here" in seen.output) == (cut.number != signal.SIGKILL)
        assert "***" not in seen.output and "Traceback" not in seen.output


def test_what_had_ended_is_kept_and_not_repeated(stormy: Stormy) -> None:
    whole = {row["key"]: row for row in rows(stormy.store, "small")}
    assert len(whole) == len(rows(stormy.store, "small")) == 16
    for cut, seen in zip(stormy.cuts, stormy.seen, strict=True):
        assert len(seen.trials) == cut.ended
        assert all(whole[row["key"]] == row for row in seen.trials)
        assert {row["key"] for row in seen.epochs} >= {row["key"] for row in seen.trials}
    assert f"{16 - stormy.cuts[-1].ended} trials ran" in stormy.output


def test_in_the_end_it_is_as_if_nothing_had_happened(stormy: Stormy, reference: Any) -> None:
    for kind in ("trials", "epochs"):
        assert rows(stormy.store, "small", kind) == rows(reference.store, "small", kind)
    table = "small/tables/table.csv"
    assert (stormy.store / table).read_bytes() == (reference.store / table).read_bytes()
    ours, theirs = (tracked(f"sqlite:///{store / 'mlflow.db'}") for store in (stormy.store, reference.store))
    assert ours == theirs and set(ours.values()) == {1}
    assert not list((stormy.store / "small").glob("checkpoints/*"))


def test_a_trial_that_was_cut_off_in_its_middle_goes_on_from_there(stormy: Stormy, reference: Any) -> None:
    """Of each of two trials, at each cut, only the step is repeated in which it was held."""
    assert stormy.steps == reference.steps + 2 * len(stormy.cuts)


@pytest.mark.slow
def test_an_interrupt_while_ray_starts_leaves_nothing(lab: Any, tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = lab.start("run", "lab:plain", "--store", store)
    until(lambda: any("gcs_server" in name for name in lab.running().values()), "Ray starts", process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "the same command goes on from here" in err
    until(lambda: not lab.running(), "Ray is gone")
    assert not store.exists()
