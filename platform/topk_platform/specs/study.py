"""A question and the protocol that answers it, as frozen plain data."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any

from topk_platform.errors import UserError
from topk_platform.specs.arm import Arm
from topk_platform.specs.checks import check, check_name
from topk_platform.specs.claims import Claim, Contrast, check_claims
from topk_platform.specs.codec import LATER, decode, digest, encode
from topk_platform.specs.displayed import study_to_html, study_to_text
from topk_platform.specs.fields import Count, Part, Positive, Rule, check_fields, one_of
from topk_platform.specs.metric_names import (
    accuracy_k,
    accuracy_names,
    candidate_names,
    coverage_names,
    less_is_better,
    measure_of,
    measures_among,
)
from topk_platform.specs.published import Published, check_published
from topk_platform.specs.racing import Racing
from topk_platform.specs.smoke import SMOKE, smoke_arm
from topk_platform.specs.study_checks import check_gpus, check_origins, check_searches, with_equal_searches
from topk_platform.specs.trial import SPECS

__all__ = ["Study"]

_BASELINE = "cross_entropy"
_SMOKE_CLASSES = 8
_Share = Annotated[float, Rule("in (0, 1]: a trial trains on one GPU", lambda value: 0 < value <= 1)]


def _is_kind(name: str) -> bool:
    return re.fullmatch(r"[\w.+-]*", name) is not None


def _is_tolerance(points: float) -> bool:
    return 0 <= points < 100


@dataclass(frozen=True)
class Study:
    """A question and the protocol that answers it.

    Args:
        name: Names the folder of its results; letters, digits and ``._+-``.
        arms: What is compared; see :func:`grid`.
        topk: The k for which top-k accuracy is recorded: plain, macro, and macro over the many-, medium- and
            few-shot classes.
        targets: Top-K accuracies of which the least K is recorded that reaches them.
        trials: Search trials per arm, over all its searches; the first trial of each, which they share, is counted in
            each and trained once.
        seeds: Fresh seeds with which each arm's best configuration is trained anew, shared out among its searches.
        baseline: The label of the loss that the others are compared with; by default ``cross_entropy`` where an arm
            has it, and otherwise None: with none.
        show: The metrics in tables; by default every arm's selection metric and ``top1``.
        seed: The root of all random streams.
        threads: Torch threads of a trial; part of a trial's key, for it changes the last bits.
        device: ``"cpu"`` or ``"cuda"``.
        gpus: The part of a GPU that a trial on ``"cuda"`` takes, in (0, 1]: a trial trains on one, and shares it with
            others if it takes less; then it gets that part of the memory and no more. ``"auto"``: as many trials share
            a GPU as its memory holds of the arm that takes the most, which every run measures before it starts. It is
            part of neither an arm's identity nor a trial's key.
        accelerator: The only kind of GPU that trials may run on, by Ray's name for it, such as ``"A100"`` or ``"L4"``;
            empty: any. Like ``gpus`` it is part of no identity; each trial's record tells the GPU's model.
        time_limit: Hours that a trial may train in all; one that takes longer is ended and left without a result.
            None is no limit. It is part of neither an arm's identity nor a trial's key, for it changes no result.
        start_limit: Hours that a trial's process may take to start. The time for which other work uses the machines,
            or for which machines are being added, does not count. A trial that exceeds it is tried again. Like
            ``time_limit`` it is part of no identity.
        description: A line for ``topk list``.
        front: Of how many configurations at most an arm that is searched by several metrics has its front confirmed.
        published: Numbers of papers for its arms, which tables show beside ours; they change no result.
        racing: The rule by which arms that cannot win any more stop being confirmed, or None: all get all seeds.
        interval: What the tables' intervals cover; it changes no result. ``"crossed"``: seeds and test images, crossed,
            and the search where it was repeated. ``"seeds"``: the seeds alone, by Student's t.
        claims: Findings that its results decide, see ``topk claims``; they change no result.
        measures: What is recorded beside the accuracies: ``"autkc5"``, ``"average5"``, ``"size90"``, ``"size95"`` or
            ``"size99"``, with any K in place of 5; ``"ece"``, ``"nll"`` or ``"brier"``; see ``docs/metrics.md``. What
            ``show``, an arm's metrics and its recipe's ``keep`` name is added to them, and they are part of every arm's
            identity.
        calibration: The part of the validation split, in [0, 1), that is set aside for the thresholds of sets, in the
            results and in exported networks: it selects no configuration and no epoch. 0: the whole split does both,
            and exported networks are not calibrated. It is part of every arm's identity.
        equivalence: The difference of accuracies, in points, below which losses count as equivalent: tables mark with ≈
            what is shown to lie within it. 0 asks for no such test. It changes no result.

    Raises:
        UserError: if a name is unsafe, two arms have one name, the baseline is no arm's loss, a number is out of
            range, its arms are not searched equally often, or trials or seeds are no multiple of the number of
            searches, an arm is to start from one that is not there,
            that searches nothing or that waits for it, or a published number or a claim is of no arm or of a metric
            that the study does not have.
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
    device: Annotated[str, one_of("cpu", "cuda")] = "cpu"
    gpus: _Share | Annotated[str, Rule("'auto' or a number in (0, 1]", lambda value: value == "auto")] = 1.0
    time_limit: Positive | None = None
    description: str = ""
    published: Sequence[Published] = ()
    racing: Racing | None = None
    front: Count = 3
    interval: Annotated[str, one_of("crossed", "seeds")] = "crossed"
    claims: Sequence[Claim] = ()
    measures: tuple[str, ...] = field(default=(), metadata=LATER)
    accelerator: Annotated[str, Rule("a kind of GPU such as 'A100'", _is_kind)] = field(
        default="", metadata=LATER
    )
    calibration: Annotated[float, Rule("in [0, 1)", lambda value: 0 <= value < 1)] = field(
        default=0.0, metadata=LATER
    )
    equivalence: Annotated[float, Rule("points, at least 0 and below 100", _is_tolerance)] = field(
        default=0.0, metadata=LATER
    )
    start_limit: Positive = field(default=0.5, metadata=LATER)

    def __post_init__(self) -> None:
        check_fields(self)
        check_name("study name", self.name)
        object.__setattr__(self, "topk", tuple(sorted(set(self.topk))))
        check(bool(self.arms), f"study {self.name}: arms must hold at least one arm")
        check(bool(self.topk), f"study {self.name}: topk must hold at least one k, got {self.topk!r}")
        object.__setattr__(self, "arms", with_equal_searches(self))
        names = [arm.name for arm in self.arms]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        check(not twice, f"study {self.name}: two arms are called {twice}; give one of them a label")
        check_gpus(self)
        self._check_baseline()
        self._check_metrics()
        check_published(self.name, self.published, self.arms, self.selecting)
        check_claims(self.name, self.claims, names, self.metrics)
        check_searches(self)
        check_origins(self)

    def __str__(self) -> str:
        return study_to_text(self)

    def _repr_html_(self) -> str:
        return study_to_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - as IPython calls it
        printer.text(str(self))

    def _check_baseline(self) -> None:
        labels = list(dict.fromkeys(arm.loss.label for arm in self.arms))
        if self.baseline is None:
            object.__setattr__(self, "baseline", _BASELINE if _BASELINE in labels else None)
        elif self.baseline not in labels:
            raise UserError(
                f"study {self.name}: baseline must be the label of one of its losses, {labels}, got {self.baseline!r}"
            )

    def _check_metrics(self) -> None:
        selected = dict.fromkeys(metric for arm in self.arms for metric in arm.objectives)
        object.__setattr__(
            self, "show", tuple(self.show) or tuple(dict.fromkeys((*selected, *self.accuracies[:1])))
        )
        for metric in self.measures:
            check(
                measure_of(metric) is not None,
                f"study {self.name}: measures must be such as 'autkc5', 'average5' or 'size95' (90, 95, 99), or 'ece', "
                f"'nll' or 'brier', "
                f"got {metric!r}",
            )
        kept = [metric for arm in self.arms for metric in arm.recipe.keep]
        object.__setattr__(self, "measures", measures_among((*self.measures, *selected, *kept, *self.show)))
        for metric in (*selected, *self.show, *kept):
            if metric not in self.tabled:
                raise self._no_such(metric)
        for metric in (*selected, *kept):
            if metric not in self.selecting:
                raise UserError(
                    f"study {self.name}: metric {metric!r} cannot select, for less of it is better: show it, and "
                    f"select by one of {list(self.selecting)}"
                )

    def _no_such(self, metric: str) -> UserError:
        k = accuracy_k(metric)
        if k is None:
            return UserError(f"study {self.name}: metric {metric!r} is not among {list(self.tabled)}")
        arm = next((arm.name for arm in self.arms if metric == arm.metric == f"top{arm.k}"), "")
        why = f"which is the k of arm {arm}" if arm else f"for metric {metric!r}"
        wanted = tuple(sorted({*self.topk, k}))
        return UserError(
            f"study {self.name}: topk must contain {k}, {why}, got {self.topk}: take topk={wanted}"
        )

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
    def gpu_share(self) -> float:
        """The part of a GPU that a trial takes; of ``gpus="auto"``, which nobody has measured yet, a whole one."""
        return 1.0 if isinstance(self.gpus, str) else self.gpus

    @property
    def size(self) -> int:
        """How many trials the study asks for."""
        return sum(self.search_trials(arm) + self.seeds * self.points(arm) for arm in self.arms)

    @property
    def searches(self) -> int:
        """How often each arm that searches is searched."""
        return self.arms[0].protocol.searches

    def search_trials(self, arm: Arm) -> int:
        """Return how many search trials of an arm are trained."""
        return arm.repeats.asked(self.trials) if arm.is_searched else 0

    def points(self, arm: Arm) -> int:
        """Return how many configurations of an arm are confirmed at most."""
        return self.front if len(arm.objectives) > 1 and arm.is_searched else 1

    @cached_property
    def _named(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.arms}

    def origin(self, arm: Arm) -> Arm | None:
        """Return the arm from whose best configuration an arm's search starts, or None."""
        return self._named.get(arm.start_from)

    def arm_id(self, arm: Arm) -> str:
        """Return the hash of all that determines the arm's results but how much of it is asked for.

        How often the arm is searched is no part of it. Of an arm that starts from another one's best it holds how many
        trials of a search decide which that is.
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
        origin = self.origin(arm)
        start = () if origin is None else (self.arm_id(origin), self.trials // self.searches)
        more = (*start, {"measures": self.measures}) if self.measures else start
        more = (*more, {"calibration": self.calibration}) if self.calibration else more
        once = arm.searched(1)
        return digest((self.name, self.seed, self.topk, self.targets, self.threads, self.device, once, *more))

    def published_of(self, arm: Arm, metric: str) -> Published | None:
        """Return the published number of an arm by a metric, or None."""
        found = (number for number in self.published if number.metric == metric and number.names(arm))
        return next(found, None)

    def only(self, patterns: str | Sequence[str]) -> Study:
        """Return the study with the arms whose name matches a glob, or one of several, and those that they start from.

        Where the baseline's arms are not among them, the default baseline takes its place.

        Args:
            patterns: Globs over arm names, ``regime/model/loss``.

        Raises:
            UserError: if one of them matches no arm.
        """
        globs = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        for glob in globs:
            if not any(fnmatchcase(arm.name, glob) for arm in self.arms):
                raise UserError(
                    f"--only {glob!r} matches no arm of {self.name}; arms: {[a.name for a in self.arms]}"
                )
        names = {arm.name for arm in self.arms if any(fnmatchcase(arm.name, glob) for glob in globs)}
        while more := {origin.name for name in names if (origin := self.origin(self._named[name]))} - names:
            names |= more
        arms = tuple(arm for arm in self.arms if arm.name in names)
        published = [number for number in self.published if any(map(number.names, arms))]
        baseline = self.baseline if any(arm.loss.label == self.baseline for arm in arms) else None
        names = {arm.name for arm in arms}
        claims = [claim for claim in self.claims if names.issuperset(claim.arms)]
        return dataclasses.replace(self, arms=arms, published=published, baseline=baseline, claims=claims)

    def with_budget(
        self, trials: int | None = None, seeds: int | None = None, searches: int | None = None
    ) -> Study:
        """Return the study with another budget; None leaves what it is.

        What has run of the study counts in it: more searches, trials or seeds only add some.

        Args:
            trials: Search trials per arm, over all its searches.
            seeds: Seeds per arm, over all its searches.
            searches: How often each arm is searched. Unless ``trials`` and ``seeds`` say otherwise, each search has as
                many of both as before: with three searches in place of one there are three times as many in all.

        Raises:
            UserError: if a number is below 1, or trials or seeds are no multiple of the searches.
        """
        times = self.searches if searches is None else searches
        check(times >= 1, f"study {self.name}: searches must be at least 1, got {times}")
        check(
            times == self.searches or any(arm.is_searched for arm in self.arms),
            f"study {self.name}: searches must be left out, for none of its arms is searched, got {times}",
        )
        trials = self.trials // self.searches * times if trials is None else trials
        seeds = self.seeds // self.searches * times if seeds is None else seeds
        arms = tuple(arm.searched(times) for arm in self.arms)
        return dataclasses.replace(self, arms=arms, trials=trials, seeds=seeds)

    def to_json(self) -> str:
        """Return the study as JSON; the order of what it maps stays, for claims are told in it."""
        return json.dumps(encode(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Study:
        """Return the study that ``to_json`` wrote.

        Raises:
            ValueError: if the text is not a study's.
        """
        found = decode(json.loads(text), (*SPECS, Claim, Contrast, Published, Racing, cls))
        if not isinstance(found, cls):
            raise ValueError(f"not a study: {text[:80]!r}")
        return found

    def smoke(self) -> Study:
        """Return the study shrunk to seconds: 2 trials, 2 seeds and 2 epochs an arm, under a name of its own.

        Where searches are repeated, each has 2 trials, and as few seeds as make 2 in all.

        Small stand-ins, which need no download, take the place of the large datasets; see :func:`smoke_arm`. It
        carries no published numbers and no claims, for its own say nothing of them.
        """
        wanted = [m.number for name in self.measures if (m := measure_of(name)) and m.kind != "size"]
        classes = max(_SMOKE_CLASSES, 2 + max(*self.topk, *wanted, *(arm.k for arm in self.arms)))
        arms = tuple(smoke_arm(arm, classes) for arm in self.arms)
        trials, seeds = 2 * self.searches, self.searches * math.ceil(2 / self.searches)
        return dataclasses.replace(
            self,
            name=f"{self.name}{SMOKE}",
            arms=arms,
            trials=trials,
            seeds=seeds,
            published=(),
            claims=(),
        )
