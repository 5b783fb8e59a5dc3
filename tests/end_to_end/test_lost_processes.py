"""Processes that die, code that fails, interrupts: what is recorded, what stays behind, what goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rows = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)


@pytest.fixture(scope="module")
def troubled(make_lab: Callable[[], Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, str]:
    """A study of which one process dies once, one always, one arm raises and one has NaN losses."""
    lab, store = make_lab(), tmp_path_factory.mktemp("store")
    # An address in the environment must not make a run without --address join anything.
    out, _ = lab.topk(
        "run", "lab:lost", "--store", store, "--workers", "2", code=1, RAY_ADDRESS="127.0.0.1:1"
    )
    return lab, store, out


def test_nothing_stops_the_study(troubled: tuple[Any, Path, str], rows: Rows) -> None:
    _, store, _ = troubled
    found = sorted((row["loss"], row["phase"], row["status"]) for row in rows(store))
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
    troubled: tuple[Any, Path, str], rows: Rows
) -> None:
    lab, store, _ = troubled
    pids = [line.split()[0] for line in tries(lab, "once")]
    assert len(pids) >= 3
    assert len(set(pids)) >= 2
    once, none = (
        {row["phase"]: row for row in rows(store) if row["loss"] == loss} for loss in ("once", "none")
    )
    for phase in ("search", "confirm"):
        assert once[phase]["reason"] == ""
        assert metrics(once[phase]) == metrics(none[phase])
    out, _ = lab.topk("replay", once["confirm"]["key"], "--store", store)
    assert "bit for bit" in out


def test_a_process_lost_every_time_is_tried_four_times(troubled: tuple[Any, Path, str], rows: Rows) -> None:
    lab, store, out = troubled
    (row,) = (row for row in rows(store) if row["loss"] == "always")
    # The driver builds each loss to check it; every further process is a try.
    assert len({line.split()[0] for line in tries(lab, "always")}) == 1 + 4
    assert "lost 4 times" in row["reason"]
    assert "dead" in row["reason"]
    assert len(row["reason"]) < 700
    assert "lost 4 times" in " ".join(out.split())


def test_an_exception_is_final_at_the_first_try(troubled: tuple[Any, Path, str], rows: Rows) -> None:
    lab, store, out = troubled
    (row,) = (row for row in rows(store) if row["loss"] == "raises")
    assert len({line.split()[0] for line in tries(lab, "raises")}) == 1 + 1
    assert row["reason"].startswith("ArithmeticError: no such luck (")
    assert "lab.py" in row["reason"]
    assert "no such luck" in " ".join(out.split())


@pytest.mark.parametrize(
    ("how", "why"), [("exits", "SystemExit: enough of it ("), ("interrupts", "KeyboardInt")]
)
def test_an_exit_or_an_interrupt_of_the_trials_own_code_is_an_exception_too(
    troubled: tuple[Any, Path, str], rows: Rows, how: str, why: str
) -> None:
    lab, store, _ = troubled
    (row,) = (row for row in rows(store) if row["loss"] == how)
    assert len({line.split()[0] for line in tries(lab, how)}) == 1 + 1
    assert row["reason"].startswith(why)
    assert "lab.py" in row["reason"]


def test_lost_processes_are_told_of_while_they_are_tried_again(troubled: tuple[Any, Path, str]) -> None:
    _, _, out = troubled
    told = [line for line in out.splitlines() if "lost and tried again" in line]
    counts = [int(line.rpartition("lost and tried again ")[2].partition(",")[0]) for line in told]
    assert counts == sorted(counts)
    assert counts[-1] in (3, 4)  # the one three times; the other once, unless the first died before it


def test_a_loss_that_is_not_finite_is_no_failure(troubled: tuple[Any, Path, str], rows: Rows) -> None:
    _, store, out = troubled
    (row,) = (row for row in rows(store) if row["loss"] == "nan")
    assert "nan" in row["reason"]
    assert not any("/nan:" in line for line in out.splitlines() if line.startswith("failed"))


def test_run_again_it_repeats_nothing(troubled: tuple[Any, Path, str], rows: Rows) -> None:
    lab, store, _ = troubled
    before = rows(store)
    out, _ = lab.topk("run", "lab:lost", "--store", store, code=1)
    assert "0 trials ran" in out
    assert rows(store) == before


def test_a_reused_process_gives_what_a_fresh_one_gives(lab: Any, rows: Rows, tmp_path: Path) -> None:
    lab.topk("run", "lab:reused", "--store", tmp_path, "--workers", "1")
    built = [line.split() for line in lab.folder.joinpath("pids.txt").read_text().splitlines()]
    workers = [(pid, how) for pid, how in built if int(pid) != int(built[0][0])]
    assert len({pid for pid, _ in workers}) == 1, "the trials did not share one process"
    hows = [how for _, how in workers]
    assert "nasty" in hows[: len(hows) - hows[::-1].index("none")], "nothing nasty ran before"
    confirmed = {row["loss"]: row for row in rows(tmp_path) if row["phase"] == "confirm"}
    out, _ = lab.topk("replay", confirmed["none"]["key"], "--store", tmp_path)  # in a process of its own
    assert "bit for bit" in out


@pytest.mark.slow
def test_a_process_that_finds_other_code_is_refused_and_the_next_run_goes_on(
    lab: Any, rows: Rows, tmp_path: Path
) -> None:
    """The first process dies when the file was changed; the one that tries again imports the changed file."""
    _, err = lab.topk("run", "lab:edited", "--store", tmp_path, "--workers", "1", code=2)
    told = err.splitlines()[-1]
    assert told.startswith("topk: arm plain/with_dropout/edits: a worker found code version")
    assert "a source file changed meanwhile" in told
    assert {row["loss"] for row in rows(tmp_path)} <= {"none"}
    lab.topk("run", "lab:edited", "--store", tmp_path)
    found = [row for row in rows(tmp_path) if row["loss"] == "edits"]
    assert [row["status"] for row in found] == ["completed"] * 2
    assert len({row["code_version"] for row in found}) == 1


@pytest.mark.slow
def test_failed_trials_run_again_when_told_so_in_place_of_their_records(
    lab: Any, rows: Rows, tmp_path: Path
) -> None:
    lab.topk("run", "lab:stale", "--store", tmp_path, code=1)
    before = {row["key"]: row for row in rows(tmp_path)}
    (failed,) = (row for row in before.values() if row["status"] == "failed")
    (lab.folder / "repaired").touch()
    out, _ = lab.topk("run", "lab:stale", "--store", tmp_path, code=1)
    assert "0 trials ran" in out
    out, _ = lab.topk("run", "lab:stale", "--store", tmp_path, "--retry-failed")
    assert "2 trials ran" in out  # the search and its confirmation
    after = {row["key"]: row for row in rows(tmp_path)}
    assert len(after) == len(rows(tmp_path)) == 4
    assert after.keys() >= before.keys()
    assert after[failed["key"]]["status"] == "completed"
    assert all(after[key] == row for key, row in before.items() if key != failed["key"])


@needs_proc
@pytest.mark.parametrize(
    ("number", "everybody", "code"),
    [
        (signal.SIGINT, True, 130),
        pytest.param(signal.SIGTERM, True, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, False, 143, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_ends_the_run_and_the_next_goes_on(
    lab: Any, rows: Rows, until: Until, tmp_path: Path, number: int, everybody: bool, code: int
) -> None:
    """Ctrl-C and SLURM send theirs to every process, Kubernetes to the driver."""
    process = lab.start("run", "lab:slow", "--store", tmp_path, "--workers", "2")
    until(lambda: tmp_path.joinpath("lab").exists() and len(rows(tmp_path)) >= 2, "two trials")
    (os.killpg if everybody else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, out + err
    assert "the same command goes on from here" in out + err
    assert "***" not in err and "Traceback" not in err
    until(lambda: not lab.processes(), "Ray to be gone", seconds=15)
    half = rows(tmp_path)
    assert 2 <= len(half) < 8
    assert {row["key"] for row in rows(tmp_path, kind="epochs")} >= {row["key"] for row in half}
    out, _ = lab.topk("run", "lab:slow", "--store", tmp_path, "--workers", "2")
    assert f"{8 - len(half)} trials ran" in out
    whole = {row["key"]: row for row in rows(tmp_path)}
    assert len(whole) == len(rows(tmp_path)) == 8
    assert all(whole[row["key"]] == row for row in half)
    assert {row["status"] for row in whole.values()} <= {"completed", "pruned"}


@needs_proc
def test_an_interrupt_while_ray_starts_leaves_nothing(lab: Any, until: Until, tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = lab.start("run", "lab:plain", "--store", store)
    until(lambda: any("gcs_server" in line for line in lab.processes()), "Ray to start")
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "the same command goes on from here" in err
    until(lambda: not lab.processes(), "Ray to be gone", seconds=15)
    assert not store.exists()


def tries(lab: Any, how: str) -> list[str]:
    return [
        line for line in lab.folder.joinpath("pids.txt").read_text().splitlines() if line.endswith(f" {how}")
    ]


def metrics(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name.startswith(("validation.", "test."))}
