"""The training of one trial, or of several as an ensemble, from the first epoch to the records and stored files."""

from __future__ import annotations

import math
import platform
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from topk_platform.errors import (
    ChangedError,
    FaultError,
    MissingDataError,
    RefusingStoreError,
    StoreError,
    reason,
)
from topk_platform.own_measures import recorded
from topk_platform.specs import EpochRecord, Trial, TrialRecord
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.faults import FIRST_SECONDS, Pace, is_out_of_memory, machinery_fault, stored
from topk_platform.training.group import Group, Heartbeat, Keeper, Stopwatch
from topk_platform.training.member import Member, Network, metrics_of_kept
from topk_platform.training.process import process_state, restore_process, trial_process
from topk_platform.training.session import Session

__all__ = ["Learner", "Training", "finish", "prepared_learner", "run_trials"]

Learner = Session | Ensemble
"""Trains the networks of one or more trials, step by step; its members are the trials in order."""

Training = Generator[Heartbeat, None, list[TrialRecord]]


def run_trials(
    trials: Sequence[Trial],
    keeper: Keeper | None = None,
    *,
    interruptible: bool = True,
    time_limit: float = math.inf,
    measures: Mapping[str, str] | None = None,
) -> Training:
    """Train a trial, or several as an ensemble; yield heartbeats, and return the records.

    Errors of the trials' own code are results: NaN and infinity are recorded as ``diverged``, an exception or an exit
    as ``failed`` with its reason. Errors of the machinery are raised as faults and are not recorded. If the process
    dies, the caller must call this again: with a keeper, training then continues from the last checkpoint and ends with
    the same history and weights, on the CPU bit for bit.

    Args:
        trials: One trial, or those of one ensemble in their order.
        keeper: Keeps checkpoints, and the ranks, guesses and networks of completed confirmations.
        interruptible: Whether a ``KeyboardInterrupt`` comes from somebody at the terminal. It is then raised again;
            otherwise it counts as an error of the trials' own code.
        time_limit: Seconds that the trials may train in all. It changes no result.
        measures: The user's own measures of scores, each with the version of its code.

    Returns:
        A generator: ``records = yield from run_trials(trials)``. It yields at least every ten seconds while steps
        are made, at each epoch's end and after a checkpoint. It returns the records after their files are stored. If a
        network cannot be stored, the record says why.

    Raises:
        ChangedError: if the data differ from those that the trials were planned with.
        MissingDataError: if the data are not on this machine.
        FaultError: if the machinery prevents a result: the store, another process on the GPU, or a time limit.
    """
    members, watch = [Member(trial) for trial in trials], Stopwatch(trials[0].device)
    group = Group(members, keeper, watch, Pace(time_limit), measures=measures or {})
    try:
        with trial_process(trials[0]):
            learner = yield from _run(group)
            if keeper is not None:
                yield from store_files(group, learner, keeper)
    except (ChangedError, MissingDataError, FaultError, GeneratorExit):
        raise
    except BaseException as error:  # an error of a user's code is the trial's result
        if interruptible and isinstance(error, KeyboardInterrupt):
            raise
        if (fault := machinery_fault(error, group.device)) is not None:
            raise fault from error
        group.fail(_reason(error, group.trials[0]))
    return [*map(group.record, group.members)]


def prepared_learner(trials: Sequence[Trial]) -> Learner:
    """Return a fresh learner of one trial, or of the trials of one ensemble in their order."""
    return Session.prepare(trials[0]) if len(trials) == 1 else Ensemble.prepare(trials)


def finish(training: Training) -> list[TrialRecord]:
    """Run a training to its end and return the records."""
    while True:
        try:
            next(training)
        except StopIteration as end:
            records: list[TrialRecord] = end.value
            return records


def _reason(error: BaseException, trial: Trial) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno} in {frame.name})"
    if is_out_of_memory(error):
        size = trial.parameters.get("batch_size", trial.arm.recipe.batch_size)
        return f"out of memory at batch size {size}, take a smaller batch_size: {where}"
    return where


def _run(group: Group) -> Generator[Heartbeat, None, Learner]:
    learner = prepared_learner(group.trials)
    _resume(group, learner)
    if group.kept:
        yield group.heartbeat()
    while group.running and group.epoch < learner.recipe.epochs:
        group.pace.check(group.epoch + 1, group.elapsed)
        with group.watch:
            trained = learner.advance(group.pause())
        if trained is not None:
            _end_epoch(group, learner, trained)
        _save(group, learner)
        yield group.heartbeat()
    if any(trial.phase == "confirm" for trial in group.trials):
        yield group.heartbeat(FIRST_SECONDS)  # the test set may be much larger than an epoch
    for index, member in enumerate(group.members):
        if member.status is None:
            _complete(learner, index, member, group.measures, keeps=group.keeper is not None)
    return learner


def _end_epoch(group: Group, learner: Learner, trained: Tensor) -> None:
    """Record an epoch's end and its validation."""
    group.epoch += 1
    watch, group.watch = group.watch, Stopwatch(group.device)
    if not learner.recipe.evaluates(group.epoch):
        if group.device == "cpu":  # reading the loss does not wait for a device
            for member, (loss, _) in zip(group.members, trained.tolist(), strict=True):
                if member.running:
                    member.note_loss(group.epoch, loss)
        group.pace.end_epoch()
        return
    rows = torch.cat([trained, learner.validate()], 1).tolist()  # the only wait for the device in an epoch
    seconds, group.validated = group.elapsed - group.validated, group.elapsed
    for index, (member, row) in enumerate(zip(group.members, rows, strict=True)):
        if member.running:
            member.note_loss(group.epoch, row[0])
            epoch = EpochRecord(
                epoch=group.epoch,
                train_loss=row[0],
                validation=learner.scorer.named(row[3:]),
                seconds=seconds,
                learning_rate=learner.rate(index),
                gradient_density=row[1],
                step_seconds=watch.seconds / learner.epoch_steps,
            )
            if member.note(epoch, finite=bool(row[2])) and (better := member.better()):
                member.keep(better, learner.weights(index))
    group.pace.end_epoch()


def _complete(
    learner: Learner, index: int, member: Member, measures: Mapping[str, str], *, keeps: bool
) -> None:
    """Score the test set once, if the trial confirms; ``keeps`` says whether its network is stored."""
    if member.trial.phase == "confirm":
        weights = {name: kept.weights for name, kept in member.chosen().items()} if member.kept else {}
        weights = weights or {"": learner.weights(index)}
        results = {name: learner.test(index, values) for name, values in weights.items()}
        scored = {name: result.measures.tolist() for name, result in results.items()}
        if not all(values[0] for values in scored.values()):
            member.end("diverged", "a score on the test split is not finite")
            return
        member.test = metrics_of_kept({n: learner.scorer.named(v[1:]) for n, v in scored.items()})
        if measures:
            tested = {"scores": results[""].logits.cpu(), "labels": results[""].split.labels.cpu()}
            with torch.no_grad():
                network = learner.network(index, weights[""])
                member.own = recorded(measures, {**tested, "network": network})
        if keeps:
            result = results[""]
            guesses, images = result.guesses(member.trial.arm.k), result.split.fingerprint
            groups = result.cluster, result.clusters
            member.network = Network(weights[""], result.ranks, guesses, images, *groups)
    member.complete()


def _resume(group: Group, learner: Learner) -> None:
    with stored("its checkpoint cannot be read"):
        state = group.keeper.load(group.trials) if group.keeper is not None else None
    if state is not None:
        learner.load_state(state["learner"])
        for member, saved in zip(group.members, state["members"], strict=True):
            member.load_state(saved)
        group.epoch, group.started, group.kept = state["epoch"], state["started"], learner.step
        group.clock -= state["elapsed"]
        group.watch = Stopwatch(group.device, state["step_seconds"])
        restore_process(state["process"])
    group.saved = group.elapsed
    group.validated = group.saved - (state["since_lap"] if state is not None else 0.0)


def _save(group: Group, learner: Learner) -> None:
    ended = not group.running or group.epoch == learner.recipe.epochs
    if group.keeper is None or ended or time.perf_counter() < group.due:
        return
    elapsed = group.elapsed
    state = {
        "epoch": group.epoch,
        "started": group.started,
        "elapsed": elapsed,
        "since_lap": elapsed - group.validated,
        "step_seconds": group.watch.seconds,
        "process": process_state(group.device),
        "members": [member.state() for member in group.members],
        "learner": learner.state(),
    }
    with stored("its checkpoint cannot be written"):
        group.keeper.save(group.trials, learner.step, state)
    group.saved, group.kept = group.elapsed, learner.step


_PERMANENT = (FileExistsError, NotADirectoryError, IsADirectoryError)  # something else has the file's name


def store_files(group: Group, learner: Learner, keeper: Keeper) -> Generator[Heartbeat, None, None]:
    """Store the ranks and guesses of all confirmations, then the networks, and note what is stored.

    If the store refuses, storing is tried again after growing pauses. All files of the group share the keeper's pauses.
    A confirmation has no result without its ranks and guesses. Without its network it has a result, and the record says
    why the network is missing.

    Raises:
        RefusingStoreError: if ranks or guesses cannot be stored.
    """
    pauses = iter(keeper.pauses)
    kept = [(index, m, m.network) for index, m in enumerate(group.members) if m.network is not None]
    if kept:
        yield group.heartbeat(FIRST_SECONDS)
    for _, member, net in kept:
        trial, groups = member.trial, (net.cluster, net.clusters)
        ranks = partial(keeper.save_ranks, trial, net.ranks, net.images, *groups)
        guesses = partial(keeper.save_guesses, trial, net.guesses, net.images)
        try:
            member.artifacts["ranks"] = yield from _with_retries(group, ranks, pauses)
            member.artifacts["guesses"] = yield from _with_retries(group, guesses, pauses)
        except Exception as error:
            raise RefusingStoreError(
                f"its ranks and guesses cannot be stored: {reason(error)} (on {platform.node()})"
            ) from error
    for index, member, net in kept:
        network = partial(_save_network, learner, keeper, index, member.trial, net.weights)
        try:
            member.artifacts["network"] = yield from _with_retries(group, network, pauses)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's network may raise anything; the record holds it
            member.missing["network"] = f"{type(error).__name__}: {reason(error)}"


def _save_network(
    learner: Learner, keeper: Keeper, index: int, trial: Trial, weights: dict[str, Tensor]
) -> str:
    return keeper.save_model(trial, learner.network(index, weights), learner.inputs(index))


def _with_retries(
    group: Group, save: Callable[[], str], pauses: Iterator[float]
) -> Generator[Heartbeat, None, str]:
    """Call ``save`` and return its result; if the store refuses, try again after each pause that is left."""
    while True:
        try:
            return save()
        except (StoreError, OSError) as error:
            if isinstance(error, _PERMANENT) or isinstance(error.__cause__, _PERMANENT):
                raise
            if (pause := next(pauses, None)) is None:
                raise
        time.sleep(pause)
        yield group.heartbeat(FIRST_SECONDS)
