"""A run of a study, from its definition to its tables; the same call resumes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from topk_platform.errors import StoreError
from topk_platform.protocol import Durations, StudyProgress
from topk_platform.records.history import StudyRows, last_counted, progress_of
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import forget
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.recorded import as_recorded, finished_before, note_plan, read_plan
from topk_platform.records.run_notes import DataNote, Unfinished, lines_on_data, note_data
from topk_platform.records.storage.lease import check_undriven
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import Writer
from topk_platform.reports.study_table import StudyTable
from topk_platform.reports.words import command
from topk_platform.results import build_table
from topk_platform.running.cluster.driver_process import interrupts_wait
from topk_platform.running.cluster.lifeline import Cluster
from topk_platform.running.cluster.reaching import Patience
from topk_platform.running.counted import Counted, expected, in_environment, outdated
from topk_platform.running.dispatcher import Dispatcher
from topk_platform.running.limits import Limits
from topk_platform.running.recording import Recorder, drawing
from topk_platform.running.run_options import RunOptions
from topk_platform.running.summary import Outcome, Summary
from topk_platform.running.views import own_console, view_on
from topk_platform.running.watching import Event, OnEvent, Watch, noting
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call
from topk_platform.tracking.feed import Feed, mlflow_of

__all__ = ["run"]


def run(
    study: Study,
    options: RunOptions | None = None,
    *,
    progress: OnEvent | bool = True,
    waiting: Callable[[str], None] | None = None,
    callbacks: Sequence[Any] = (),
    **given: Any,
) -> Summary:
    """Run the missing trials of a study and return a summary with its table.

    The results depend on the study and its seeds alone: neither workers nor interruptions change a number. Trials in
    the ledger are not run again. The files in the study's ``tables`` folder always cover the whole study as defined,
    even if only a part of it was run, and are written after an error or an interrupt as well. If a machine's fault
    stops a trial, the trial has no record. It is tried again, in this run and in the next; see :class:`Summary`.

    Args:
        study: The study.
        options: Where, which part, how much and how carefully: see :class:`RunOptions`.
        progress: Whether to show progress on standard error, live in a terminal and as occasional lines elsewhere. Or
            a function that is called with every event (the run's start, each trial's start, end and fault); then
            nothing is shown.
        waiting: Called with lines of text: what the run waits for, and which classes have no sample in a split. By
            default only the lines about classes are shown, as Python warnings.
        callbacks: Callbacks of Ray Tune, any ``ray.tune.Callback``: they see each trial of the study as one of Tune's,
            with its epochs' metrics.
        given: Options by their names, in place of those in ``options``.

    Raises:
        MissingDataError: if a dataset is not on disk.
        StoreError: if the store cannot be used, or is a folder that some machine of the cluster does not see.
        ClusterError: if the cluster cannot be reached, or its nodes would not compute the same bits.
        ChangedError: if the code or the data changed while the study ran; no wrong result is kept, and running
            it again continues.
        UserError: if an option or the study is invalid; nothing was written and no worker started.

    Example:
        >>> from topk_studies import digits
        >>> summary = run(digits().smoke(), store="runs", only="balanced/*")  # doctest: +SKIP
    """
    check_call(run, locals())
    options = (options or RunOptions()).but(**given)
    whole = options.whole(study)
    options.part(whole)  # wrong options are refused before a store is opened
    store = Store.open(options.store)
    pictures = drawing(whole, store.address)
    mlflow = mlflow_of(store, options.mlflow)
    ledger = Ledger.open(store, study.name)
    ledger.store.check_writable()
    check_undriven(ledger.store)
    whole = as_recorded(whole, ledger)
    part = options.part(whole)
    # These load torch: errors in the arguments are reported before.
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.running.preflight.training_splits import data_notes  # noqa: PLC0415

    view = (
        nullcontext(progress)
        if callable(progress)
        else view_on(own_console() if progress and not options.tune_table else None)
    )
    with view as show, data_at(options.data):
        counted = _checked(ledger, whole, part, options)
        data = data_notes(part)
        for line in lines_on_data((name, text) for name, note in data.items() for text in note.notes):
            (waiting or warnings.warn)(f"Note: {line}")
        feed = None if mlflow is None else Feed(mlflow, ledger, store.local, pictures)
        patience = Patience(options.wait, waiting or (lambda _line: None))
        return _Run(counted, data, store, feed, patience, show, callbacks).run()


def _checked(ledger: Ledger, whole: Study, part: Study, options: RunOptions) -> Counted:
    """Check the study and its data, and return what of the ledger counts now."""
    from topk_platform.running.preflight.arm_checks import check_device, check_imported  # noqa: PLC0415 - torch

    check_imported(part)
    if options.address is None:
        check_device(part)
    rows = StudyRows(ledger, whole.arms)
    counted = Counted(rows, whole, part, options, expected(part, ledger, options))
    counted.check(options.download)
    return counted


@dataclass
class _Run:
    """One run: it trains the missing trials of a part of a study, and writes the tables of the whole study.

    Args:
        counted: What counts of the ledger, for the part of the study and the options of the run.
        data: The notes on the data of its regimes.
        store: The store.
        feed: Fills MLflow; None for no MLflow.
        patience: How long to wait for a cluster; it reports what the run waits for.
        notify: Called with every event.
        callbacks: More callbacks of Tune.
    """

    counted: Counted
    data: Mapping[str, DataNote]
    store: Store
    feed: Feed | None
    patience: Patience
    notify: OnEvent
    callbacks: Sequence[Any]

    def __post_init__(self) -> None:
        self.options, self.rows = self.counted.options, self.counted.rows
        self.whole, self.part = self.counted.whole, self.counted.part
        self.ledger, self.folder = self.rows.ledger, self.rows.ledger.store
        self.limits = Limits(self.options, self.part.gpus)

    def run(self) -> Summary:
        """Run the study, and return the summary."""
        with self._cluster() as cluster, self.ledger.writing(self.part) as writer:
            self._identify(cluster)
            self._remove_what_is_trained_again(writer)
            progress = self._progress()
            recorder = Recorder(self.rows, writer, self.feed)
            forget(self.folder, self.rows.keys)
            outcome = self._train_and_write(progress, recorder, cluster)
            if not progress.left and self.part == self.whole:
                with suppress(StoreError):  # those of trials that no longer count would stay for ever
                    forget(self.folder)
            self._note_unfinished(outcome)
            return self._summary(progress, outcome)

    def _cluster(self) -> AbstractContextManager[Cluster]:
        if not self.counted.progress().left:
            return nullcontext(Cluster())
        # Ray and Tune take seconds to import, and a finished study does not need them. Everything is imported before
        # other threads start, because these import modules too.
        with interrupts_wait():
            import topk_platform.running.tuner  # noqa: F401, PLC0415
            from topk_platform.running.cluster.nodes import on_cluster  # noqa: PLC0415
        return on_cluster(self.part, self.options, self.store, self.patience)

    def _identify(self, cluster: Cluster) -> None:
        """Note which rows count, now that the machines are known, and note the run's plan and its data."""
        if cluster.environment is not None:
            self.counted.identities = in_environment(self.part, self.counted.identities, cluster.environment)
        self.ledger.identify({**last_counted(self.ledger, self.whole), **self.counted.identities})
        noted = finished_before(read_plan(self.folder), self.part, self._has_ended)
        note_plan(self.folder, noted, self.options.data)
        note_data(self.folder, self.data)

    def _has_ended(self, study: Study) -> bool:
        counted = self.counted.identities
        return not progress_of(study, counted, self.rows.histories(study, counted)).left

    def _remove_what_is_trained_again(self, writer: Writer) -> None:
        self.counted.renew()  # another run may have written before this one locked the ledger
        for file in self.counted.again.damaged:
            self.folder.quarantine(file.name)
        if line := str(self.counted.again):
            self.patience.say(line)
        writer.table.delete(self.counted.again.keys)
        self.rows.refresh()

    def _progress(self) -> StudyProgress:
        """Return the study's state, and note the times of ended trials for the run's limits."""
        histories = self.counted.histories()
        self.limits.durations = Durations({i: arm.ended_seconds() for i, arm in histories.items()})
        return progress_of(self.part, self.counted.identities, histories)

    def _train_and_write(self, progress: StudyProgress, recorder: Recorder, cluster: Cluster) -> Outcome:
        """Train the remaining trials and write the tables, also after an error; return how the run ended."""
        if progress.left:
            self.rows.release()  # while trials run, the driver needs the memory but not the rows
        try:
            outcome = self._train(progress, recorder, cluster)
        except BaseException as error:
            try:
                self._write(recorder, Outcome(interrupted=isinstance(error, KeyboardInterrupt)))
            except Exception as another:  # noqa: BLE001 - a note of the first error, which is usually its cause
                error.add_note(f"The tables could not be written: {another!r}")
            raise
        self._write(recorder, outcome)
        return outcome

    def _train(self, progress: StudyProgress, recorder: Recorder, cluster: Cluster) -> Outcome:
        """Hand the remaining trials to Ray Tune; return how they ended."""
        watch = Watch(self.whole.name, progress, self.limits.durations, cluster.slots)

        def notified(event: Event) -> None:
            watch(event)
            if event.kind != "progress":
                self.notify(watch, event)

        if not progress.left:
            notified(Event("begun"))
            return Outcome()
        left = [arm_id for arm_id, arm in progress.arms.items() if arm.left]
        why = outdated(self.part, self.ledger, self.counted.identities, left)
        notified(Event("begun", why="; ".join(why)))
        from topk_platform.running import tuner as tuning  # noqa: PLC0415 - Ray, which a finished study does not need

        with noting(self.folder, watch):
            if self.options.address is None:
                self.limits.guess_unknown(progress)
            order = tuning.order_for(self.part, self.folder.address, self.options, cluster.slots)
            dispatcher = Dispatcher(progress, recorder.writer.put, notified, order, self.limits, cluster.line)
            return tuning.tune_trials(self.part, dispatcher, self.options, cluster.slots, self.callbacks)

    def _write(self, recorder: Recorder, outcome: Outcome) -> None:
        """Write the tables; after an interrupt, wait less for the store and say why the run has not ended yet."""
        if outcome.interrupted:
            recorder.writer.hurry()
        if outcome.interrupted and self.feed is not None:
            sync = command("sync", self.part, *self.options.sync, given=self.options.given)
            self.patience.say(
                f"Interrupted: MLflow gets what it lacks, which can take minutes. Another signal, such as Ctrl-C, "
                f"ends this at once and loses nothing: `{sync}` or the next run fills it in"
            )
        outcome.tracking_error = recorder.close(self.whole, at_once=bool(outcome.lost))

    def _summary(self, progress: StudyProgress, outcome: Outcome) -> Summary:
        return Summary(
            table=self._table(),
            left=progress.left,
            folder=self.folder.uri,
            outcome=outcome,
            beyond=sum(arm.beyond for arm in progress.arms.values()),
            options=self.options,
        )

    def _table(self) -> StudyTable:
        study = self.whole.with_budget(self.part.trials, self.part.seeds, self.part.searches)
        study = replace(study, changed=self.part.changed)
        table = build_table(
            study, self.rows.histories(study), self.part.arms, partial(read_all_ranks, self.folder)
        )
        return StudyTable.of(replace(table, given=self.options.given))

    def _note_unfinished(self, outcome: Outcome) -> None:
        """Note the work that is left, for `topk status`; arms of which all trials were tried are noted anew."""
        tried = () if outcome.interrupted or outcome.partial or outcome.lost else self.part.arms
        before, names = Unfinished.read(self.folder), {arm.name for arm in self.whole.arms}
        settled = {arm.name for arm in tried} | {trial.arm for trial in before.open} - names
        before.after(outcome.open, settled, outcome.tracking_error).note(self.folder)
