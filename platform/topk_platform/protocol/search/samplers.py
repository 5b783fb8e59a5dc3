"""Optuna's samplers, made from the plain values that declare them."""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from topk_platform.errors import UserError, as_user_error
from topk_platform.references import check_arguments, look_up
from topk_platform.specs import (
    GP,
    NSGAII,
    QMC,
    TPE,
    Arm,
    Choice,
    CmaEs,
    Dimension,
    Grid,
    OptunaSampler,
    Protocol,
    Sampler,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["check_packages", "check_sampler", "informed", "make_sampler"]


def informed(protocol: Protocol, trials: int) -> int:
    """Return for how many of a search's trials the sampler uses the results of earlier trials.

    Args:
        protocol: The rules of the search.
        trials: How many trials the search has.

    Example:
        >>> informed(Protocol(ensemble=5), 15), informed(Protocol(ensemble=8), 15)
        (9, 7)
    """
    return sum(
        number > protocol.sampler.random and len(protocol.known(number)) > 0 for number in range(trials)
    )


def make_sampler(sampler: Sampler, space: Mapping[str, Dimension], arm_seed: int, seed: int) -> BaseSampler:
    """Return Optuna's sampler for one suggestion.

    Args:
        sampler: The sampler; not ``Random``.
        space: The search space.
        arm_seed: A seed that all trials of an arm share.
        seed: This suggestion's own seed.

    Raises:
        UserError: if the function of an ``OptunaSampler`` cannot be loaded or called, or returns no sampler.
    """
    conditional = any(dimension.when for dimension in space.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls some of them experimental; its version is pinned
        made = _made(sampler, arm_seed, seed, conditional)
    if isinstance(sampler, (TPE, OptunaSampler)) or not conditional:
        return made
    return _over_what_is_always_there(made, [name for name, part in space.items() if not part.when])


def _made(sampler: Sampler, arm_seed: int, seed: int, conditional: bool) -> BaseSampler:
    from optuna import samplers  # noqa: PLC0415 - it takes a second to import, and reading commands do not need it

    alone: dict[str, Any] = {
        "independent_sampler": samplers.RandomSampler(seed=seed),
        "warn_independent_sampling": False,
    }
    match sampler:
        case TPE(multivariate=multivariate, candidates=candidates):
            return samplers.TPESampler(
                seed=seed,
                n_startup_trials=0,
                n_ei_candidates=candidates,
                multivariate=multivariate,
                group=multivariate and conditional,
                constant_liar=False,
            )
        case QMC(kind, scramble):
            return samplers.QMCSampler(qmc_type=kind, scramble=scramble, seed=arm_seed, **alone)
        case CmaEs(population=population, margin=margin):
            return samplers.CmaEsSampler(seed=seed, popsize=population, with_margin=margin, **alone)
        case GP():
            return samplers.GPSampler(seed=seed, n_startup_trials=1, **alone)
        case NSGAII(population, crossover, mutation):
            return samplers.NSGAIISampler(
                seed=seed, population_size=population, crossover_prob=crossover, mutation_prob=mutation
            )
        case OptunaSampler(reference, options):
            return _referenced(reference, options, seed)
    raise AssertionError(sampler)


def _referenced(reference: str, options: Mapping[str, Any], seed: int) -> BaseSampler:
    from optuna.samplers import BaseSampler  # noqa: PLC0415 - as above

    table: dict[str, Callable[..., object]] = {}  # no short names, only references
    function = look_up("sampler", reference, table)
    given = {**options, **({"seed": seed} if "seed" in inspect.signature(function).parameters else {})}
    check_arguments("sampler", reference, function, given)
    with as_user_error(f"sampler {reference}"):
        made = function(**given)
    if not isinstance(made, BaseSampler):
        raise UserError(
            f"sampler {reference} must return an optuna.samplers.BaseSampler, got a {type(made).__name__}"
        )
    return made


def _over_what_is_always_there(made: BaseSampler, names: Iterable[str]) -> BaseSampler:
    """Restrict a sampler to the dimensions that all trials have. It draws each of the others independently."""
    infer, always = made.infer_relative_search_space, set(names)

    def inferred(study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {name: part for name, part in infer(study, trial).items() if name in always}

    made.infer_relative_search_space = inferred  # type: ignore[method-assign]
    return made


def check_sampler(arm: Arm, trials: int) -> None:
    """Raise ``UserError`` unless an arm's sampler is installed, can be made, and fits the arm's space and budget.

    Args:
        arm: The arm.
        trials: How many search trials the study asks for.
    """
    if not arm.is_searched:
        return
    check_packages(arm)
    sampler, space, who = arm.protocol.sampler, arm.loss.space, f"arm {arm.name}"
    match sampler:
        case Grid():
            _check_grid(arm, sampler, trials)
        case CmaEs():
            numbers = [n for n, part in space.items() if not isinstance(part, Choice) and not part.when]
            if len(numbers) < 2:
                raise UserError(
                    f"{who}: sampler CmaEs needs two or more dimensions that are Float or Int and always active, "
                    f"got {numbers}"
                )
        case OptunaSampler():
            try:
                make_sampler(sampler, space, 0, 0)
            except UserError as error:
                raise UserError(f"{who}: {error}") from error


def check_packages(arm: Arm) -> None:
    """Raise ``UserError`` unless the packages that an arm's sampler needs are installed."""
    sampler = arm.protocol.sampler
    for package in sampler.packages:
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"arm {arm.name}: sampler {type(sampler).__name__} needs the package {package}, which is not "
                f"installed: pip install '{_SOURCES.get(package, package)}'"
            )


_SOURCES = {"cmaes": "topk-studies[cmaes]", "greenlet": "topk-studies[gp]"}


def _check_grid(arm: Arm, grid: Grid, trials: int) -> None:
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
