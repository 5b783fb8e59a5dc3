"""What a study asserts or is compared with: claims that its results decide, and published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from topk_platform.specs.arm import Arm
from topk_platform.specs.checks import check, check_name
from topk_platform.specs.fields import Count, NonNegative, Rule, check_fields, one_of

__all__ = ["Claim", "Contrast", "Published"]


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of arms' mean test metrics, in points; weights 1 and -1 make a difference.

    Args:
        weights: By the arm's name, ``regime/model/loss``; none of them 0.
        metric: Such as ``"top5"`` or ``"macro_top3"``, in points; or ``"candidates99"`` or ``"size95"``, in classes.

    Raises:
        UserError: if there is no weight, or one is 0.

    Example:
        >>> Contrast.between("noisy/mlp/smooth_topk_svm", "noisy/mlp/cross_entropy", "top5").weights
        {'noisy/mlp/smooth_topk_svm': 1.0, 'noisy/mlp/cross_entropy': -1.0}
    """

    weights: Mapping[str, float]
    metric: str

    def __post_init__(self) -> None:
        check_fields(self)
        sound = bool(self.weights) and all(self.weights.values())
        check(
            sound, f"Contrast.weights must hold an arm or more, none with weight 0, got {dict(self.weights)}"
        )

    @classmethod
    def between(cls, ours: str, theirs: str, metric: str) -> Contrast:
        """Return the difference between two arms."""
        return cls({ours: 1.0, theirs: -1.0}, metric)

    def minus(self, other: Contrast) -> Contrast:
        """Return this contrast minus another of the same metric; arms that cancel out are left out.

        Raises:
            UserError: if the metrics differ.
        """
        check(
            self.metric == other.metric,
            f"contrasts must be of one metric, got {self.metric!r} and {other.metric!r}",
        )
        names = dict.fromkeys((*self.weights, *other.weights))
        weights = {name: self.weights.get(name, 0.0) - other.weights.get(name, 0.0) for name in names}
        return Contrast({name: weight for name, weight in weights.items() if weight}, self.metric)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A finding, such as one of a paper, that a study's results confirm, refute or leave undecided.

    The claim states, for every one of its contrasts S, in points:

    - ``"above"``: S > ``bound + tolerance``. The claim is confirmed if this is shown. It is refuted if S is shown to be
      less, which means no effect, or one that is too small to matter.
    - ``"below"``: S < ``bound - tolerance``, with the directions swapped.
    - ``"within"``: ``-tolerance < S < tolerance``, by two one-sided tests.

    A claim changes no result and is not part of an arm's identity.

    Args:
        name: The claim's name in its study; letters, digits and ``._+-``.
        text: The finding in a sentence.
        source: Where the finding is stated, such as ``"sawada2020, IV-B"``.
        contrasts: The contrasts; the statement must hold for all of them.
        direction: ``"above"``, ``"below"`` or ``"within"``.
        bound: The bound in points; not for ``"within"``.
        tolerance: The least effect that matters, in points; above 0 for ``"within"``.
        stand_in: Whether the study only stands in for the paper's own, so that it cannot decide the paper's claim.

    Raises:
        UserError: if there is no contrast or text, ``"within"`` has no tolerance or a bound, or a number is out of
            range.

    Example:
        >>> gap = Contrast.between("r/mlp/topk_transition", "r/mlp/cross_entropy", "top2")
        >>> Claim(name="ahead", text="Transition beats cross-entropy.", source="me", contrasts=[gap]).direction
        'above'
    """

    name: str
    text: str
    source: str
    contrasts: Sequence[Contrast]
    direction: Annotated[str, one_of("above", "below", "within")] = "above"
    bound: float = 0.0
    tolerance: NonNegative = 0.0
    stand_in: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_name("claim name", self.name)
        check(bool(self.contrasts), f"claim {self.name}: contrasts must hold at least one contrast")
        check(bool(self.text and self.source), f"claim {self.name}: text and source must not be empty")
        if self.direction == "within":
            sound = self.tolerance > 0 and self.bound == 0
            check(
                sound,
                f"claim {self.name}: 'within' needs a tolerance above 0 and no bound, got {self.tolerance} "
                f"and {self.bound}",
            )

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of all its arms."""
        return tuple(dict.fromkeys(name for contrast in self.contrasts for name in contrast.weights))


@dataclass(frozen=True, kw_only=True)
class Published:
    """A number that a paper printed for one arm and one metric. It changes neither a result nor a key.

    Args:
        regime: The arm's regime, by name.
        loss: The arm's loss, by label.
        metric: Such as ``"top5"`` or ``"macro_top3"``.
        value: The value in percent, as tables print accuracies.
        source: Where it is printed, such as ``"berrada2018, Table 1"``.
        spread: The standard deviation over runs, in percent, where the paper gives one.
        runs: How many runs the value is a mean of, where the paper says.
        model: The arm's model, by label; None where the study has one arm of this regime and loss.
        split: The split that was scored, ``"test"`` or, where a paper reports no test, ``"validation"``.

    Raises:
        UserError: if a number is out of range, the split is unknown, or the source is empty.

    Example:
        >>> Published(regime="noise-0.2", loss="cross_entropy", metric="top5", value=87.89, spread=0.08, runs=3,
        ...           source="berrada2018, Table 9").arm_name
        'noise-0.2/cross_entropy'
    """

    regime: str
    loss: str
    metric: str
    value: Annotated[float, Rule("a percentage in [0, 100]", lambda value: 0 <= value <= 100)]
    source: str
    spread: NonNegative | None = None
    runs: Count | None = None
    model: str | None = None
    split: Annotated[str, one_of("test", "validation")] = "test"

    def __post_init__(self) -> None:
        check_fields(self)
        check(
            bool(self.source),
            f"Published.source of {self.arm_name} must say where it is printed, got {self.source!r}",
        )

    @property
    def arm_name(self) -> str:
        """The arm's name, ``regime/model/loss``, without the model if that is not given."""
        return "/".join(part for part in (self.regime, self.model, self.loss) if part is not None)

    def names(self, arm: Arm) -> bool:
        """Return whether the number belongs to this arm."""
        same = (self.regime, self.loss) == (arm.regime.name, arm.loss.label)
        return same and self.model in (None, arm.model.label)
