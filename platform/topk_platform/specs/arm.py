"""One regime × model × loss, and how it is trained and searched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from topk_platform.specs.checks import check, check_name
from topk_platform.specs.fields import Count, Rule, Share, Whole, check_fields, one_of
from topk_platform.specs.recipe import Recipe
from topk_platform.specs.regime import Regime
from topk_platform.specs.space import Dimension, Scalar

__all__ = ["Arm", "Loss", "Model", "Protocol", "Pruning", "grid"]

_Rung = Annotated[float, Rule("in (0, 1)", lambda value: 0 < value < 1)]


@dataclass(frozen=True)
class Model:
    """A network.

    Args:
        name: A name in the platform's table, or ``package.module:attribute`` of your own function.
        options: Keyword arguments of the model's function.
        label: What arms call it; by default the name, or the attribute of a reference.
    """

    name: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "label", self.label or self.name.rpartition(":")[2])
        check_name("model label", self.label)


@dataclass(frozen=True)
class Loss:
    """A loss with what is searched of it.

    Args:
        name: A name in the platform's table, or ``package.module:attribute`` of your own.
        space: The dimensions searched: the loss's own parameters and the recipe's
            (``learning_rate``, ``weight_decay``, ``momentum``, ``batch_size``).
        first: The first trial's values, as a rule the paper's; one for every dimension of ``space``.
        fixed: Parameters of the loss that stay as they are.
        head: ``"linear"``, or ``"cosine"`` for the normalised head.
        label: The row's name in tables; by default the name, or the attribute of a reference.

    Raises:
        UserError: if ``first`` does not give every dimension one value inside it, or a parameter is
            both fixed and searched.
    """

    name: str
    space: Mapping[str, Dimension] = field(default_factory=dict)
    first: Mapping[str, Scalar] = field(default_factory=dict)
    fixed: Mapping[str, Scalar] = field(default_factory=dict)
    head: Annotated[str, one_of("linear", "cosine")] = "linear"
    label: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "label", self.label or self.name.rpartition(":")[2])
        check_name("loss label", self.label)
        both = sorted(set(self.space) & set(self.fixed))
        check(not both, f"loss {self.label}: {both} cannot be both in space and fixed")
        check(
            set(self.first) == set(self.space),
            f"loss {self.label}: first must give one value for each of {sorted(self.space)}, got {sorted(self.first)}",
        )
        for name, dimension in self.space.items():
            value = self.first[name]
            check(
                dimension.holds(value),
                f"loss {self.label}: first[{name!r}] must lie in {dimension}, got {value!r}",
            )
        first = {name: self.space[name].canonical(value) for name, value in self.first.items()}
        object.__setattr__(self, "first", first)


@dataclass(frozen=True)
class Pruning:
    """Stop a search trial that is behind its arm's earlier trials.

    At each rung a trial is stopped when its validation metric lies below the given quantile of what the
    earlier trials of the same arm had there.

    Args:
        rungs: Fractions of the epochs, in ``(0, 1)``, at which trials are compared.
        quantile: In ``[0, 1]``; 0.5 is the median.
        startup: How many earlier trials must have reached a rung before anything is stopped there.
    """

    rungs: tuple[_Rung, ...] = (0.25, 0.5)
    quantile: Share = 0.5
    startup: Count = 4

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Protocol:
    """How an arm is searched; part of its identity.

    Args:
        random: How many trials after the first are drawn at random before TPE takes over.
        width: How many of the arm's trials may run at once: the n-th suggestion knows the trials
            numbered up to ``n - width``, whatever else has ended by then.
        pruning: The rule by which search trials are stopped, or None.
        ensemble: How many of an arm's trials train together, as one stack of networks: search trials in blocks
            of consecutive numbers, which then know of none of their own block, and confirmations in blocks of
            consecutive seeds. It changes the last bits, hence it is part of the key.
    """

    random: Whole = 5
    width: Count = 1
    pruning: Pruning | None = field(default_factory=Pruning)
    ensemble: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Arm:
    """One regime × model × loss, with its own searcher, its own rungs and the same budget as all others.

    Args:
        regime: The data.
        model: The network.
        loss: The loss and its space.
        k: The K that the loss trains for, ``1 <= k < classes``.
        recipe: How its trials train.
        metric: The validation metric that selects, such as ``"top3"`` or ``"macro_top5"``; by default
            ``top{k}``.
        protocol: How it is searched.
    """

    regime: Regime
    model: Model
    loss: Loss
    k: Count
    recipe: Recipe
    metric: str = ""
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "metric", self.metric or f"top{self.k}")

    @property
    def searches(self) -> bool:
        """Whether there is anything to search; an arm whose space is empty has confirmations only."""
        return bool(self.loss.space)

    @property
    def name(self) -> str:
        """``regime/model/loss``."""
        return f"{self.regime.name}/{self.model.label}/{self.loss.label}"


def grid(
    regimes: Iterable[Regime],
    models: Iterable[Model],
    losses: Iterable[Loss],
    *,
    k: int,
    recipe: Recipe,
    metric: str = "",
    protocol: Protocol | None = None,
) -> tuple[Arm, ...]:
    """Return one arm for every regime × model × loss.

    Example:
        >>> from topk_platform.specs import LabelNoise
        >>> arms = grid(
        ...     [Regime("clean", "digits"), Regime("noisy", "digits", (LabelNoise(0.4),))],
        ...     [Model("mlp")],
        ...     [Loss("cross_entropy"), Loss("smooth_topk_svm")],
        ...     k=3,
        ...     recipe=Recipe(epochs=10),
        ... )
        >>> [arm.name for arm in arms][:2]
        ['clean/mlp/cross_entropy', 'clean/mlp/smooth_topk_svm']

    Raises:
        UserError: if one of them is no sequence; as :class:`Arm`.
    """
    for name, parts in (("regimes", regimes), ("models", models), ("losses", losses)):
        check(
            isinstance(parts, Iterable) and not isinstance(parts, str),
            f"{name} must be a list, got {parts!r}",
        )
    models, losses, how = tuple(models), tuple(losses), protocol or Protocol()
    return tuple(Arm(r, m, loss, k, recipe, metric, how) for r in regimes for m in models for loss in losses)
