"""A study: a question and the protocol that answers it, as frozen plain data."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from types import FunctionType
from typing import Annotated, Any

from topk_platform.errors import UserError
from topk_platform.references import is_reference, reference_of
from topk_platform.specs.arm import Arm
from topk_platform.specs.checks import check, first_few
from topk_platform.specs.claims import Claim, Contrast, Published
from topk_platform.specs.codec import decode, digest, encode
from topk_platform.specs.fields import Count, Part, Positive, Rule, check_fields, one_of
from topk_platform.specs.metric_names import accuracy_names, candidate_names, coverage_names, less_is_better
from topk_platform.specs.smoke import smoke_study
from topk_platform.specs.study_checks import check_study, complete
from topk_platform.specs.trial import SPECS

__all__ = ["Study"]

_MOST_NAMES = 12  # in a line of its text

_DEVICE = Rule(
    "one of ['cpu', 'cuda'] (Apple's mps has no float64, in which scores are computed)",
    ("cpu", "cuda").__contains__,
)
_KIND = Rule("a kind of GPU such as 'A100'", lambda name: re.fullmatch(r"[\w.+-]*", name) is not None)
_TOLERANCE = Rule("points, at least 0 and below 100", lambda points: 0 <= points < 100)


@dataclass(frozen=True)
class Study:
    """A question and the protocol that answers it.

    Args:
        name: Names the folder of its results; letters, digits and ``._+-``.
        arms: The arms that are compared; see :func:`grid`.
        topk: The k for which top-k accuracy is recorded: plain, macro, and macro over the many-, medium- and
            few-shot classes.
        targets: Top-K accuracies. For each, the least K that reaches it is recorded.
        trials: Search trials per arm, over all its searches.
        seeds: Fresh seeds with which each arm's best configuration is trained again, divided among its searches.
        baseline: The label of the loss that the others are compared with. By default it is ``cross_entropy`` if an
            arm has that loss, and otherwise None: nothing is compared.
        show: The metrics in tables; by default every arm's selection metric and ``top1``.
        seed: The root of all random streams.
        threads: Torch threads of a trial; part of a trial's key, because it changes the last bits.
        device: ``"cpu"`` or ``"cuda"``.
        gpus: The part of a GPU that a trial on ``"cuda"`` takes, in (0, 1]. A trial that takes less than a whole GPU
            shares it with others and gets that part of its memory. It is part of no identity and no trial's key.
        accelerator: The only kind of GPU that trials may run on, by Ray's name for it, such as ``"A100"`` or ``"L4"``;
            empty: any kind. Like ``gpus`` it is part of no identity. Each trial's record holds the GPU's model.
        time_limit: Hours that a trial may train in all. A trial that takes longer is ended without a result. None is
            no limit. Like ``gpus`` it is part of no identity.
        start_limit: Hours without a sign of life that a trial's process may take until its first epoch has ended: it
            imports, reads data and compiles. Then it is ended and tried again. It is part of no identity either.
        description: A line for ``topk list``.
        published: Numbers that papers printed for its arms. Tables show them beside ours. They change no result.
        interval: The variation that the tables' intervals cover: ``"crossed"``, seeds and test images, crossed, and the
            search if it was repeated; ``"seeds"``, only the seeds, by Student's t. It changes no result.
        claims: Findings that its results decide; see ``topk table --claims``. They change no result.
        measures: Metrics recorded besides the accuracies: ``"autkc5"``, ``"average5"``, ``"size90"``, ``"size95"`` or
            ``"size99"``, with any K in place of 5; ``"ece"``, ``"nll"`` or ``"brier"``; see ``docs/metrics.md``. The
            measures that ``show``, an arm's metric and its recipe's ``keep`` name are added. They are part of every
            arm's identity; functions of your own, or their references, are part of none.
        equivalence: The difference of accuracies, in points, below which losses count as equivalent. Tables mark a
            difference that is shown to be within it by ≈. With 0 there is no such test. It changes no result.
        reference: The name that commands use for the study if it is not ``name``, such as ``"my_birds:study"``.
            Commands set it, and print it in the commands that they suggest. It is never stored.
        changed: Which of ``searches``, ``trials`` and ``seeds`` are not those of its definition. ``with_budget`` sets
            it, and suggested commands have these options. It is never stored.
        plan: The searches and the seeds of its definition, for which claims are planned. ``with_budget`` sets it; empty
            if the study is as it was defined. It is never stored.
        measured: The K of the recorded trials of an arm, by its name, where a store has them with other K than
            ``topk``; see ``topk_platform.records.recorded.as_recorded``. It is never stored.

    Raises:
        UserError: if a name is unsafe, two arms have one name, the baseline is no arm's loss, a number is out of
            range, its arms are not searched equally often, trials or seeds are not a multiple of the number of
            searches, or a published number or a claim names an arm or a metric that the study does not have.
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
    measures: tuple[str, ...] = ()
    accelerator: Annotated[str, _KIND] = ""
    equivalence: Annotated[float, _TOLERANCE] = 0.0
    start_limit: Positive = 1.0
    reference: str = field(default="", compare=False, repr=False)
    changed: tuple[str, ...] = field(default=(), compare=False, repr=False)
    plan: tuple[int, ...] = field(default=(), compare=False, repr=False)
    measured: Mapping[str, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def remedy_for(value: object) -> str:
        """Return advice about a value that is not a study, to follow an error."""
        if isinstance(value, str):
            return ": import it, such as `from topk_studies import digits`, and call it, digits()"
        return f": call it, {value.__name__}()" if isinstance(value, FunctionType) else ""

    def __post_init__(self) -> None:
        for name in ("measures", "show"):
            object.__setattr__(self, name, reference_of("measure", getattr(self, name)))
        check_fields(self)
        complete(self)
        check_study(self)

    def __str__(self) -> str:
        arms = self.arms
        named = {
            "regimes": dict.fromkeys(arm.regime.name for arm in arms),
            "models": dict.fromkeys(self.models),
            "losses": dict.fromkeys(arm.loss.label for arm in arms),
        }
        searched = sum(arm.is_searched for arm in arms)
        budget = f"{self.trials} search trials in each of {searched}, " if searched else ""
        lines = [
            f"{self.name}: {self.description}".removesuffix(": "),
            *(f"{kind}: {first_few(list(names), _MOST_NAMES)}" for kind, names in named.items()),
            f"{len(arms)} arms of a regime, a model and a loss: {budget}{self.seeds} seeds each, "
            f"{self.size} trainings at most",
            f"K = {', '.join(map(str, sorted({arm.k for arm in arms})))}; shown are {', '.join(self.show)}; "
            f"baseline {self.baseline or 'none'}",
        ]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's signature
        printer.text(str(self))

    @cached_property
    def accuracies(self) -> tuple[str, ...]:
        """The accuracies for every k: ``top1``, ..., ``macro_top1``, ..., ``few_top5``."""
        return accuracy_names(self.topk)

    @cached_property
    def tabled(self) -> tuple[str, ...]:
        """The metrics that can be shown: the accuracies, and the measures that are asked for."""
        return self.accuracies + self.measures

    @cached_property
    def built_in(self) -> tuple[str, ...]:
        """The measures that are not the user's own functions."""
        return tuple(metric for metric in self.measures if not is_reference(metric))

    @cached_property
    def selecting(self) -> tuple[str, ...]:
        """The metrics that can select: those of :attr:`tabled` of which more is better."""
        return tuple(m for m in self.accuracies + self.built_in if not less_is_better(m))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics recorded; those of the user's own functions are not among them."""
        return self.accuracies + self.built_in + coverage_names(self.measures) + candidate_names(self.targets)

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
        return self.trials if arm.is_searched else 0

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The labels of the arms' networks, each once."""
        return tuple(dict.fromkeys(arm.model.label for arm in self.arms))

    def arm_id(self, arm: Arm) -> str:
        """Return the arm's ID: the hash of all that determines its results, without its budget.

        Neither the study's name is part of it nor the number of trials, seeds and searches.
        """
        known = self._arm_ids.get(arm.name)
        if known is None or known[0] is not arm:  # another study's, or a changed one
            what = (self.seed, self.topk_of(arm), self.targets, self.built_in, self.threads, self.device)
            known = self._arm_ids[arm.name] = arm, digest((*what, arm.searched(1)))
        return known[1]

    def topk_of(self, arm: Arm) -> tuple[int, ...]:
        """Return the k of the accuracies that an arm's trials record; those of other k follow from the ranks."""
        return self.measured.get(arm.name, self.topk)

    @cached_property
    def _arm_ids(self) -> dict[str, tuple[Arm, str]]:
        return {}

    def published_of(self, arm: Arm, metric: str) -> Published | None:
        """Return the published number of an arm by a metric, or None."""
        return next((n for n in self.published if n.metric == metric and n.names(arm)), None)

    def only(self, patterns: str | Sequence[str]) -> Study:
        """Return the study with the arms whose names match any of the globs.

        If the baseline has no arm among them, the study gets the default baseline.

        Args:
            patterns: Globs over arm names, ``regime/model/loss``.

        Raises:
            UserError: if a glob matches no arm.
        """
        globs = (patterns,) if isinstance(patterns, str) else patterns
        names = [arm.name for arm in self.arms]
        for glob in globs:
            if not any(fnmatchcase(name, glob) for name in names):
                raise UserError(f"--only {glob!r} matches no arm of {self.name}; arms: {names}")
        arms = tuple(arm for arm in self.arms if any(fnmatchcase(arm.name, glob) for glob in globs))
        return dataclasses.replace(
            self,
            arms=arms,
            published=[number for number in self.published if any(map(number.names, arms))],
            baseline=self.baseline if any(arm.loss.label == self.baseline for arm in arms) else None,
            claims=[claim for claim in self.claims if {arm.name for arm in arms}.issuperset(claim.arms)],
        )

    def with_budget(
        self, trials: int | None = None, seeds: int | None = None, searches: int | None = None
    ) -> Study:
        """Return the study with another budget; None leaves a number as it is.

        Trials that have already run count in the new budget: more searches, trials or seeds only add trials.

        Args:
            trials: Search trials per arm, over all its searches.
            seeds: Seeds per arm, over all its searches.
            searches: How often each arm is searched. By default, each search has as many trials and seeds as before:
                three searches in place of one have three times as many in all.

        Raises:
            UserError: if a number is below 1, or trials or seeds are not a multiple of the searches.
        """
        given = {"searches": searches, "trials": trials, "seeds": seeds}
        times = self.searches if searches is None else searches
        check(times >= 1, f"study {self.name}: searches must be at least 1, got {times}")
        check(
            times == self.searches or any(arm.is_searched for arm in self.arms),
            f"study {self.name}: searches must be left out, because none of its arms is searched, got {times}",
        )
        trials = self.trials // self.searches * times if trials is None else trials
        seeds = self.seeds // self.searches * times if seeds is None else seeds
        return dataclasses.replace(
            self,
            arms=tuple(arm.searched(times) for arm in self.arms),
            trials=trials,
            seeds=seeds,
            changed=tuple(n for n, number in given.items() if number is not None or n in self.changed),
            plan=self.plan or (self.searches, self.seeds),
        )

    def to_json(self) -> str:
        """Return the study as JSON. Mappings keep their order, because claims are written in it."""
        return json.dumps(encode(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Study:
        """Return the study that ``to_json`` wrote.

        Raises:
            ValueError: if the text is not a study's.
        """
        study = decode(json.loads(text), (*SPECS, Claim, Contrast, Published, cls))
        if not isinstance(study, cls):
            raise ValueError(f"not a study: {text[:80]!r}")
        return study

    def smoke(self) -> Study:
        """Return the study shrunk to seconds: 2 trials, 2 seeds and 2 epochs an arm, under its own name.

        Small stand-ins replace large datasets: nothing is downloaded. Published numbers and claims are left out.
        """
        return smoke_study(self)
