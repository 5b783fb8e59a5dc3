"""The recipe of a training, apart from the values that are searched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from topk_platform.specs.checks import check
from topk_platform.specs.fields import (
    Below1,
    Checked,
    Count,
    NonNegative,
    Positive,
    Whole,
    check_fields,
    one_of,
)

__all__ = ["EMA", "OPTIMIZERS", "SEARCHABLE", "Augmentation", "Numerics", "Recipe"]

SEARCHABLE = ("learning_rate", "weight_decay", "momentum", "batch_size", "optimizer")
"""The fields of a recipe that a loss may search or fix."""

OPTIMIZERS = ("sgd", "heavy_ball", "adam", "adamw")
"""The optimisers, by the names in :class:`Recipe`."""


@dataclass(frozen=True)
class EMA(Checked):
    """Evaluate, keep and export an exponential moving average of the weights: ``a ← d a + (1 - d) w`` after every step.

    Step t, from 1, has ``d = min(decay, t / (t + 9))``, so that the average soon forgets the initial weights. Running
    statistics of batch normalisation are averaged likewise; whole numbers are copied.

    Args:
        decay: In ``[0, 1)``; 0 is no averaging.

    Source:
        Polyak and Juditsky, SIAM J. Control Optim. 1992; the rising decay is that of TensorFlow's
        ``ExponentialMovingAverage``, ``(1 + n) / (10 + n)`` after n earlier steps.
    """

    decay: Below1 = 0.999


@dataclass(frozen=True)
class Augmentation(Checked):
    """The augmentation of a batch of images and, for mixtures, of its labels.

    Args:
        crop: Zeros padded on each side before a crop of the image's own size at a random position.
        window: Whether training crops images in files, which are larger than the network's input, at a random position.
            Otherwise it crops their centre, as validation and test do.
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

    @property
    def on_images(self) -> bool:
        """Whether inputs must be images ``(n, channels, height, width)``."""
        return bool(self.crop or self.flip or self.cutout or self.mix == "cutmix")


@dataclass(frozen=True)
class Numerics(Checked):
    """The numerics of a network; losses are always computed in float32.

    On the CPU, every choice repeats bit for bit with the same versions and threads. On a GPU, ``deterministic`` makes
    torch use algorithms that repeat, and training fails where torch has none. Without it, sums may be taken in another
    order each time.

    Args:
        bfloat16: Run the network under autocast to bfloat16.
        tf32: Let GPUs round the inputs of float32 matrix products and convolutions to 10 bits.
        channels_last: Keep images with their channels innermost, which is fastest for convolutions on GPUs.
        deterministic: Use only algorithms that repeat bit for bit.
        cuda_graphs: On a GPU, record a training step once and replay it for every full batch. Networks whose kernels
            are short train several times as fast. Python code of the network and the loss then runs for the first
            steps only, so it must take the same way for every batch, and must not wait for the GPU (``.item()``).
            Without effect on the CPU.
    """

    bfloat16: bool = False
    tf32: bool = False
    channels_last: bool = False
    deterministic: bool = False
    cuda_graphs: bool = False


@dataclass(frozen=True)
class Recipe:
    """The training of a trial, apart from the values that its arm searches.

    Args:
        epochs: Passes over the training split.
        batch_size: Samples per step; a size of at least the training split's means full batches, in the data's own
            order.
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
        average: :class:`EMA`, whose averaged weights are validated, kept and exported. None: the weights of the last
            step are.
    """

    epochs: Count
    batch_size: Count = 64
    optimizer: Annotated[str, one_of(*OPTIMIZERS)] = "sgd"
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
    average: EMA | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_milestones()
        check(
            self.patience is None or bool(self.keep),
            f"Recipe.patience needs a metric in keep, got {self.patience!r} with keep {self.keep!r}",
        )
        check(
            not (self.numerics.cuda_graphs and self.average),
            "Numerics.cuda_graphs replays the same step for every batch and cannot go with Recipe.average",
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

    def reweights(self, epoch: int) -> bool:
        """Return whether classes are weighted by their effective numbers in this epoch, counted from 0."""
        return self.reweighting is not None and epoch >= self.reweighting

    def evaluates(self, epoch: int) -> bool:
        """Return whether the validation split is scored after this epoch, counted from 1."""
        return epoch % self.evaluate_every == 0 or epoch == self.epochs
