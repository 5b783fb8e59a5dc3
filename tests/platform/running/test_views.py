"""Views of a running study: the same facts live, as lines, as JSON and by ``topk status``."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_studies import searched, small_study
from made_trainings import state_of
from rich.console import Console

from topk_platform.cli.run_command import print_event
from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.protocol import Tally
from topk_platform.protocol.search_progress import Ended
from topk_platform.records.ledger import Ledger
from topk_platform.records.recorded import Recorded, note_plan
from topk_platform.records.run_notes import OpenTrial, Unfinished
from topk_platform.records.states import ArmState, StudyState, note_state, read_state
from topk_platform.records.storage.store import Store
from topk_platform.running import watching
from topk_platform.running.views import arms_text, headline, own_console, progress_text, trials_text, view_on
from topk_platform.running.watching import Event, OnEvent, Watch, noting
from topk_platform.specs import TrialRecord

STUDY = small_study(searched(), searched("focal"), "topk_hinge", k=1, trials=3, seeds=2)


def console_of(width: int, height: int = 24, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=terminal, color_system=None)


class Drive:
    """A run without workers: trials end as the test says, a search trial's value being its number in tenths."""

    def __init__(self, folder: Path, view: OnEvent = lambda _watch, _event: None) -> None:
        self.progress = state_of(STUDY)
        self.watch, self.view = Watch("s", self.progress, slots=2), view
        self.ledger = Ledger.open(Store.open(folder), "s")
        self.notify(Event("begun"))

    def notify(self, event: Event) -> None:
        self.watch(event)
        self.view(self.watch, event)

    def step(self, fate: str = "completed") -> None:
        (trial,) = self.progress.next_trials()
        self.notify(Event("started", (trial,)))
        if fate == "again":
            self.progress.release(trial)
            self.progress.retries += 1
            return self.notify(Event("again", (trial,), why="process lost: killed"))
        if fate == "open":
            self.progress.leave(trial)
            return self.notify(Event("open", (trial,), why="process lost: killed; buy memory"))
        value = dict.fromkeys(STUDY.metrics, trial.number / 10) if fate == "completed" else {}
        record = TrialRecord(trial, fate, "" if value else "as asked", value, None, (), 2.0)  # type: ignore[arg-type]
        with self.ledger.writing(STUDY) as writer:
            self.ledger.identify({STUDY.arm_id(arm): Identity("c", "f") for arm in STUDY.arms})
            note_plan(self.ledger.store, STUDY)
            writer.put(record)
        self.progress.end(trial, Ended.from_record(record))
        return self.notify(Event("ended", (trial,), record))


FATES = ("completed", "failed", "completed", "again", "completed", "diverged", "completed", "open")


def test_all_views_show_the_same_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live, lines = (console_of(200, terminal=terminal) for terminal in (True, False))
    with view_on(live) as live_view, view_on(lines) as lines_view, view_on(None) as quiet:

        def view(watch: Watch, event: Event) -> None:
            for one_view in (live_view, lines_view, print_event, quiet):
                one_view(watch, event)

        drive = Drive(tmp_path, view)
        for fate in FATES:
            drive.step(fate)
    state = drive.watch.state()
    assert state.whole == ArmState("s", Tally(completed=4, diverged=1, failed=1), left=6, lost=1)
    assert (state.retries, state.slots) == (1, 2)
    assert "6/12 trials: 4 completed, 1 diverged, 1 failed, 1 lost, tried again 1" in headline(state)
    shown = lines.file.getvalue()  # type: ignore[attr-defined]
    for line in (headline(state), "failed: as asked", "is tried again: process lost: killed"):
        assert line in shown
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ends = [fate if fate in ("again", "open") else "ended" for fate in FATES]
    assert [e["event"] for e in events] == ["begun", *(kind for end in ends for kind in ("started", end))]
    counts = {"workers": 2, "busy": 0, "total": 12, "left": 12, "not_counted": {}}
    assert events[0] | {"time": ""} == {"event": "begun", "time": "", "study": "s", **counts}
    assert events[1]["busy"] == 1
    assert [e["status"] for e in events if "status" in e] == [
        fate for fate in FATES if fate not in ("again", "open")
    ]
    screen = live.file.getvalue()  # type: ignore[attr-defined]
    assert "6/12 trials: " in screen and all(f"{arm.arm} " in screen for arm in state.arms)


def test_without_a_terminal_each_arm_has_a_line_when_it_is_finished(tmp_path: Path) -> None:
    lines = console_of(200, terminal=False)
    with view_on(lines) as view:
        drive = Drive(tmp_path, view)
        while drive.progress.left:
            drive.step()
    shown = lines.file.getvalue().splitlines()  # type: ignore[attr-defined]
    for arm in drive.watch.state().arms:
        (line,) = (line for line in shown if line.startswith(f"{arm.arm}, done {arm.total}/{arm.total}, "))
        assert f"best validation top1 {100 * (arm.best or 0.0):.1f} %" in line


def test_a_running_trial_is_shown_with_its_last_epoch_and_value(tmp_path: Path) -> None:
    drive = Drive(tmp_path)
    trials = drive.progress.next_trials()
    drive.notify(Event("started", trials))
    drive.notify(Event("progress", trials, epoch=1, value=0.5))
    lines = trials_text(drive.watch.state()).plain.splitlines()
    assert lines[1].split("  ")[:3] == [f"{STUDY.arms[0].name} search 0", "epoch 1/1", "top1 50.0 %"]
    console = console_of(200)
    console.print(progress_text(drive.watch.state(), lines=3))
    shown = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(shown) == 3 + 2 and shown[2].startswith("and 2 more"), (
        "two of three lines are for arms; two are heads"
    )


def test_status_reads_what_the_view_shows(tmp_path: Path) -> None:
    """What has ended and what is left follow from the ledger and the plan; what runs comes from the driver's note."""
    drive = Drive(tmp_path)
    drive.step()
    with noting(drive.ledger.store, drive.watch):
        for fate in ("failed", "completed", "completed", "open"):
            drive.step(fate)
        (trial,) = drive.progress.next_trials()
        drive.notify(Event("started", (trial,)))
        live = drive.watch.state()
    note_state(drive.ledger.store, live)
    read = read_state(Recorded.read(drive.ledger))
    assert [(a.arm, a.tally, a.left, a.metric, a.best, a.values) for a in read.arms] == [
        (a.arm, a.tally, a.left, a.metric, a.best, a.values) for a in live.arms
    ]
    with drive.ledger.writing(STUDY):  # somebody drives it
        driven = read_state(Recorded.read(drive.ledger))
    assert (driven.events, driven.whole, driven.whole.running, driven.whole.lost) == (
        live.events,
        live.whole,
        1,
        1,
    )
    assert (read.whole.running, read.whole.lost) == (0, 0)
    Unfinished((OpenTrial(trial.key, trial.arm.name, "process lost: killed", ""),)).note(drive.ledger.store)
    assert read_state(Recorded.read(drive.ledger)).whole.lost == 1


def test_a_note_is_of_this_run_from_its_start_and_nothing_runs_at_its_end(tmp_path: Path) -> None:
    """Though a killed run noted trials, and though the run was cut short and its driver still writes tables."""
    drive = Drive(tmp_path)
    killed = StudyState(STUDY.name, (ArmState(STUDY.arms[0].name, left=12, running=2),), workers=2, slots=2)
    note_state(drive.ledger.store, killed)
    notes = []
    with drive.ledger.writing(STUDY):
        with noting(drive.ledger.store, drive.watch):
            notes.append(read_state(Recorded.read(drive.ledger)))
            trials = drive.progress.next_trials()
            drive.notify(Event("started", trials))
            assert (drive.watch.state().whole.running, len(drive.watch.state().training)) == (1, 1)
            drive.progress.release(trials[0])
        notes.append(read_state(Recorded.read(drive.ledger)))
    assert [(note.whole.running, note.workers, note.slots) for note in notes] == [(0, 0, 2)] * 2
    assert not any(note.training for note in notes)


def test_a_note_is_written_again_only_if_it_failed_or_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may be a request to a cloud."""
    drive, looked, written = Drive(tmp_path), threading.Semaphore(0), list[StudyState]()

    def note(_store: Store, state: StudyState) -> None:
        written.append(state)
        if len(written) == 1:
            raise StoreError("not now")

    def looks(state: Callable[[], StudyState] = drive.watch.state) -> StudyState:
        looked.release()
        return state()

    monkeypatch.setattr(watching, "_NOTE_SECONDS", 0.001)
    monkeypatch.setattr(watching, "note_state", note)
    monkeypatch.setattr(drive.watch, "state", looks)
    with noting(drive.ledger.store, drive.watch):
        counts = []
        for _ in range(2):
            for _ in range(9):
                looked.acquire()
            counts.append(len(written))
            drive.notify(Event("started", drive.progress.next_trials()))
    assert counts[0] == 2 and 3 <= counts[1] <= 4


def test_without_a_plan_status_shows_what_has_ended(tmp_path: Path) -> None:
    drive = Drive(tmp_path)
    drive.step()
    for note in ("standing.json", "plan.json"):
        drive.ledger.store.write(note, b"{")
    (arm,) = read_state(Recorded.read(drive.ledger)).arms
    assert (arm.done, arm.total, arm.left) == (1, None, None)


def test_scripts_print_progress_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert not own_console().is_terminal
    own_console().print("text")
    assert capsys.readouterr() == ("", "text\n")


@given(
    most=st.none() | st.integers(1, 6),
    arms=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 2), st.booleans()), min_size=1
    ),
)
@example(most=2, arms=[(0, 1, 0, True), (0, 1, 0, True), (1, 1, 0, True)])
def test_each_arm_has_a_line_and_those_without_room_are_summed_up(
    most: int | None, arms: list[tuple[int, int, int, bool]]
) -> None:
    states = tuple(
        ArmState(
            f"regime-{number}/mlp/loss",
            Tally(completed=ended, failed=failed),
            left=5,
            running=running,
            metric="top5",
            best=0.5 if searched else None,
            values={"learning_rate": 0.01} if searched else {},
            seconds=90.0,
        )
        for number, (running, ended, failed, searched) in enumerate(arms)
    )
    head, *rows = arms_text(StudyState("s", states), most).plain.splitlines()
    assert "pruned" not in head, "columns of empty cells are left out"
    shown = {row.split()[0]: row for row in rows if row.startswith("regime")}
    for arm in (arm for arm in states if arm.arm in shown):
        assert f" {arm.done}/{arm.total} " in shown[arm.arm] and head.split()[:2] == ["arm", "done"]
        assert ("top5 50.0 %" in shown[arm.arm]) == ("learning_rate=0.01" in shown[arm.arm]) == bool(arm.best)
    assert len(rows) == (len(arms) if most is None else min(len(arms), most))
    assert len({len(row) for row in (head, *rows)}) == 1
    if rest := [arm for arm in states if arm.arm not in shown]:
        sums = f"{sum(arm.done for arm in rest)}/{sum(arm.done + 5 for arm in rest)}"
        assert rows[-1].startswith(f"and {len(rest)} more") and sums in rows[-1]
        assert all(not arm.running for arm in rest) or all(arm.running for arm in states if arm.arm in shown)
