"""An arm: a regime, a model and a loss, with its recipe and its search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from topk_platform.references import reference_of
from topk_platform.specs.arms.loss import Loss
from topk_platform.specs.arms.recipe import Recipe
from topk_platform.specs.arms.regime import Regime
from topk_platform.specs.arms.setting import Setting
from topk_platform.specs.checks import check, check_name
from topk_platform.specs.fields import Checked, Count, check_fields
from topk_platform.specs.search.pruner import Pruner, Quantile
from topk_platform.specs.search.repeats import Repeats
from topk_platform.specs.search.sampler import TPE, Sampler
from topk_platform.specs.search.space import Scalar

__all__ = ["Arm", "Model", "Protocol", "grid"]


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
class Protocol(Checked):
    """The search of an arm. It is part of the arm's identity.

    Args:
        sampler: The rule that chooses the next values; by default TPE after five random draws.
        width: How many of the arm's trials may run at once. The n-th suggestion is based on the trials numbered up to
            ``n - width``, even if others have ended by then.
        pruner: The rule by which search trials are stopped.
        ensemble: How many of an arm's trials train together, as one stack of networks: search trials in blocks of
            consecutive numbers, confirmations in blocks of consecutive seeds. A block belongs to one search, and a
            suggestion uses no results of its own block. Training together changes the last bits, so it is part of the
            key.
        searches: How often the arm's search is repeated, each time with another seed: with other suggestions, another
            draw of data and label noise, and other initial weights. Repeats show how much a result depends on the luck
            of a search, and average over it. All arms of a study that search need the same number. The arm's ``trials``
            and ``seeds`` are the totals over its searches, see :class:`Repeats`, so equal budgets stay equal. Every
            search begins with the first values. ``searches`` is not part of the arm's identity: more searches only add
            trials.
    """

    sampler: Sampler = field(default_factory=TPE)
    width: Count = 1
    pruner: Pruner = field(default_factory=Quantile)
    ensemble: Count = 1
    searches: Count = 1

    def known(self, number: int) -> range:
        """Return the numbers of the trials on which a search trial's suggestion is based.

        The last of them is the first number of the trial's block minus ``width``.

        Args:
            number: The trial's position in its search.

        Example:
            >>> Protocol(width=2).known(5), Protocol(ensemble=4).known(6)
            (range(0, 4), range(0, 4))
        """
        return range(max(0, number // self.ensemble * self.ensemble - self.width + 1))


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
