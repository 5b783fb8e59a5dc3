"""Processes that die and code that fails: what is recorded, what is tried again, what goes on."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from labs import rows

pytestmark = pytest.mark.timeout(3600)


PAUSES = 2  # after so many faults without progress comes the last try
AGAIN = {"once": 1, "always": PAUSES, "relapses": PAUSES + 1, "crowded": 1}
"""How often a trial of each kind of mischief is tried again."""


@dataclass(frozen=True)
class Troubled:
    """A study of which processes die once, always, and again and again as they get further, and so on.

    Args:
        store: Its store.
        out: What its run printed.
        built: The process id and the kind of mischief of every loss that was built.
    """

    store: Path
    out: str
    built: list[tuple[int, str]]

    def processes(self, how: str) -> set[int]:
        """Return the workers that tried a kind of mischief; the driver, which checks each loss, is not among them."""
        return {pid for pid, kind in self.built if kind == how} - {os.getpid()}

    @property
    def printed(self) -> str:
        """What it printed, however its lines were broken."""
        return " ".join(self.out.split())


@pytest.fixture(scope="module")
def troubled(shared: Any, tmp_path_factory: pytest.TempPathFactory) -> Troubled:
    store = tmp_path_factory.mktemp("store")
    arguments = ("--store", store, "--workers", "2", "--checkpoints", "0")
    out, _ = shared.topk("run", "lab:lost", *arguments, code=3)
    return Troubled(store, out, built(shared))


def test_ray_starts_nothing_that_nobody_asks_for_anything(shared: Any) -> None:
    running = shared.running().values()
    assert any("raylet" in name for name in running)
    assert not [name for name in running if "monitor.py" in name or "dashboard.py" in name]


def test_nothing_stops_the_study(troubled: Troubled) -> None:
    """And of a fault that does not end there is no record at all."""
    result = sorted((row["loss"], row["phase"], row["status"]) for row in rows(troubled.store))
    sound = ("crowded", "none", "once", "relapses")
    assert result == sorted(
        [("nan", "search", "diverged")]
        + [(loss, "search", "failed") for loss in ("exits", "hungry", "interrupts", "raises")]
        + [(loss, phase, "completed") for loss in sound for phase in ("search", "confirm")]
    )


@pytest.mark.parametrize("fault", ["once", "relapses", "crowded"])
def test_a_fault_that_passes_leaves_no_trace(fault: str, troubled: Troubled, shared: Any) -> None:
    """A process that is lost once, or more often than it is tried again without progress; a neighbour that takes a
    GPU's memory."""
    assert len(troubled.processes(fault)) >= AGAIN[fault] + 1
    result, none = (
        {row["phase"]: row for row in rows(troubled.store) if row["loss"] == loss} for loss in (fault, "none")
    )
    for phase in ("search", "confirm"):
        assert result[phase]["reason"] == ""
        assert metrics(result[phase]) == metrics(none[phase])


def test_it_replays(troubled: Troubled, shared: Any) -> None:
    (row,) = (row for row in rows(troubled.store) if (row["loss"], row["phase"]) == ("once", "confirm"))
    out, _ = shared.topk("replay", row["key"], "--store", troubled.store)
    assert "bit for bit" in out


def test_a_process_lost_every_time_leaves_its_trial_open(troubled: Troubled) -> None:
    assert len(troubled.processes("always")) == PAUSES + 1
    (line,) = (line for line in troubled.out.splitlines() if line.startswith("open: "))
    assert " plain/with_dropout/always: process lost: " in line
    assert "see what ends processes there" in troubled.printed
    assert len(line) < 900
    assert "2 trials left: " in troubled.printed


def test_what_is_open_is_reported_later_and_by_any_machine(troubled: Troubled, shared: Any) -> None:
    out, _ = shared.topk("status", "--store", troubled.store)
    (line,) = (line for line in out.splitlines() if line.startswith("open: "))
    assert " plain/with_dropout/always: process lost: " in line and "see what ends processes there" in line
    assert "lab: nobody drives it" in out


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raises", "ArithmeticError: no such luck ("),
        ("exits", "SystemExit: enough of it ("),
        ("interrupts", "KeyboardInt"),
        ("hungry", "out of memory at batch size 64, take a smaller batch_size: "),
    ],
)
def test_what_a_trials_own_code_raises_is_final_at_the_first_try(
    troubled: Troubled, how: str, why: str
) -> None:
    (row,) = (row for row in rows(troubled.store) if row["loss"] == how)
    assert len(troubled.processes(how)) == 1
    assert row["reason"].startswith(why)
    assert "lab.py" in row["reason"]
    assert why in " ".join(troubled.out.split())


def test_faults_are_reported_while_their_trials_are_tried_again(troubled: Troubled) -> None:
    output = [line for line in troubled.out.splitlines() if "tried again " in line and " trials: " in line]
    counts = [int(line.rpartition("tried again ")[2].partition(",")[0]) for line in output]
    assert counts == sorted(counts)
    assert counts[-1] == sum(AGAIN.values())


def test_a_loss_that_is_not_finite_is_no_failure(troubled: Troubled) -> None:
    (row,) = (row for row in rows(troubled.store) if row["loss"] == "nan")
    assert "nan" in row["reason"]
    assert not any("/nan:" in line for line in troubled.out.splitlines() if line.startswith("failed"))


@pytest.mark.slow
def test_events_alone_are_on_stdout_whatever_ray_says_of_a_process_that_is_lost(
    lab: Any, tmp_path: Path
) -> None:
    quick = "import topk_platform.running.dispatcher as searcher; searcher.PAUSES = (0.1, 0.2)"
    arguments = ("run", "lab:lost_once", "--store", tmp_path, "--workers", "1", "--json")
    out, err = lab.topk(*arguments, before=quick)
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events].count("again") == 1
    assert (events[-1]["event"], events[-1]["interrupted"]) == ("finished", False)
    assert "(raylet) " in err and "\x1b" not in err


@pytest.mark.slow
def test_run_again_it_tries_what_is_open_and_repeats_nothing(troubled: Troubled, shared: Any) -> None:
    before, pids = rows(troubled.store), len(built(shared))
    out, _ = shared.topk("run", "lab:lost", "--store", troubled.store, code=3)
    assert "0 trials ran" in out and out.count("open: ") == 1
    assert {how for pid, how in built(shared)[pids:] if pid != os.getpid()} == {"always"}
    assert rows(troubled.store) == before


@pytest.mark.slow
def test_a_network_that_cannot_be_kept_is_reported_and_its_result_is_kept(
    shared: Any, tmp_path: Path
) -> None:
    """And a model that raises in its constructor has failed."""
    shared.topk("run", "lab:plain", "--store", tmp_path, "--workers", "1")
    shutil.rmtree(tmp_path / "lab" / "models")
    (tmp_path / "lab" / "models").write_text("in the way")
    out, _ = shared.topk("run", "lab:unbuilt", "--seeds", "2", "--store", tmp_path, code=1)
    second = next(row for row in rows(tmp_path) if row["seed"] == 2)
    assert second["status"] == "completed" and second["test.top3"] is not None and second["reason"] == ""
    assert f"warning: the network of {second['key']} could not be kept, but its result is kept: " in " ".join(
        out.split()
    )
    (failed,) = (row for row in rows(tmp_path) if row["model"] == "unbuildable")
    assert failed["status"] == "failed" and "ArithmeticError: in its constructor" in failed["reason"]


@pytest.mark.slow
def test_a_reused_process_gives_what_a_fresh_one_gives(shared: Any, tmp_path: Path) -> None:
    before = len(built(shared))
    shared.topk("run", "lab:reused", "--store", tmp_path, "--workers", "1")
    workers = [(pid, how) for pid, how in built(shared)[before:] if pid != os.getpid()]
    assert len({pid for pid, _ in workers}) == 1, "the trials did not share one process"
    hows = [how for _, how in workers]
    assert "nasty" in hows[: len(hows) - hows[::-1].index("none")], "nothing nasty ran before"
    confirmed = {row["loss"]: row for row in rows(tmp_path) if row["phase"] == "confirm"}
    out, _ = shared.topk("replay", confirmed["none"]["key"], "--store", tmp_path)  # in a process of its own
    assert "bit for bit" in out


@pytest.mark.slow
def test_a_process_that_finds_other_code_is_refused_and_the_next_run_goes_on(
    shared: Any, tmp_path: Path
) -> None:
    """The first process dies when the file was changed; the next one, whatever it trains, imports the changed file."""
    source = (shared.folder / "lab.py").read_text()
    (shared.folder / "edited_lab.py").write_text(source.replace('"lab:', '"edited_lab:'))
    command = ("run", "edited_lab:edited", "--store", tmp_path, "--workers", "1")
    _, err = shared.topk(*command, code=2)
    output = err.splitlines()[-1]
    assert output.startswith("topk: arm plain/with_dropout/") and ": a worker has other code than" in output
    assert "the code changed meanwhile" in output
    assert {row["loss"] for row in rows(tmp_path)} <= {"none"}
    shared.topk(*command)
    result = [row for row in rows(tmp_path) if row["loss"] == "edits"]
    assert [row["status"] for row in result] == ["completed"] * 2
    assert len({row["code_version"] for row in result}) == 1


@pytest.mark.slow
def test_a_worker_that_reads_other_data_is_refused_and_the_next_run_goes_on(
    shared: Any, tmp_path: Path
) -> None:
    (shared.folder / "other-data").touch()
    command = ("run", "lab:plain", "--store", tmp_path, "--workers", "1")
    _, err = shared.topk(*command, code=2)
    (shared.folder / "other-data").unlink()
    output = err.splitlines()[-1]
    assert output.startswith("topk: dataset lab:data has fingerprint") and "Ended trials are kept" in output
    assert rows(tmp_path) == []
    shared.topk(*command)
    assert [row["status"] for row in rows(tmp_path)] == ["completed"] * 2


@pytest.mark.slow
def test_failed_trials_run_again_when_asked_to_in_place_of_their_records(shared: Any, tmp_path: Path) -> None:
    command = ("run", "lab:stale", "--store", tmp_path, "--workers", "1")
    shared.topk(*command, code=1)
    before = {row["key"]: row for row in rows(tmp_path)}
    (failed,) = (row for row in before.values() if row["status"] == "failed")
    (shared.folder / "repaired").touch()
    out, _ = shared.topk(*command, code=1)
    assert "0 trials ran" in out
    out, _ = shared.topk(*command, "--retry-failed")
    assert "2 trials ran" in out  # the search and its confirmation
    after = {row["key"]: row for row in rows(tmp_path)}
    assert len(after) == len(rows(tmp_path)) == 4
    assert after.keys() >= before.keys()
    assert after[failed["key"]]["status"] == "completed"
    assert all(after[key] == row for key, row in before.items() if key != failed["key"])


def built(lab: Any) -> list[tuple[int, str]]:
    """Return the process id and the kind of every mischief that was built so far."""
    lines = (line.split() for line in lab.noted("pids.txt"))
    return [(int(pid), how) for pid, how in lines]


def metrics(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name.startswith(("validation.", "test."))}
