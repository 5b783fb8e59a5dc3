"""The fields of a study, and the values computed from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from topk_platform.specs.arms.arm import Arm
from topk_platform.specs.codec import LATER, digest
from topk_platform.specs.fields import Count, Part, Positive, Rule, one_of
from topk_platform.specs.metric_names import accuracy_names, candidate_names, coverage_names, less_is_better
from topk_platform.specs.study.claims import Claim
from topk_platform.specs.study.published import Published

__all__ = ["StudyFields"]

_DEVICE = Rule(
    "one of ['cpu', 'cuda'] (Apple's mps has no float64, in which scores are computed)",
    ("cpu", "cuda").__contains__,
)


def _is_kind(name: str) -> bool:
    return re.fullmatch(r"[\w.+-]*", name) is not None


def _is_tolerance(points: float) -> bool:
    return 0 <= points < 100


@dataclass(frozen=True)
class StudyFields:
    """The fields of a :class:`~topk_platform.Study`, which documents them, without its checks.

    The functions that check, show and change a study take this class, so that they need not import ``Study``.
    """

    name: str
    arms: Sequence[Arm]
    topk: tuple[Count, ...] = (1, 5)
    targets: tuple[Part, ...] = (0.99,)
    trials: Count = 16
    seeds: Count = 5
    baseline: str | None = None
    show: tuple[str, ...] = ()
    seed: int = 0
    threads: Count = 1
    device: Annotated[str, _DEVICE] = "cpu"
    gpus: Annotated[float, Rule("in (0, 1]: a trial trains on one GPU", lambda value: 0 < value <= 1)] = 1.0
    time_limit: Positive | None = None
    description: str = ""
    published: Sequence[Published] = ()
    interval: Annotated[str, one_of("crossed", "seeds")] = "crossed"
    claims: Sequence[Claim] = ()
    measures: tuple[str, ...] = field(default=(), metadata=LATER)
    accelerator: Annotated[str, Rule("a kind of GPU such as 'A100'", _is_kind)] = field(
        default="", metadata=LATER
    )
    equivalence: Annotated[float, Rule("points, at least 0 and below 100", _is_tolerance)] = field(
        default=0.0, metadata=LATER
    )
    start_limit: Positive = field(default=0.5, metadata=LATER)
    reference: str = field(default="", compare=False, repr=False)
    changed: tuple[str, ...] = field(default=(), compare=False, repr=False)
    plan: tuple[int, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def accuracies(self) -> tuple[str, ...]:
        """The accuracies for every k: ``top1``, ..., ``macro_top1``, ..., ``few_top5``."""
        return accuracy_names(self.topk)

    @cached_property
    def tabled(self) -> tuple[str, ...]:
        """The metrics that can be shown: the accuracies, and the measures that are asked for."""
        return self.accuracies + self.measures

    @cached_property
    def selecting(self) -> tuple[str, ...]:
        """The metrics that can select: those of :attr:`tabled` of which more is better."""
        return tuple(metric for metric in self.tabled if not less_is_better(metric))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics recorded."""
        return self.tabled + coverage_names(self.measures) + candidate_names(self.targets)

    @property
    def size(self) -> int:
        """How many trials the study asks for."""
        return sum(self.search_trials(arm) + self.seeds for arm in self.arms)

    @property
    def searches(self) -> int:
        """How often each arm that searches is searched."""
        return self.arms[0].protocol.searches

    def search_trials(self, arm: Arm) -> int:
        """Return how many search trials of an arm are trained."""
        return arm.repeats.asked(self.trials) if arm.is_searched else 0

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The labels of the arms' networks, each once."""
        return tuple(dict.fromkeys(arm.model.label for arm in self.arms))

    @cached_property
    def _named(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.arms}

    def arm_id(self, arm: Arm) -> str:
        """Return the hash of all that determines the arm's results, without its budget.

        Neither the number of trials and seeds nor that of searches is part of it.
        """
        if self._named.get(arm.name) is not arm:  # another study's, or a changed one
            return self._hashed(arm)
        if arm.name not in self._arm_ids:
            self._arm_ids[arm.name] = self._hashed(arm)
        return self._arm_ids[arm.name]

    @cached_property
    def _arm_ids(self) -> dict[str, str]:
        return {}

    def _hashed(self, arm: Arm) -> str:
        more = ({"measures": self.measures},) if self.measures else ()
        once = arm.searched(1)
        return digest((self.name, self.seed, self.topk, self.targets, self.threads, self.device, once, *more))
