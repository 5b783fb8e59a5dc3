"""A run of a study: it trains the missing trials and writes the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.protocol import Board, Durations
from topk_platform.records import (
    ArmHistory,
    Store,
    StudyRows,
    Undone,
    Unsound,
    Writer,
    damaged_artifacts,
    forget,
    last_counted,
    missing_artifacts,
    note_plan,
    read_all_ranks,
    set_aside,
)
from topk_platform.reports.words import command
from topk_platform.results import Table, build_table
from topk_platform.running.driver.boards import in_environment, make_board
from topk_platform.running.driver.budget import Budget
from topk_platform.running.driver.incomplete import trained_again, used
from topk_platform.running.driver.launching import Cluster, Launch, on_cluster
from topk_platform.running.driver.recording import Recorder, draws_report, make_pictures
from topk_platform.running.driver.retries import Faults
from topk_platform.running.driver.summary import Summary
from topk_platform.running.preflight.changes import outdated
from topk_platform.running.progress.events import Event
from topk_platform.running.progress.watching import Noting, Watch
from topk_platform.specs import Arm, Study
from topk_platform.tracking import Feed, moved, tracking_uri

__all__ = ["Execution", "Progress"]

Progress = Callable[[Watch, Event], None]
"""Called with every event, and with the study's progress at that time."""


@dataclass(frozen=True)
class _End:
    """The reason why a run ended with trials left.

    Args:
        partial: Whether the budget allowed no further trial.
        interrupted: Whether the user or a signal ended the run.
    """

    partial: bool
    interrupted: bool

    @classmethod
    def of(cls, board: Board, budget: Budget, faults: Faults) -> _End:
        if faults.ended:
            return cls(partial=False, interrupted=False)
        # Open trials count as started, see Conductor.
        used_up = board.held(lambda arm_id, trials: budget.allows(arm_id, len(faults.open) + trials))
        partial = board.left > 0 and (budget.over or used_up)
        return cls(partial, board.left > 0 and not board.stuck and not partial)


@dataclass
class Execution:
    """A run: it trains the missing trials of a part of a study, and writes the tables of the whole study.

    Args:
        whole: The study as it is defined.
        part: The study with the requested arms and the requested budget.
        counted: Which recorded rows count, by arm identity.
        rows: The recorded rows.
        launch: The settings of the run.
        notify: Called with every event.
    """

    whole: Study
    part: Study
    counted: dict[str, Identity]
    rows: StudyRows
    launch: Launch
    notify: Progress

    def __post_init__(self) -> None:
        self.ledger = self.rows.ledger
        self.store = self.ledger.store

    def run(self) -> Summary:
        """Run the study, and return the summary."""
        again, damaged, line = self._again()
        with (
            self._cluster(needed=bool(self._board().left or again)) as cluster,
            self.ledger.writing(self.part) as writer,
        ):
            self._identify(cluster)
            self.rows.refresh()  # another run may have written before this one locked the ledger
            if again or damaged:
                again, damaged, line = self._again()
            set_aside(self.store, damaged)
            if line:
                self.launch.patience.say(line)
            writer.remove(again)
            self.rows.refresh()
            board, recorder = self._timed_board(), self._recorder(writer, again)
            forget(self.store, self.rows.keys)
            faults, end = self._recorded(board, recorder, cluster)
            if not board.left and self.part == self.whole:
                with suppress(StoreError):  # those of trials that no longer count would stay for ever
                    forget(self.store)
            tried = () if end.interrupted or end.partial or faults.ended else self.part.arms
            _note_undone(self.store, self.whole, tried, faults, recorder.tracking_error)
            return self._summary(board, recorder, faults, end)

    def _recorded(self, board: Board, recorder: Recorder, cluster: Cluster) -> tuple[Faults, _End]:
        """Train the remaining trials and write the tables; return what faults left undone, and why the run ended."""
        if board.left:
            self.rows.release()  # while trials run, the driver needs the memory but not the rows
        hurry = partial(self._hurry, recorder)
        with _closing(lambda: recorder.close(self.whole, self._known), hurry):
            faults = self._train(board, recorder, cluster)
            end = _End.of(board, self.launch.budget, faults)
            if end.interrupted:
                hurry()
            recorder.hurry = bool(faults.ended)
        return faults, end

    def _hurry(self, recorder: Recorder) -> None:
        """After an interrupt, wait less for the store, and say why the run has not ended yet."""
        recorder.writer.hurry()
        if recorder.feed is not None:
            sync = command("sync", self.part, *self.launch.sync, given=self.launch.given)
            self.launch.patience.say(
                f"Interrupted: MLflow gets what it lacks, which can take minutes. Another signal, such as Ctrl-C, "
                f"ends this at once and loses nothing: `{sync}` or the next run fills it in"
            )

    def _cluster(self, *, needed: bool) -> AbstractContextManager[Cluster]:
        return on_cluster(self.part, self.launch) if needed else nullcontext(Cluster())

    def _identify(self, cluster: Cluster) -> None:
        """Note which rows count, now that the machines are known, and note the run's plan and its data."""
        if cluster.environment is not None:
            self.counted = in_environment(self.part, self.counted, cluster.environment)
        self.ledger.identify({**last_counted(self.ledger, self.whole), **self.counted})
        note_plan(self.store, self.part)
        from topk_platform.running.estimate.samples import note_samples  # noqa: PLC0415 - torch

        note_samples(self.store, self.part, self.counted)

    def _recorder(self, writer: Writer, again: Sequence[str]) -> Recorder:
        uri, store = self.launch.mlflow, self.launch.store
        own = store.local is not None and uri == tracking_uri(store.local)
        if line := moved(self.store, None if own else uri):
            self.launch.patience.say(line)
        feed = None if uri is None else Feed(uri, self.ledger, store.local, stale=again)
        if feed is not None:
            feed.start()
        draws = feed is not None and draws_report()
        return Recorder(
            self.ledger, writer, feed, partial(make_pictures, store=store.address) if draws else None
        )

    def _train(self, board: Board, recorder: Recorder, cluster: Cluster) -> Faults:
        """Train the remaining trials; return the work that faults left undone."""
        budget = self.launch.budget
        watch = Watch(self.whole.name, board, budget.durations)
        notified = partial(_notify, watch, self.notify)
        if not board.left:
            notified(Event("begun"))
            return Faults()
        notified(self._begun(board, cluster))
        from topk_platform.running.driver.tuning import tune_trials  # noqa: PLC0415 - Ray, which a finished study does not need

        with Noting(self.store, watch):
            if self.launch.address is None:
                budget.guess_unknown(board)
            return tune_trials(self.part, board, recorder, notified, cluster, self.launch)

    def _begun(self, board: Board, cluster: Cluster) -> Event:
        left = [arm_id for arm_id, arm in board.arms.items() if arm.left]
        again = outdated(self.part, self.ledger, self.counted, left)
        why = "; ".join(map(str, again))
        return Event("begun", slots=cluster.slots, gpus=cluster.gpus, why=why)

    def _table(self) -> Table:
        study = self.whole.with_budget(self.part.trials, self.part.seeds, self.part.searches)
        study = replace(study, changed=self.part.changed)
        ranks = partial(read_all_ranks, self.store)
        table = build_table(study, self._known(study), self.part.arms, ranks)
        return replace(table, given=self.launch.given)

    def _summary(self, board: Board, recorder: Recorder, faults: Faults, end: _End) -> Summary:
        return Summary(
            table=self._table(),
            ran=recorder.ran,
            left=board.left,
            tracking_error=recorder.tracking_error,
            folder=self.store.uri,
            interrupted=end.interrupted,
            faults=faults,
            partial=", ".join(sorted(self.launch.budget.held)) if end.partial else "",
            beyond=sum(arm.beyond for arm in board.arms.values()),
            only=self.launch.only,
            tracking=self.launch.sync,
        )

    def _known(self, study: Study) -> dict[str, ArmHistory]:
        return self.rows.histories(study, last_counted(self.ledger, study))

    def _again(self) -> tuple[list[str], list[Unsound], str]:
        """Return the keys of trials that train again, the damaged files of all confirmations, and a line about both.

        The files include those of arms that this run does not train: once files are set aside, tables report them as
        missing.
        """
        needed = self.launch.needed
        everything = self._known(self.whole).values()
        confirmed = [row for history in everything for row in history.confirm.values()]
        damaged = damaged_artifacts(self.store, confirmed, needed)
        part = self._histories()
        table = used(self.part, part)
        keys = {row["key"] for row in table}
        files = [
            *missing_artifacts(self.store, table, needed),
            *(file for file in damaged if file.key in keys),
        ]
        failed = _failed(part.values()) if self.launch.retry_failed else []
        return [*failed, *dict.fromkeys(file.key for file in files)], damaged, trained_again(files)

    def _histories(self) -> dict[str, ArmHistory]:
        return self.rows.histories(self.part, self.counted)

    def _board(self) -> Board:
        return make_board(self.part, self.counted, self._histories())

    def _timed_board(self) -> Board:
        """Return the study's state, and note the times of ended trials for the run's limits."""
        histories = self._histories()
        self.launch.budget.durations = Durations({i: one.ended_seconds() for i, one in histories.items()})
        return make_board(self.part, self.counted, histories)


def _failed(histories: Iterable[ArmHistory]) -> list[str]:
    return [row["key"] for history in histories for row in history.rows() if row["status"] == "failed"]


def _notify(watch: Watch, notify: Progress, event: Event) -> None:
    watch(event)
    if event.kind != "progress":
        notify(watch, event)


def _note_undone(
    store: Store, whole: Study, tried: Sequence[Arm], faults: Faults, tracking_error: str
) -> None:
    """Note the work that is left undone, for `topk status`.

    Args:
        store: The study's folder.
        whole: The study as it is defined.
        tried: The arms for which this run tried all trials.
        faults: The work that faults left undone in this run.
        tracking_error: Why MLflow is behind; empty if it is not.
    """
    before, names = Undone.read(store), {arm.name for arm in whole.arms}
    settled = {arm.name for arm in tried} | {trial.arm for trial in before.open} - names
    before.after(faults.open, settled, tracking_error).note(store)


@contextmanager
def _closing(close: Callable[[], None], hurry: Callable[[], None]) -> Iterator[None]:
    """Call ``close`` at the end in any case; if the block raises an error, raise that error again.

    Args:
        close: Called at the end.
        hurry: Called first after an interrupt, because the user is waiting.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            hurry()
        try:
            close()
        except Exception as another:  # noqa: BLE001 - reported as a note of the first error, which is usually its cause
            error.add_note(f"The tables could not be written: {another!r}")
        raise
    close()
