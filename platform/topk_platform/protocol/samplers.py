"""Optuna's samplers, made from the plain values that declare them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from topk_platform.errors import UserError, as_user_error
from topk_platform.protocol.pruning import stopping_values
from topk_platform.protocol.search_progress import Ended
from topk_platform.references import check_arguments, is_reference, look_up
from topk_platform.specs import TPE, Arm, Dimension, Grid, OptunaSampler, Protocol, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

__all__ = ["check_sampler", "informed", "make_sampler"]

_TRIED = 3  # made-up trials after the random ones; Optuna's samplers begin to choose with the second or third


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


def make_sampler(sampler: Sampler, space: Mapping[str, Dimension], seed: int) -> BaseSampler:
    """Return Optuna's sampler for one suggestion.

    Args:
        sampler: The sampler; neither ``Random`` nor ``Grid``.
        space: The search space.
        seed: This suggestion's own seed.

    Raises:
        UserError: if the function of an ``OptunaSampler`` cannot be loaded or called, or returns no sampler.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls some of them experimental; its version is pinned
        match sampler:
            case TPE(multivariate=multivariate, candidates=candidates):
                from optuna.samplers import TPESampler  # noqa: PLC0415 - it takes a second to import, and reading commands do not need it

                return TPESampler(
                    seed=seed,
                    n_startup_trials=0,
                    n_ei_candidates=candidates,
                    multivariate=multivariate,
                    group=multivariate and any(dimension.when for dimension in space.values()),
                    constant_liar=False,
                )
            case OptunaSampler(reference, options):
                return _referenced(reference, options, seed)
    raise AssertionError(sampler)


def _referenced(reference: str, options: Mapping[str, Any], seed: int) -> BaseSampler:
    from optuna.samplers import BaseSampler  # noqa: PLC0415 - as above

    name = reference if is_reference(reference) else f"optuna.samplers:{reference}"
    function = look_up("sampler", name, dict[str, Callable[..., object]]())
    parameters = inspect.signature(function).parameters
    usual = {"warn_independent_sampling": False, **options, "seed": seed}  # it warns with every suggestion
    given = {name: value for name, value in usual.items() if name in options or name in parameters}
    check_arguments("sampler", reference, function, given)
    with as_user_error(f"sampler {reference}"):
        made = function(**given)
    if not isinstance(made, BaseSampler):
        raise UserError(
            f"sampler {reference} must return an optuna.samplers.BaseSampler, got a {type(made).__name__}"
        )
    return made


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
    from topk_platform.protocol.suggest import Searcher  # noqa: PLC0415 - it imports Optuna, as above

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
