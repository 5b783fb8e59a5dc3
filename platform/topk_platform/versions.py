"""The versions of what trials are made of: a component's version is raised when its results change, by nothing else.

A trial's results count as long as the components that it uses have the versions with which it was trained. A renamed
function, a faster kernel with the same results or a new loss changes no version, and so starts nothing anew.
``make regression`` measures small trials of every component and is red where results move and a version does not.

To raise a version, write its number here, with a line that says since when and why, and store the new results:
``make regression REGRESSION=--renew``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache

from topk_platform.references import is_reference
from topk_platform.specs import FEATURES, Arm, Choice, OptunaSampler, OwnPruner, Study
from topk_platform.user_code import OURS, Reached, reached

__all__ = [
    "KINDS",
    "VERSIONS",
    "code_of",
    "components_of",
    "differences",
    "loaded_version",
    "named_by",
    "references",
    "version_of",
    "versions_of",
]

KINDS = ("loss", "network", "dataset", "condition", "recipe")
"""The kinds of components that have a version, besides the engine. A recipe's are what it adds."""

VERSIONS: Mapping[str, int] = {
    # the loop, schedules, metrics, seeds, splits, SGD, the defaults of specs. Version 2 since 28 November 2026: each
    # search has its own draw, and no draw depends on a study's name; denormal numbers are 0; unlike members of a stack
    # share loss and update
    "engine": 2,
    # Version 2 since 28 November 2026: torch's own kernels and shorter formulas, which round otherwise; smooth losses
    # subtract the label's score before a margin; of soft targets, scores choose the K best, not probabilities
    "loss asymmetric_loss": 2,
    "loss balanced_softmax": 2,
    "loss focal": 2,
    "loss label_smoothing": 2,
    "loss ldam": 2,
    "loss logit_adjusted": 2,
    "loss logit_clip": 2,
    "loss smooth_topk_hinge": 2,
    "loss smooth_topk_svm": 2,
    "loss topk_grouping": 2,
    "loss topk_transition": 2,
    "loss vector_scaling": 2,
}
"""The version of each component whose results have changed, by its kind and its name; that of all others is 1.

Data that change have another fingerprint besides.
"""


def components_of(arm: Arm, reach: Callable[[str], Reached] = reached) -> dict[str, str]:
    """Return the components that an arm's trials use, each with its version.

    What an arm names by ``package.module:attribute`` counts by the code that it reaches in the user's files, and by the
    versions of the installed packages that this code uses (:mod:`topk_platform.user_code`).

    Args:
        arm: The arm.
        reach: A function that reads what a reference reaches, for callers that remember it.

    Example:
        >>> from topk_platform.specs import LabelNoise, Loss, Model, Recipe, Regime
        >>> arm = Arm(Regime("r", "letters", (LabelNoise(0.2),)), Model("mlp"), Loss("cross_entropy"), 5, Recipe(1))
        >>> [*components_of(arm)]
        ['engine', 'condition LabelNoise', 'dataset letters', 'loss cross_entropy', 'network mlp']
    """
    ours = [(kind, name) for kind, name in named_by(arm) if kind in KINDS and not is_reference(name)]
    names = {f"{kind} {name}" for kind, name in ours}
    names |= {f"condition {type(condition).__name__}" for condition in arm.regime.conditions}
    names |= {f"recipe {name}" for name in _additions(arm)}
    result = {name: str(VERSIONS.get(name, 1)) for name in ["engine", *sorted(names)]}
    for reference in references(arm):
        result |= _users(reference, reach(reference))
    backbones = (name.partition("/")[0] for kind, name in named_by(arm) if kind == "backbone")
    return result | _packages(backbones)


def _users(reference: str, code: Reached) -> dict[str, str]:
    """Return the components of what a reference reaches; code that uses our losses counts with all of them."""
    if code.version is not None:
        return {reference: str(code.version)}
    losses = 1 + sum(version - 1 for name, version in VERSIONS.items() if name.startswith("loss "))
    ours = {"package topk_losses": str(losses)} if "topk_losses" in code.packages else {}
    return {**({reference: code.digest} if code.digest else {}), **_packages(code.packages), **ours}


def _packages(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of installed packages; without Python's own, this one, and torch, which a trial records."""
    named = sorted(set(names) - sys.stdlib_module_names - OURS - {"torch"})
    packages = [package for name in named for package in sorted(set(_distributions().get(name, ())))]
    return {f"package {package}": importlib.metadata.version(package) for package in packages}


@cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def version_of(arm: Arm) -> str:
    """Return the components of an arm's trials with their versions as one text, which identifies their code.

    Example:
        >>> from topk_platform.specs import Loss, Model, Recipe, Regime
        >>> version_of(Arm(Regime("r", "digits"), Model("mlp"), Loss("ldam"), 3, Recipe(1)))
        'engine 2, dataset digits 1, loss ldam 2, network mlp 1'
    """
    return _text(components_of(arm))


def code_of(reference: str) -> str:
    """Return what ``package.module:attribute`` reaches, with its versions, as one text."""
    return _text(_users(reference, reached(reference)))


def versions_of(study: Study) -> dict[str, str]:
    """Return :func:`version_of` each arm, by arm ID; what a reference reaches is read once."""
    reach = cache(reached)
    return {study.arm_id(arm): _text(components_of(arm, reach)) for arm in study.arms}


def loaded_version(arm: Arm) -> str:
    """Return :func:`version_of` an arm in this process, computed once, right after the user's modules were imported.

    A process keeps what it has imported, so files that change later have no effect on it. A module that cannot be
    imported counts by its file; the error is raised where the module is used.
    """
    return _text(components_of(arm, _loaded))


@cache
def _loaded(reference: str) -> Reached:
    with suppress(Exception):  # the error is raised where the module is used
        importlib.import_module(reference.partition(":")[0])
    return reached(reference)  # after the import, to notice a file that changes in between


def _text(components: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in components.items())


def differences(was: str, now: str) -> list[str]:
    """Return how the components of two texts of :func:`version_of` differ.

    Example:
        >>> differences("engine 1, loss ldam 1", "engine 2, loss ldam 1, recipe average 1")
        ['engine: version 1, now 2', 'recipe average 1: new']
    """
    before, after = _read(was), _read(now)
    return [
        f"{name} {after[name]}: new"
        if name not in before
        else f"{name} {before[name]}: gone"
        if name not in after
        else f"{name}: version {before[name]}, now {after[name]}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def _read(text: str) -> dict[str, str]:
    return {name: version for name, _, version in (part.rpartition(" ") for part in text.split(", "))}


def named_by(arm: Arm) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of what an arm names in catalogues, or by reference: data, network, loss, sampler.

    The data of features are a dataset of images and a backbone; our own backbones belong to the dataset.
    """
    yield from (("dataset", arm.regime.dataset), ("network", arm.model.name), ("loss", arm.loss.name))
    if arm.regime.dataset == FEATURES:
        for kind, option in (("dataset", "of"), ("backbone", "backbone")):
            if option in arm.regime.options:
                yield kind, str(arm.regime.options[option])
    if arm.is_searched and isinstance(arm.protocol.sampler, OptunaSampler):
        yield "sampler", arm.protocol.sampler.reference
    if arm.is_searched and isinstance(arm.protocol.pruner, OwnPruner):
        yield "pruner", arm.protocol.pruner.reference


def references(arm: Arm) -> tuple[str, ...]:
    """Return the references, ``package.module:attribute``, among what an arm names."""
    return tuple(dict.fromkeys(name for _, name in named_by(arm) if is_reference(name)))


def _additions(arm: Arm) -> Iterator[str]:
    """Yield what an arm's recipe may add to the engine."""
    recipe, searched = arm.recipe, arm.loss.space.get("optimizer")
    usual = arm.loss.fixed.get("optimizer", recipe.optimizer)
    options = searched.options if isinstance(searched, Choice) else (usual,)
    yield from (str(name) for name in options if name != "sgd")  # SGD is the engine's
    yield from ["average"] * (recipe.average is not None)
    yield from ["augmentation"] * (recipe.augmentation != type(recipe.augmentation)())
    yield from ["cuda_graphs"] * recipe.numerics.cuda_graphs
