"""Optuna's samplers, made from the plain values that declare them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from optuna.samplers import BaseSampler, TPESampler

from topk_platform.errors import UserError, as_user_error
from topk_platform.references import check_arguments, is_reference, look_up
from topk_platform.specs import TPE, Dimension, OptunaSampler, Sampler

__all__ = ["make_sampler"]


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
