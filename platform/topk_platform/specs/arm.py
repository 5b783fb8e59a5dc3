"""An arm: a regime, a model and a loss, with its recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from topk_platform.references import reference_of
from topk_platform.specs.checks import check, check_name
from topk_platform.specs.fields import Count, check_fields
from topk_platform.specs.loss import Loss, Setting
from topk_platform.specs.recipe import Recipe
from topk_platform.specs.regime_conditions import Condition
from topk_platform.specs.searches import Protocol, Repeats
from topk_platform.specs.space import Scalar

__all__ = ["Arm", "Model", "Regime", "described", "grid"]


@dataclass(frozen=True)
class Regime:
    """A dataset under conditions.

    Args:
        name: Its name in tables.
        dataset: A name in the platform's table, or ``package.module:attribute`` of your own function, or the function
            itself, if every process can import it; the dataset is then its reference. One that has a parameter
            ``generator`` draws fresh data for every seed.
        conditions: Applied to the training split, in order.
        options: Keyword arguments of the dataset's function.
    """

    name: str
    dataset: str
    conditions: tuple[Condition, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", reference_of("dataset", self.dataset))
        check_fields(self)
        check_name("regime name", self.name)

    @property
    def condition_files(self) -> tuple[str, ...]:
        """The files in the data folder that its conditions read."""
        return tuple(file for condition in self.conditions if (file := getattr(condition, "file", "")))


@dataclass(frozen=True)
class Model:
    """A network.

    Args:
        name: A name in the platform's table, or ``package.module:attribute`` of your own function, or the function
            itself, if every process can import it; the name is then its reference.
        options: Keyword arguments of the model's function.
        label: The model's name in the names of arms; by default the name, or the attribute of a reference.
    """

    name: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", reference_of("model", self.name))
        check_fields(self)
        object.__setattr__(self, "label", self.label or self.name.rpartition(":")[2])
        check_name("model label", self.label)


@dataclass(frozen=True)
class Arm:
    """One regime × model × loss, with its own search, its own pruning rungs and the same budget as all other arms.

    Args:
        regime: The data.
        model: The network.
        loss: The loss and its space.
        k: The K that the loss trains for, ``1 <= k < classes``.
        recipe: The recipe by which its trials train.
        metric: The validation metric that selects, such as ``"top3"`` or ``"macro_top5"``; by default
            ``top{k}``.
        protocol: The protocol of its search.
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
        if self.loss.remembers:
            self._check_remembering()
        if self.protocol.ensemble > 1:
            self._check_ensemble()

    def _check_remembering(self) -> None:
        check(
            not self.recipe.numerics.cuda_graphs,
            f"arm {self.name}: loss {self.loss.name} remembers each training sample and does not go with "
            "Numerics.cuda_graphs, which replay the same step for every batch",
        )
        check(
            self.protocol.ensemble == 1,
            f"arm {self.name}: loss {self.loss.name} remembers each training sample and cannot train an ensemble: "
            "Protocol(ensemble=1)",
        )

    def _check_ensemble(self) -> None:
        check(
            self.recipe.average is None and not self.recipe.numerics.cuda_graphs,
            f"arm {self.name}: an ensemble cannot train with average or Numerics.cuda_graphs: set Protocol(ensemble=1)",
        )
        check(
            "optimizer" not in self.loss.space,
            f"arm {self.name}: an ensemble's members must have one optimizer; it cannot be searched",
        )

    @property
    def is_searched(self) -> bool:
        """Whether its space has a dimension; an arm with an empty space has only confirmations."""
        return bool(self.loss.space)

    def setting(self, values: Mapping[str, Scalar]) -> Setting:
        """Return the recipe and the loss's own parameters for a trial with these values."""
        return Setting.of(self.recipe, self.loss, values)

    @property
    def repeats(self) -> Repeats:
        """The division of its trials and seeds among its searches; one search if nothing is searched."""
        searches = self.protocol.searches
        return Repeats(searches if self.is_searched else 1, searches)

    def searched(self, times: int) -> Arm:
        """Return the arm with this number of searches.

        Its identity and its trials' keys are those of ``searched(1)``, for any number of times.
        """
        if self.protocol.searches == times:
            return self
        return replace(self, protocol=replace(self.protocol, searches=times))

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
        UserError: if regimes, models or losses are not a list.
    """
    for name, parts in (("regimes", regimes), ("models", models), ("losses", losses)):
        check(
            isinstance(parts, Iterable) and not isinstance(parts, str),
            f"{name} must be a list, got {parts!r}",
        )
    models, losses, how = tuple(models), tuple(losses), protocol or Protocol()
    return tuple(Arm(r, m, loss, k, recipe, metric, how) for r in regimes for m in models for loss in losses)


_ALWAYS = ("batch_size", "epochs", "learning_rate", "optimizer", "schedule", "weight_decay")


def described(arm: Arm) -> dict[str, Scalar]:
    """Return the settings that all trials of an arm have in common, sorted by name.

    These are: regime, model, loss with its fixed parameters, head and k; the most important fields of the recipe;
    and all other fields of the recipe that differ from the defaults. Fields of nested specs are named ``OUTER.INNER``.

    Args:
        arm: The arm.

    Example:
        >>> from topk_platform import Loss, Model, Recipe, Regime
        >>> loss = Loss("smooth_topk_svm", fixed={"tau": 0.1})
        >>> shown = described(Arm(Regime("clean", "digits"), Model("mlp"), loss, 3, Recipe(30, momentum=0.0)))
        >>> shown["loss"], shown["tau"], shown["k"], shown["epochs"], shown["momentum"]
        ('smooth_topk_svm', 0.1, 3, 30, 0.0)
    """
    recipe = arm.recipe
    shown: dict[str, object] = dict(_changed(recipe, Recipe(recipe.epochs)))
    shown |= {name: getattr(recipe, name) for name in _ALWAYS}
    shown |= {
        "regime": arm.regime.name,
        "model": arm.model.label,
        "loss": arm.loss.label,
        "head": arm.loss.head,
    }
    shown |= {"k": arm.k, **{name: value for name, value in arm.loss.fixed.items() if value is not None}}
    plain = (bool, int, float, str)
    return {name: value if isinstance(value, plain) else str(value) for name, value in sorted(shown.items())}


def _changed(spec: object, default: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    for item in dataclasses.fields(spec):  # type: ignore[arg-type]
        value, usual = getattr(spec, item.name), getattr(default, item.name)
        if dataclasses.is_dataclass(usual):
            yield from _changed(value, usual, f"{prefix}{item.name}.")
        elif value != usual:
            yield f"{prefix}{item.name}", value
