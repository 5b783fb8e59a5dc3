"""The recipe of a training, apart from the values that are searched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from topk_platform.specs.checks import check
from topk_platform.specs.fields import Count, NonNegative, Positive, Rule, Whole, check_fields, one_of

__all__ = ["SEARCHABLE", "Augmentation", "Numerics", "Recipe"]

SEARCHABLE = ("learning_rate", "weight_decay", "momentum", "batch_size")
"""The fields of a recipe that a loss may search or fix."""

_Momentum = Annotated[float, Rule("in [0, 1)", lambda value: 0 <= value < 1)]


@dataclass(frozen=True)
class Augmentation:
    """How a batch of images is augmented and, for mixtures, its labels.

    Args:
        crop: Zeros padded on each side before a crop of the image's own size at a random place.
        window: Whether training crops images in files, which are larger than the network's input, at a random place;
            otherwise it crops their centre, as validation and test do.
        flip: Whether each image is mirrored with probability 1/2.
        cutout: Side of a square of zeros at a random centre, cut off at the borders (DeVries and Taylor 2017).
        mix: ``""``, ``"mixup"`` (Zhang et al. 2018) or ``"cutmix"`` (Yun et al. 2019); their labels are soft.
        mix_alpha: Parameter of the Beta distribution from which a batch's mixing share is drawn.
    """

    crop: Whole = 0
    window: bool = False
    flip: bool = False
    cutout: Whole = 0
    mix: Annotated[str, one_of("", "mixup", "cutmix")] = ""
    mix_alpha: Positive = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def on_images(self) -> bool:
        """Whether inputs must be images ``(n, channels, height, width)``."""
        return bool(self.crop or self.flip or self.cutout or self.mix == "cutmix")


@dataclass(frozen=True)
class Numerics:
    """How a network computes; losses are always computed in float32.

    On the CPU every choice repeats bit for bit with the same versions and threads. On a GPU ``deterministic``
    asks torch for algorithms that repeat and fails where there is none; without it, sums may be taken in
    another order each time.

    Args:
        bfloat16: Run the network under autocast.
        tf32: Let GPUs round the inputs of float32 matrix products and convolutions to 10 bits.
        channels_last: Keep images with their channels innermost, which is fastest for convolutions on GPUs.
        deterministic: Only algorithms that repeat.
        compiled: Compile the network once for all trials of the same shape in a worker.
    """

    bfloat16: bool = False
    tf32: bool = False
    channels_last: bool = False
    deterministic: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Recipe:
    """How a trial trains, apart from what its arm searches.

    Args:
        epochs: Passes over the training split.
        batch_size: Samples per step; a size of at least the training split's means full batches, in the data's own
            order.
        accumulate: Number of parts into which a batch is split, to fit a smaller device: gradients are accumulated
            over the parts, weighted by their samples. Batch normalisation sees each part alone.
        optimizer: ``"sgd"`` (with Nesterov momentum where momentum is not 0) or ``"adam"``.
        learning_rate: The peak learning rate.
        momentum: The momentum of ``"sgd"``.
        weight_decay: L2 penalty.
        schedule: ``"cosine"`` (to 0 over all steps), ``"constant"``, or ``"milestones"``.
        milestones: Epochs after which the learning rate is multiplied by ``decay``, for ``"milestones"``.
        decay: The factor for ``milestones``.
        warmup: Epochs over which the rate rises linearly from 0; multiplies the schedule.
        clip_norm: Gradients of a larger norm are scaled down to this norm; None: never.
        reweighting: The epoch after which classes are weighted by the inverse of their effective number (deferred
            re-weighting, Cao et al. 2019, with Cui et al.'s β = 0.9999); None: never.
        cross_entropy_epochs: How many epochs at the start train with cross-entropy in place of the arm's loss, as
            AUTKC's authors do; class weights apply to the arm's loss only.
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
    """

    epochs: Count
    batch_size: Count = 64
    accumulate: Count = 1
    optimizer: Annotated[str, one_of("sgd", "adam")] = "sgd"
    learning_rate: NonNegative = 0.1
    momentum: _Momentum = 0.9
    weight_decay: NonNegative = 1e-4
    schedule: Annotated[str, one_of("cosine", "constant", "milestones")] = "cosine"
    milestones: tuple[Count, ...] = ()
    decay: Positive = 0.1
    warmup: NonNegative = 0.0
    clip_norm: Positive | None = None
    reweighting: Whole | None = None
    cross_entropy_epochs: Whole = 0
    augmentation: Augmentation = field(default_factory=Augmentation)
    evaluate_every: Count = 1
    keep: tuple[str, ...] = ()
    patience: Count | None = None
    test_crops: Annotated[str, one_of("", "inclusion", "softmax")] = ""
    numerics: Numerics = field(default_factory=Numerics)

    def __post_init__(self) -> None:
        check_fields(self)
        check(
            bool(self.milestones) == (self.schedule == "milestones"),
            f"Recipe.milestones go with schedule 'milestones', got {self.milestones!r} with {self.schedule!r}",
        )
        check(
            list(self.milestones) == sorted(self.milestones),
            f"Recipe.milestones must be rising epochs, got {self.milestones!r}",
        )
        check(
            self.patience is None or bool(self.keep),
            f"Recipe.patience waits for metrics of keep to get better, got {self.patience!r} with keep {self.keep!r}",
        )

    def warms(self, epoch: int) -> bool:
        """Return whether this epoch, counted from 0, trains with cross-entropy in place of the arm's loss."""
        return epoch < self.cross_entropy_epochs

    def reweights(self, epoch: int) -> bool:
        """Return whether classes are weighted by their effective numbers in this epoch, counted from 0."""
        return self.reweighting is not None and epoch >= self.reweighting

    def evaluates(self, epoch: int) -> bool:
        """Return whether the validation split is scored after this epoch, counted from 1."""
        return epoch % self.evaluate_every == 0 or epoch == self.epochs
