"""A number that a paper printed, to be shown beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from topk_platform.errors import UserError
from topk_platform.specs.arms.arm import Arm
from topk_platform.specs.checks import check
from topk_platform.specs.fields import Count, NonNegative, Rule, check_fields, one_of

__all__ = ["Published", "check_published"]


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
        return (self.regime, self.loss) == (arm.regime.name, arm.loss.label) and self.model in (
            None,
            arm.model.label,
        )


def check_published(
    study: str, published: Iterable[Published], arms: Sequence[Arm], metrics: Sequence[str]
) -> None:
    """Raise ``UserError`` unless each number belongs to one arm and a known metric, and no two to the same pair."""
    seen = set()
    for number in published:
        names = [arm.name for arm in arms if number.names(arm)]
        if len(names) != 1:
            rule = f"several arms, {names}; name its model" if names else "no arm"
            raise UserError(f"study {study}: the published number of {number.arm_name} belongs to {rule}")
        if number.metric not in metrics:
            raise UserError(
                f"study {study}: metric {number.metric!r} of a published number is not among {list(metrics)}"
            )
        key = (names[0], number.metric)
        check(key not in seen, f"study {study}: two published numbers belong to {key[0]} and {key[1]}")
        seen.add(key)
