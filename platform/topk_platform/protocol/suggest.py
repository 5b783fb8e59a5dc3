"""The n-th suggestion of an arm, as a pure function of the arm and of the earlier trials that it may use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from topk_platform.errors import UserError, as_user_error
from topk_platform.protocol.pruning import stopping_values
from topk_platform.protocol.samplers import make_sampler
from topk_platform.protocol.search_progress import Ended
from topk_platform.specs import (
    TPE,
    Arm,
    Choice,
    Dimension,
    Float,
    Grid,
    Int,
    Loss,
    OptunaSampler,
    Protocol,
    Sampler,
    Scalar,
    in_order,
)
from topk_platform.specs.space import is_active

__all__ = ["Searcher", "check_sampler", "frozen_trial", "suggest", "to_optuna"]

_TRIED = 3  # made-up trials after the random ones; Optuna's samplers begin to choose with the second or third
_SOME_TIME = datetime(1970, 1, 1)  # Optuna requires a time; samplers do not look at it


def suggest(
    search_id: str,
    loss: Loss,
    protocol: Protocol,
    number: int,
    history: Sequence[Ended],
) -> dict[str, Scalar]:
    """Return the values of the arm's trial ``number``, from a fresh :class:`Searcher`."""
    return Searcher(search_id, loss, protocol.sampler, protocol.known).suggest(number, history)


@dataclass(frozen=True)
class _Answer:
    """A sampler's answer for one trial, with the attributes that it stored with the trial and with the study."""

    values: dict[str, Scalar]
    trial: Mapping[str, Any] = field(default_factory=dict)
    study: Mapping[str, Any] = field(default_factory=dict)


class Searcher:
    """Suggests the trials of one search.

    Trial 0 takes the loss's first values, and the next ones the points of ``then``. The trials of a grid then take its
    points in order. For other samplers, the next trials, as many as the sampler says, are drawn at random. The sampler
    chooses the values of all later trials.

    For every suggestion, a fresh in-memory Optuna study is built from the trials that the suggestion may use, in the
    order of their numbers. A fresh sampler is seeded by the search and the number. So equal arguments give equal
    values, wherever and whenever the code runs.

    A sampler may store attributes with a trial or the study for later use. To recover them, the earlier suggestions are
    replayed in order, each with the trials that it could use. A searcher does so once and keeps the attributes. Optuna
    sees the trials between the known ones and the new one as running, with their values.

    Args:
        search_id: The text that seeds the sampler, usually the arm's ID and the search's index.
        loss: The loss, with the search space and the first values.
        sampler: The sampler.
        known: Returns the earlier trials that the suggestion of a trial may use: those below some number.
    """

    def __init__(self, search_id: str, loss: Loss, sampler: Sampler, known: Callable[[int], range]) -> None:
        self._search_id, self._loss, self._sampler, self._known = search_id, loss, sampler, known
        self._distributions = to_optuna(loss.space)
        self._order = in_order(loss.space)
        self._points = sampler.combinations(loss.space, loss.first) if isinstance(sampler, Grid) else []
        self._answers: dict[int, _Answer] = {}

    def suggest(self, number: int, history: Sequence[Ended]) -> dict[str, Scalar]:
        """Return the values of trial ``number``.

        Args:
            number: The trial's number, from 0.
            history: The search's ended trials that the suggestion may use, in any order.
        """
        ended = {trial.number: trial for trial in history}
        # The earlier trials are replayed first, all or none.
        replays = number > self._sampler.random and not isinstance(self._sampler, TPE)
        for earlier in range(number if replays else 0):
            if earlier not in self._answers:
                self._answers[earlier] = self._ask(earlier, ended)
        answer = self._answers[number] = self._ask(number, ended)
        return dict(answer.values)

    def _ask(self, number: int, ended: Mapping[int, Ended]) -> _Answer:
        sampler, space = self._sampler, self._loss.space
        given = (self._loss.first, *self._loss.then)
        if number < len(given) or not space:
            return _Answer(dict(given[number if space else 0]))
        if number < len(self._points):
            return _Answer(self._points[number])
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # otherwise a line for every fresh study
        text = f"{self._search_id}\0{number}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
        if number <= sampler.random:  # these samplers need no history, and adding one takes time
            return _Answer(self._values(optuna.create_study(sampler=RandomSampler(seed=seed)).ask()))
        made = make_sampler(sampler, space, seed)
        storage = InMemoryStorage()
        study = optuna.create_study(storage=storage, direction="maximize", sampler=made)
        study_id = storage.get_study_id_from_name(study.study_name)
        study.add_trials(self._past(number, ended))
        stored = self._answer(number - 1).study  # what the samplers of earlier trials stored
        for key, value in stored.items():
            storage.set_study_system_attr(study_id, key, value)
        trial = study.ask()
        values = self._values(trial)
        if isinstance(sampler, TPE):
            return _Answer(values)
        left = study.get_trials(deepcopy=False)[-1].system_attrs
        return _Answer(values, dict(left), dict(storage.get_study_system_attrs(study_id)))

    def _values(self, trial: optuna.Trial) -> dict[str, Scalar]:
        """Return the sampler's values of the active dimensions."""
        values: dict[str, Scalar] = {}
        for name in self._order:
            if is_active(self._loss.space[name], values):
                values[name] = _suggested(trial, name, self._loss.space[name])
        return {name: values[name] for name in self._loss.space if name in values}

    def _past(self, number: int, ended: Mapping[int, Ended]) -> list[FrozenTrial]:
        """Return the earlier trials as the suggestion of a trial sees them: ended ones, then running ones."""
        known = self._known(number)
        names = self._distributions
        past = [frozen_trial(ended[n], names, self._answer(n).trial) for n in known if n in ended]
        if isinstance(self._sampler, TPE):  # it ignores running trials
            return past
        for n in range(len(known), number):
            before = self._answer(n)
            values = ended[n].values if n in ended else before.values
            past.append(_frozen(n, TrialState.RUNNING, values, names, system_attrs=before.trial))
        return past

    def _answer(self, number: int) -> _Answer:
        return self._answers.get(number, _Answer({}))


def _suggested(trial: optuna.Trial, name: str, dimension: Dimension) -> Scalar:
    match dimension:
        case Float(low, high, log):
            return trial.suggest_float(name, low, high, log=log)
        case Int(low, high, log):
            return trial.suggest_int(name, low, high, log=log)
        case Choice(options):
            return trial.suggest_categorical(name, options)


def to_optuna(space: Mapping[str, Dimension]) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions of a space."""
    return {name: _distribution(dimension) for name, dimension in space.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    match dimension:
        case Float(low, high, log):
            return FloatDistribution(low, high, log=log)
        case Int(low, high, log):
            return IntDistribution(low, high, log=log)
        case Choice(options):
            return CategoricalDistribution(options)


class _Uncopied(FrozenTrial):
    """A trial that the storage does not copy: only this storage uses it, and copying would take most of the time."""

    def __deepcopy__(self, _memo: dict[int, Any]) -> _Uncopied:
        return self


def frozen_trial(
    ended: Ended, distributions: Mapping[str, BaseDistribution], written: Mapping[str, Any]
) -> FrozenTrial:
    """Return an ended trial in Optuna's form.

    A pruned trial keeps its intermediate values. A diverged or failed trial counts as pruned without values, because
    TPE then ranks it last. TPE would learn nothing from the state FAIL.

    Args:
        ended: The trial.
        distributions: Optuna's distributions of the search space.
        written: The attributes that the sampler stored with the trial.
    """
    completed = ended.status == "completed"
    return _frozen(
        ended.number,
        TrialState.COMPLETE if completed else TrialState.PRUNED,
        ended.values,
        distributions,
        objective=ended.objective if completed else None,
        intermediate_values=dict(ended.curve) if ended.status == "pruned" else {},
        system_attrs=written,
    )


def _frozen(
    number: int,
    state: TrialState,
    values: Mapping[str, Scalar],
    distributions: Mapping[str, BaseDistribution],
    *,
    objective: float | None = None,
    intermediate_values: dict[int, float] | None = None,
    system_attrs: Mapping[str, Any],
) -> FrozenTrial:
    return _Uncopied(
        number=number,
        trial_id=-1,  # the storage replaces it
        state=state,
        value=objective,
        params=dict(values),
        distributions={name: distributions[name] for name in values},
        intermediate_values=intermediate_values or {},
        user_attrs={},
        system_attrs=dict(system_attrs),
        datetime_start=_SOME_TIME,
        datetime_complete=None if state is TrialState.RUNNING else _SOME_TIME,
    )


def check_sampler(arm: Arm, trials: int) -> None:
    """Raise ``UserError`` unless an arm's sampler suggests values and fits its space and budget, and its pruner works.

    Args:
        arm: The arm.
        trials: How many search trials the study asks for.
    """
    if not arm.is_searched:
        return
    stopping_values(arm.protocol.pruner, arm.recipe, ())
    match arm.protocol.sampler:
        case Grid() as grid:
            _check_grid(arm, grid, trials)
        case OptunaSampler() as sampler:
            try:
                _try(sampler, arm)
            except UserError as error:
                raise UserError(f"arm {arm.name}: {error}") from error


def _try(sampler: OptunaSampler, arm: Arm) -> None:
    """Let a sampler suggest a trial after made-up ones: packages that it lacks are often imported only then."""
    searcher, past = Searcher("try", arm.loss, sampler, range), list[Ended]()
    with as_user_error(f"sampler {sampler.reference}"):
        for number in range(sampler.random + _TRIED):
            values = searcher.suggest(number, past)
            past.append(Ended(number, values, "completed", {1: 1 / (1 + number)}))


def _check_grid(arm: Arm, grid: Grid, trials: int) -> None:
    if arm.loss.then:
        raise UserError(f"arm {arm.name}: a Grid lists its points itself: leave out then of the loss")
    try:
        needed = len(grid.combinations(arm.loss.space, arm.loss.first))
    except UserError as error:
        raise UserError(f"arm {arm.name}: {error}") from error
    repeats = arm.repeats
    held = min(repeats.length(search, trials) for search in range(repeats.count))
    if needed > held:
        shared = f", divided among {repeats.count} searches" if repeats.count > 1 else ""
        raise UserError(
            f"arm {arm.name}: its Grid has {needed} points, including the first trial's, but the budget has only "
            f"trials={trials}{shared}: ask for {trials + repeats.count * (needed - held)} trials, or for fewer points"
        )
