"""The recipe of a training, apart from the values that are searched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from topk_platform.errors import UserError
from topk_platform.extensions import extended
from topk_platform.specs.arms.additions import (
    EMA,
    SWA,
    LogitAdjustment,
    RandAugment,
    RetrainedClassifier,
    TauNormalised,
    TrivialAugment,
)
from topk_platform.specs.checks import check
from topk_platform.specs.codec import LATER
from topk_platform.specs.fields import Below1, Count, NonNegative, Positive, Whole, check_fields, one_of

__all__ = ["REPLACERS", "SEARCHABLE", "Augmentation", "Numerics", "Recipe", "replaced", "replacer_of"]

_PLACES: Mapping[str, tuple[str, ...]] = {
    "average_decay": ("average", "decay"),
    "average_start": ("average", "start"),
    "after_tau": ("after", "tau"),
    "after_epochs": ("after", "epochs"),
    "policy_operations": ("augmentation", "policy", "operations"),
    "policy_magnitude": ("augmentation", "policy", "magnitude"),
}
"""The position in a recipe of each searchable field of the parts that it adds."""

_WIDER = {
    "all": (
        *("learning_rate", "weight_decay", "momentum", "batch_size", "optimizer", "stochastic_depth"),
        *_PLACES,
    )
}

SEARCHABLE = extended(("learning_rate", "weight_decay", "momentum", "batch_size"), _WIDER, "all")
"""The fields of a recipe that a loss may search or fix.

The fields after the first four do not change the identity of arms that do not use them.
"""

_OPTIMIZERS = ("heavy_ball", "adamw")  # those of `OPTIMIZERS` in training/steps/optim.py


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of a batch of images and, for mixtures, of its labels.

    Args:
        crop: Zeros padded on each side before a crop of the image's own size at a random position.
        window: Whether training crops images in files, which are larger than the network's input, at a random position.
            Otherwise it crops their centre, as validation and test do.
        flip: Whether each image is mirrored with probability 1/2.
        cutout: Side of a square of zeros at a random centre, cut off at the borders (DeVries and Taylor 2017).
        mix: ``""``, ``"mixup"`` (Zhang et al. 2018) or ``"cutmix"`` (Yun et al. 2019); their labels are soft.
        mix_alpha: Parameter of the Beta distribution from which a batch's mixing share is drawn.
        policy: :class:`RandAugment` or :class:`TrivialAugment`, for uint8 images with 1 or 3 channels. It is applied
            between ``crop`` and ``flip``. None: neither.
    """

    crop: Whole = 0
    window: bool = False
    flip: bool = False
    cutout: Whole = 0
    mix: Annotated[str, one_of("", "mixup", "cutmix")] = ""
    mix_alpha: Positive = 1.0
    policy: RandAugment | TrivialAugment | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def on_images(self) -> bool:
        """Whether inputs must be images ``(n, channels, height, width)``."""
        return bool(self.crop or self.flip or self.cutout or self.mix == "cutmix" or self.policy)


@dataclass(frozen=True)
class Numerics:
    """The numerics of a network; losses are always computed in float32.

    On the CPU, every choice repeats bit for bit with the same versions and threads. On a GPU, ``deterministic`` makes
    torch use algorithms that repeat, and training fails where torch has none. Without it, sums may be taken in another
    order each time.

    Args:
        bfloat16: Run the network under autocast to bfloat16.
        tf32: Let GPUs round the inputs of float32 matrix products and convolutions to 10 bits.
        channels_last: Keep images with their channels innermost, which is fastest for convolutions on GPUs.
        deterministic: Use only algorithms that repeat bit for bit.
        compiled: Compile the network once for all trials of the same shape in a worker.
        cuda_graphs: On a GPU, record a training step once and replay it for every full batch. Networks whose kernels
            are short train several times as fast. Python code of the network and the loss then runs for the first
            steps only, so it must take the same way for every batch, and must not wait for the GPU (``.item()``).
            Without effect on the CPU.
    """

    bfloat16: bool = False
    tf32: bool = False
    channels_last: bool = False
    deterministic: bool = False
    compiled: bool = False
    cuda_graphs: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Recipe:
    """The training of a trial, apart from the values that its arm searches.

    Args:
        epochs: Passes over the training split.
        batch_size: Samples per step; a size of at least the training split's means full batches, in the data's own
            order.
        accumulate: Number of parts into which a batch is split, to fit a smaller device: gradients are accumulated
            over the parts, weighted by their samples. Batch normalisation sees each part alone.
        optimizer: ``"sgd"`` (with Nesterov momentum where momentum is not 0), ``"heavy_ball"`` (SGD with momentum that
            is not Nesterov's), ``"adam"``, whose weight decay is an L2 penalty, or ``"adamw"``, whose weight decay is
            decoupled from the gradient (Loshchilov and Hutter, ICLR 2019).
        learning_rate: The peak learning rate.
        momentum: The momentum of ``"sgd"`` and ``"heavy_ball"``.
        weight_decay: The L2 penalty. With ``"adamw"``, each step subtracts this share of the weights, times the
            learning rate.
        schedule: ``"cosine"`` (to 0 over all steps), ``"constant"``, or ``"milestones"``.
        milestones: Epochs after which the learning rate is multiplied by ``decay``, for ``"milestones"``.
        decay: The factor for ``milestones``.
        warmup: Epochs over which a factor of the learning rate rises linearly from 0 to 1.
        clip_norm: Gradients of a larger norm are scaled down to this norm; None: never.
        reweighting: The epoch after which classes are weighted by the inverse of their effective number (deferred
            re-weighting, Cao et al. 2019, with Cui et al.'s β = 0.9999); None: never.
        augmentation: The augmentation of the training images.
        evaluate_every: Epochs between validations; the last epoch is always validated.
        keep: Metrics. For each, the weights of the epoch with its best validation value are kept and give the test
            metric of the same name. All other test metrics come from the weights kept for the arm's metric if it is
            listed, else for the first one listed. Empty: the last epoch's weights are kept.
        patience: Training ends early, as completed, after this many validations in a row without improvement in any
            metric of ``keep``; the schedule stays that of all ``epochs``. None: all epochs are trained.
        test_crops: How the test scores images in files, which are larger than the network's input: ``""`` by their
            centre crop; ``"inclusion"`` by ten crops, averaging the probabilities that a class is among the k best
            (Berrada et al. 2018, appendix C); ``"softmax"`` by ten crops, averaging the softmax.
        numerics: How the network computes.
        average: :class:`EMA` or :class:`SWA`, whose averaged weights are validated, kept and exported. None: the
            weights of the last step are.
        after: The step that changes the network after training: :class:`LogitAdjustment`, :class:`TauNormalised` or
            :class:`RetrainedClassifier`. Validation scores the changed network. None: no such step.
        stochastic_depth: The probability with which the last residual block is left out for a sample in training. For
            the blocks before it, the probability falls linearly to 0 (Huang et al., ECCV 2016). Only for networks with
            residual blocks:
            ``resnet18_small``, and torchvision's ResNets and those with its ``StochasticDepth``.
        scoring: ``""``: the scores of a whole split are kept until they are measured, N × L numbers; ``"parts"``: each
            part is measured at once, and only ranks and the best K classes are kept. The results are the same bit for
            bit. ``"parts"`` is meant for many classes and test images. It has no measures of sets.
    """

    epochs: Count
    batch_size: Count = 64
    accumulate: Count = 1
    optimizer: Annotated[str, one_of("sgd", "adam", *_OPTIMIZERS)] = "sgd"
    learning_rate: NonNegative = 0.1
    momentum: Below1 = 0.9
    weight_decay: NonNegative = 1e-4
    schedule: Annotated[str, one_of("cosine", "constant", "milestones")] = "cosine"
    milestones: tuple[Count, ...] = ()
    decay: Positive = 0.1
    warmup: NonNegative = 0.0
    clip_norm: Positive | None = None
    reweighting: Whole | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    evaluate_every: Count = 1
    keep: tuple[str, ...] = ()
    patience: Count | None = None
    test_crops: Annotated[str, one_of("", "inclusion", "softmax")] = ""
    numerics: Numerics = field(default_factory=Numerics)
    average: EMA | SWA | None = field(default=None, metadata=LATER)
    after: LogitAdjustment | TauNormalised | RetrainedClassifier | None = field(default=None, metadata=LATER)
    stochastic_depth: Below1 = field(default=0.0, metadata=LATER)
    scoring: Annotated[str, one_of("", "parts")] = field(default="", metadata=LATER)

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.after, RetrainedClassifier):
            self._check_retrained(self.after)
        self._check_milestones()
        check(
            self.patience is None or bool(self.keep),
            f"Recipe.patience needs a metric in keep, got {self.patience!r} with keep {self.keep!r}",
        )
        check(
            not (self.stochastic_depth and self.numerics.compiled),
            "Recipe.stochastic_depth cannot go with Numerics.compiled, whose networks trials share",
        )
        self._check_graphs()
        check(
            not (self.scoring and self.test_crops),
            f"Recipe.scoring {self.scoring!r} cannot go with test_crops {self.test_crops!r}, which add up all scores",
        )

    def _check_graphs(self) -> None:
        others = {
            "average": self.average,
            "after": self.after,
            "augmentation.policy": self.augmentation.policy,
        }
        given = [name for name, value in others.items() if value is not None]
        given += ["stochastic_depth"] * bool(self.stochastic_depth)
        check(
            not (self.numerics.cuda_graphs and given),
            f"Numerics.cuda_graphs replays the same step for every batch and cannot go with Recipe.{', '.join(given)}",
        )

    def _check_milestones(self) -> None:
        check(
            bool(self.milestones) == (self.schedule == "milestones"),
            f"Recipe.milestones go with schedule 'milestones', got {self.milestones!r} with {self.schedule!r}",
        )
        check(
            list(self.milestones) == sorted(self.milestones),
            f"Recipe.milestones must be rising epochs, got {self.milestones!r}",
        )

    def _check_retrained(self, after: RetrainedClassifier) -> None:
        check(
            after.epochs < self.epochs,
            f"RetrainedClassifier.epochs must be below the recipe's {self.epochs} epochs, got {after.epochs}",
        )
        check(
            self.average is None and not self.milestones and self.reweighting is None,
            "RetrainedClassifier goes with neither average, nor milestones, nor reweighting",
        )
        check(not self.keep, f"RetrainedClassifier keeps the last epoch's weights, got keep {self.keep!r}")

    @property
    def additions(self) -> dict[str, str]:
        """The recipe's additions to the usual training: the name of an entry, by the kind of table."""
        learner = "retrained" if isinstance(self.after, RetrainedClassifier) else "shown"
        shown = self.average is not None or self.after is not None or self.stochastic_depth > 0
        usual = "graphed" if self.numerics.cuda_graphs else ""
        names = {
            "optimizer": self.optimizer if self.optimizer in _OPTIMIZERS else "",
            "learner": learner if shown else usual,
            "average": type(self.average).__name__ if self.average is not None else "",
            "after": type(self.after).__name__ if self.after is not None else "",
            "scoring": self.scoring,
            "policy": type(self.augmentation.policy).__name__ if self.augmentation.policy is not None else "",
        }
        return {kind: name for kind, name in names.items() if name}

    def reweights(self, epoch: int) -> bool:
        """Return whether classes are weighted by their effective numbers in this epoch, counted from 0."""
        return self.reweighting is not None and epoch >= self.reweighting

    def evaluates(self, epoch: int) -> bool:
        """Return whether the validation split is scored after this epoch, counted from 1."""
        return epoch % self.evaluate_every == 0 or epoch == self.epochs


def replaced(recipe: Recipe, **values: Any) -> Recipe:
    """Return a recipe with new values of :data:`SEARCHABLE` fields, including those of the parts that it adds.

    Args:
        recipe: The recipe.
        **values: The new values, by name.

    Raises:
        UserError: if the recipe has no such part, or a value is out of range.

    Example:
        >>> replaced(Recipe(1, average=EMA()), average_decay=0.9).average
        EMA(decay=0.9)
    """
    for name, value in values.items():
        recipe = _replaced(recipe, name, _PLACES.get(name, (name,)), value)
    return recipe


def _replaced(part: Any, name: str, path: tuple[str, ...], value: Any) -> Any:
    first, *rest = path
    if not hasattr(part, first):
        raise UserError(f"{name} is searched or fixed, but the recipe has no part with it, only {part!r}")
    inner = _replaced(getattr(part, first), name, tuple(rest), value) if rest else value
    return dataclasses.replace(part, **{first: inner})


REPLACERS: Mapping[str, Callable[..., Recipe]] = {"parts": replaced}
"""The functions that put a trial's values into its recipe, if a part that the recipe adds is searched."""


def replacer_of(names: Iterable[str]) -> str:
    """Return the name in :data:`REPLACERS` that these fields need; empty if they are fields of ``Recipe`` itself."""
    return "parts" if any(name in _PLACES for name in names) else ""
