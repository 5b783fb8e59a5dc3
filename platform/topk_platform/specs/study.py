"""What a study asks: regimes, models, losses with their spaces, the protocol, all as frozen plain data."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from topk_platform.errors import UserError
from topk_platform.specs.codec import digest
from topk_platform.specs.space import Dimension, Scalar

__all__ = [
    "Arm",
    "Condition",
    "LabelNoise",
    "LongTail",
    "Loss",
    "Model",
    "Protocol",
    "Pruning",
    "Recipe",
    "Regime",
    "Study",
    "grid",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def check_name(kind: str, name: str) -> None:
    """Raise ``UserError`` unless ``name`` is safe in a path, a glob and a table."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{kind} must match {_NAME.pattern}, for it names files and folders, got {name!r}")


def _check(rule: bool, message: str) -> None:
    if not rule:
        raise UserError(message)


@dataclass(frozen=True)
class LabelNoise:
    """Replace each training label, with this probability, by a random one of its superclass.

    The new label may equal the old one. Drawn once per seed; validation and test are never touched.

    Args:
        probability: In ``[0, 1]``.
    """

    probability: float

    def __post_init__(self) -> None:
        _check(0 <= self.probability <= 1, f"LabelNoise.probability must be in [0, 1], got {self.probability!r}")


@dataclass(frozen=True)
class LongTail:
    """Thin the training classes exponentially: class c keeps ``n · ratio^(-c / (C - 1))`` of its images.

    Args:
        ratio: Largest over smallest class count, at least 1.
    """

    ratio: float

    def __post_init__(self) -> None:
        _check(self.ratio >= 1, f"LongTail.ratio must be at least 1, got {self.ratio!r}")


Condition = LabelNoise | LongTail


@dataclass(frozen=True)
class Regime:
    """A dataset under conditions.

    Args:
        name: What tables call it.
        dataset: A name in the platform's table, or ``package.module:attribute`` of your own function.
        conditions: Applied to the training split, in order.
        options: Keyword arguments of the dataset's function.
    """

    name: str
    dataset: str
    conditions: tuple[Condition, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("regime name", self.name)
        object.__setattr__(self, "conditions", tuple(self.conditions))


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
    head: str = "linear"
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name.rpartition(":")[2])
        check_name("loss label", self.label)
        _check(self.head in ("linear", "cosine"), f"Loss.head must be 'linear' or 'cosine', got {self.head!r}")
        both = sorted(set(self.space) & set(self.fixed))
        _check(not both, f"loss {self.label}: {both} cannot be both in space and fixed")
        _check(
            set(self.first) == set(self.space),
            f"loss {self.label}: first must give one value for each of {sorted(self.space)}, got {sorted(self.first)}",
        )
        for name, dimension in self.space.items():
            value = self.first[name]
            _check(dimension.holds(value), f"loss {self.label}: first[{name!r}] must lie in {dimension}, got {value!r}")
        first = {name: self.space[name].canonical(value) for name, value in self.first.items()}
        object.__setattr__(self, "first", first)


@dataclass(frozen=True)
class Recipe:
    """How a trial trains, apart from what its arm searches.

    Args:
        epochs: Passes over the training split.
        batch_size: Samples a step.
        optimizer: ``"sgd"`` (with Nesterov momentum where momentum is not 0) or ``"adam"``.
        learning_rate: At the first step.
        momentum: Of ``"sgd"``.
        weight_decay: L2 penalty.
        schedule: ``"cosine"`` (to 0 over all steps) or ``"constant"``.
    """

    epochs: int
    batch_size: int = 64
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "cosine"

    def __post_init__(self) -> None:
        _check(self.epochs >= 1, f"Recipe.epochs must be at least 1, got {self.epochs!r}")
        _check(self.batch_size >= 1, f"Recipe.batch_size must be at least 1, got {self.batch_size!r}")
        _check(self.optimizer in ("sgd", "adam"), f"Recipe.optimizer must be 'sgd' or 'adam', got {self.optimizer!r}")
        _check(
            self.schedule in ("cosine", "constant"),
            f"Recipe.schedule must be 'cosine' or 'constant', got {self.schedule!r}",
        )


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

    rungs: tuple[float, ...] = (0.25, 0.5)
    quantile: float = 0.5
    startup: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "rungs", tuple(self.rungs))
        _check(all(0 < r < 1 for r in self.rungs), f"Pruning.rungs must lie in (0, 1), got {self.rungs!r}")
        _check(0 <= self.quantile <= 1, f"Pruning.quantile must be in [0, 1], got {self.quantile!r}")
        _check(self.startup >= 1, f"Pruning.startup must be at least 1, got {self.startup!r}")


@dataclass(frozen=True)
class Protocol:
    """How an arm is searched; part of its identity.

    Args:
        random: How many trials after the first are drawn at random before TPE takes over.
        width: How many of the arm's trials may run at once: the n-th suggestion knows the trials
            numbered up to ``n - width``, whatever else has ended by then.
        pruning: The rule by which search trials are stopped, or None.
    """

    random: int = 5
    width: int = 1
    pruning: Pruning | None = field(default_factory=Pruning)

    def __post_init__(self) -> None:
        _check(self.random >= 0, f"Protocol.random must be at least 0, got {self.random!r}")
        _check(self.width >= 1, f"Protocol.width must be at least 1, got {self.width!r}")


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
    k: int
    recipe: Recipe
    metric: str = ""
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        _check(self.k >= 1, f"Arm.k must be at least 1, got {self.k!r}")
        object.__setattr__(self, "metric", self.metric or f"top{self.k}")

    @property
    def name(self) -> str:
        """``regime/model/loss``."""
        return f"{self.regime.name}/{self.model.label}/{self.loss.label}"


@dataclass(frozen=True)
class Study:
    """A question and the protocol that answers it.

    Args:
        name: Names the folder of its results; letters, digits and ``._+-``.
        arms: What is compared; see :func:`grid`.
        topk: The k for which plain and macro top-k accuracy are recorded.
        trials: Search trials per arm.
        seeds: Fresh seeds with which each arm's best configuration is trained anew.
        baseline: The label of the loss that the others are compared with.
        show: The metrics in tables; by default every arm's selection metric and ``top1``.
        seed: The root of all random streams.
        threads: Torch threads of a trial; part of a trial's key, for it changes the last bits.
        device: ``"cpu"`` or ``"cuda"``.
        gpus: GPUs of a trial on ``"cuda"``; a fraction shares one.
        description: A line for ``topk list``.

    Raises:
        UserError: if a name is unsafe, two arms have one name, or a number is out of range.
    """

    name: str
    arms: Sequence[Arm]
    topk: tuple[int, ...] = (1, 5)
    trials: int = 16
    seeds: int = 5
    baseline: str = "cross_entropy"
    show: tuple[str, ...] = ()
    seed: int = 0
    threads: int = 1
    device: str = "cpu"
    gpus: float = 1.0
    description: str = ""

    def __post_init__(self) -> None:
        check_name("study name", self.name)
        object.__setattr__(self, "arms", tuple(self.arms))
        object.__setattr__(self, "topk", tuple(sorted(set(self.topk))))
        _check(bool(self.arms), f"study {self.name}: arms must hold at least one arm")
        _check(self.trials >= 1, f"study {self.name}: trials must be at least 1, got {self.trials!r}")
        _check(self.seeds >= 1, f"study {self.name}: seeds must be at least 1, got {self.seeds!r}")
        _check(self.threads >= 1, f"study {self.name}: threads must be at least 1, got {self.threads!r}")
        _check(self.gpus > 0, f"study {self.name}: gpus must be above 0, got {self.gpus!r}")
        _check(bool(self.topk) and self.topk[0] >= 1, f"study {self.name}: topk must be at least 1, got {self.topk!r}")
        _check(self.device in ("cpu", "cuda"), f"study {self.name}: device must be cpu or cuda, got {self.device!r}")
        names = [arm.name for arm in self.arms]
        twice = sorted({name for name in names if names.count(name) > 1})
        _check(not twice, f"study {self.name}: two arms are called {twice}; give one of them a label")
        self._check_metrics()

    def _check_metrics(self) -> None:
        selected = dict.fromkeys(arm.metric for arm in self.arms)
        object.__setattr__(self, "show", tuple(self.show) or tuple(dict.fromkeys((*selected, *self.metrics[:1]))))
        for metric in (*selected, *self.show):
            if metric not in self.metrics:
                raise UserError(f"study {self.name}: metric {metric!r} is not among {list(self.metrics)}")

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics recorded: ``top1``, ..., ``macro_top1``, ...."""
        return tuple(f"{kind}top{k}" for kind in ("", "macro_") for k in self.topk)

    def arm_id(self, arm: Arm) -> str:
        """Return the hash of all that determines the arm's results but how much of it is asked for."""
        return digest((self.name, self.seed, self.topk, self.threads, self.device, arm))

    def only(self, pattern: str) -> Study:
        """Return the study with the arms whose name matches the glob ``pattern``.

        Raises:
            UserError: if no arm matches.
        """
        arms = tuple(arm for arm in self.arms if fnmatchcase(arm.name, pattern))
        if not arms:
            raise UserError(f"--only {pattern!r} matches no arm of {self.name}; arms: {[a.name for a in self.arms]}")
        return dataclasses.replace(self, arms=arms)

    def smoke(self) -> Study:
        """Return the study shrunk to seconds: 2 trials, 2 seeds and 2 epochs an arm, under a name of its own."""
        arms = tuple(
            dataclasses.replace(arm, recipe=dataclasses.replace(arm.recipe, epochs=min(2, arm.recipe.epochs)))
            for arm in self.arms
        )
        return dataclasses.replace(self, name=f"{self.name}-smoke", arms=arms, trials=2, seeds=2)


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
        >>> arms = grid(
        ...     [Regime("clean", "digits"), Regime("noisy", "digits", (LabelNoise(0.4),))],
        ...     [Model("mlp")],
        ...     [Loss("cross_entropy"), Loss("smooth_topk_svm")],
        ...     k=3,
        ...     recipe=Recipe(epochs=10),
        ... )
        >>> [arm.name for arm in arms][:2]
        ['clean/mlp/cross_entropy', 'clean/mlp/smooth_topk_svm']
    """
    models, losses, how = tuple(models), tuple(losses), protocol or Protocol()
    return tuple(Arm(r, m, loss, k, recipe, metric, how) for r in regimes for m in models for loss in losses)
