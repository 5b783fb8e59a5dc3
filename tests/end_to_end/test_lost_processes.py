"""Processes that die and code that fails: what is recorded, what is tried again, what goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Rows = Callable[..., list[dict[str, Any]]]

pytestmark = pytest.mark.timeout(3600)


@dataclass(frozen=True)
class Troubled:
    """A study of which one process dies once, one always, one arm raises and one has NaN losses.

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


@pytest.fixture(scope="module")
def troubled(shared: Any, tmp_path_factory: pytest.TempPathFactory) -> Troubled:
    store = tmp_path_factory.mktemp("store")
    out, _ = shared.topk("run", "lab:lost", "--store", store, "--workers", "2", code=1)
    return Troubled(store, out, built(shared))


def test_ray_starts_nothing_that_nobody_asks_for_anything(shared: Any) -> None:
    running = shared.running().values()
    assert any("raylet" in name for name in running)
    assert not [name for name in running if "monitor.py" in name or "dashboard.py" in name]


def test_nothing_stops_the_study(troubled: Troubled, rows: Rows) -> None:
    found = sorted((row["loss"], row["phase"], row["status"]) for row in rows(troubled.store))
    assert found == [
        ("always", "search", "failed"),
        ("exits", "search", "failed"),
        ("interrupts", "search", "failed"),
        ("nan", "search", "diverged"),
        ("none", "confirm", "completed"),
        ("none", "search", "completed"),
        ("once", "confirm", "completed"),
        ("once", "search", "completed"),
        ("raises", "search", "failed"),
    ]


def test_a_lost_process_is_tried_again_and_leaves_no_trace(
    troubled: Troubled, rows: Rows, shared: Any
) -> None:
    assert len(troubled.processes("once")) >= 2
    once, none = (
        {row["phase"]: row for row in rows(troubled.store) if row["loss"] == loss}
        for loss in ("once", "none")
    )
    for phase in ("search", "confirm"):
        assert once[phase]["reason"] == ""
        assert metrics(once[phase]) == metrics(none[phase])
    out, _ = shared.topk("replay", once["confirm"]["key"], "--store", troubled.store)
    assert "bit for bit" in out


def test_a_process_lost_every_time_is_tried_four_times(troubled: Troubled, rows: Rows) -> None:
    (row,) = (row for row in rows(troubled.store) if row["loss"] == "always")
    assert len(troubled.processes("always")) == 4
    assert "lost 4 times" in row["reason"]
    assert "dead" in row["reason"]
    assert len(row["reason"]) < 700
    assert "lost 4 times" in " ".join(troubled.out.split())


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raises", "ArithmeticError: no such luck ("),
        ("exits", "SystemExit: enough of it ("),
        ("interrupts", "KeyboardInt"),
    ],
)
def test_what_a_trials_own_code_raises_is_final_at_the_first_try(
    troubled: Troubled, rows: Rows, how: str, why: str
) -> None:
    (row,) = (row for row in rows(troubled.store) if row["loss"] == how)
    assert len(troubled.processes(how)) == 1
    assert row["reason"].startswith(why)
    assert "lab.py" in row["reason"]
    assert why in " ".join(troubled.out.split())


def test_lost_processes_are_told_of_while_they_are_tried_again(troubled: Troubled) -> None:
    told = [line for line in troubled.out.splitlines() if "lost and tried again" in line]
    counts = [int(line.rpartition("lost and tried again ")[2].partition(",")[0]) for line in told]
    assert counts == sorted(counts)
    assert counts[-1] in (3, 4)  # the one three times; the other once, unless the first died before it


def test_a_loss_that_is_not_finite_is_no_failure(troubled: Troubled, rows: Rows) -> None:
    (row,) = (row for row in rows(troubled.store) if row["loss"] == "nan")
    assert "nan" in row["reason"]
    assert not any("/nan:" in line for line in troubled.out.splitlines() if line.startswith("failed"))


def test_run_again_it_repeats_nothing(troubled: Troubled, rows: Rows, shared: Any) -> None:
    before = rows(troubled.store)
    out, _ = shared.topk("run", "lab:lost", "--store", troubled.store, code=1)
    assert "0 trials ran" in out
    assert rows(troubled.store) == before


def test_a_reused_process_gives_what_a_fresh_one_gives(shared: Any, rows: Rows, tmp_path: Path) -> None:
    before = len(built(shared))
    shared.topk("run", "lab:reused", "--store", tmp_path, "--workers", "1")
    workers = [(pid, how) for pid, how in built(shared)[before:] if pid != os.getpid()]
    assert len({pid for pid, _ in workers}) == 1, "the trials did not share one process"
    hows = [how for _, how in workers]
    assert "nasty" in hows[: len(hows) - hows[::-1].index("none")], "nothing nasty ran before"
    confirmed = {row["loss"]: row for row in rows(tmp_path) if row["phase"] == "confirm"}
    out, _ = shared.topk("replay", confirmed["none"]["key"], "--store", tmp_path)  # in a process of its own
    assert "bit for bit" in out


def test_a_process_that_finds_other_code_is_refused_and_the_next_run_goes_on(
    shared: Any, rows: Rows, tmp_path: Path
) -> None:
    """The first process dies when the file was changed; the one that tries again imports the changed file."""
    source = (shared.folder / "lab.py").read_text()
    (shared.folder / "edited_lab.py").write_text(source.replace('"lab:', '"edited_lab:'))
    (shared.folder / "died").unlink(missing_ok=True)
    command = ("run", "edited_lab:edited", "--store", tmp_path, "--workers", "1")
    _, err = shared.topk(*command, code=2)
    told = err.splitlines()[-1]
    assert told.startswith("topk: arm plain/with_dropout/edits: a worker found code version")
    assert "a source file changed meanwhile" in told
    assert {row["loss"] for row in rows(tmp_path)} <= {"none"}
    shared.topk(*command)
    found = [row for row in rows(tmp_path) if row["loss"] == "edits"]
    assert [row["status"] for row in found] == ["completed"] * 2
    assert len({row["code_version"] for row in found}) == 1


def test_failed_trials_run_again_when_told_so_in_place_of_their_records(
    shared: Any, rows: Rows, tmp_path: Path
) -> None:
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
