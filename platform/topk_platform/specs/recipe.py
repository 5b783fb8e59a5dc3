"""How a trial trains, apart from what its arm searches."""

from __future__ import annotations

from dataclasses import dataclass, field

from topk_platform.specs.checks import check

__all__ = ["Augmentation", "Numerics", "Recipe"]


@dataclass(frozen=True)
class Augmentation:
    """What is done to a batch of images and, for mixtures, to its labels.

    Args:
        crop: Zeros padded on each side before a crop of the image's own size at a random place.
        window: Whether images in files, which are larger than what networks see of them, are seen at a random place
            in training; else in the middle, as in validation and test.
        flip: Whether every other image, at random, is mirrored.
        cutout: Side of a square of zeros at a random centre, cut off at the borders (DeVries and Taylor 2017).
        mix: ``""``, ``"mixup"`` (Zhang et al. 2018) or ``"cutmix"`` (Yun et al. 2019); their labels are soft.
        mix_alpha: Of the Beta distribution that a batch's share is drawn from.
    """

    crop: int = 0
    window: bool = False
    flip: bool = False
    cutout: int = 0
    mix: str = ""
    mix_alpha: float = 1.0

    def __post_init__(self) -> None:
        check(self.crop >= 0, f"Augmentation.crop must be at least 0, got {self.crop!r}")
        check(self.cutout >= 0, f"Augmentation.cutout must be at least 0, got {self.cutout!r}")
        check(
            self.mix in ("", "mixup", "cutmix"),
            f"Augmentation.mix must be '', 'mixup' or 'cutmix', got {self.mix!r}",
        )
        check(self.mix_alpha > 0, f"Augmentation.mix_alpha must be above 0, got {self.mix_alpha!r}")

    @property
    def on_images(self) -> bool:
        """Whether inputs must be images ``(n, channels, height, width)``."""
        return bool(self.crop or self.flip or self.cutout or self.mix == "cutmix")


@dataclass(frozen=True)
class Numerics:
    """How a network computes; losses are in float32 always.

    On the CPU every choice repeats bit for bit with the same versions and threads. On a GPU ``deterministic``
    asks torch for algorithms that repeat and fails where there is none; without it, sums may be taken in
    another order each time.

    Args:
        bfloat16: Run the network under autocast.
        tf32: Let GPUs round the inputs of float32 matrix products and convolutions to 10 bits.
        channels_last: Keep images with their channels innermost, as GPUs' convolutions like them.
        deterministic: Only algorithms that repeat.
        compiled: Compile the network once for all trials of the same shape in a worker.
    """

    bfloat16: bool = False
    tf32: bool = False
    channels_last: bool = False
    deterministic: bool = False
    compiled: bool = False


@dataclass(frozen=True)
class Recipe:
    """How a trial trains, apart from what its arm searches.

    Args:
        epochs: Passes over the training split.
        batch_size: Samples a step; at least as many as there are means full batches, in their own order.
        accumulate: Parts that a batch is taken in, one after the other, so that it fits a smaller device: the mean of
            their losses, by their samples, is what is differentiated. Batch normalisation sees each part alone.
        optimizer: ``"sgd"`` (with Nesterov momentum where momentum is not 0) or ``"adam"``.
        learning_rate: At its highest.
        momentum: Of ``"sgd"``.
        weight_decay: L2 penalty.
        schedule: ``"cosine"`` (to 0 over all steps), ``"constant"``, or ``"milestones"``.
        milestones: Epochs after which the learning rate is multiplied by ``decay``, for ``"milestones"``.
        decay: That factor.
        warmup: Epochs over which the rate rises linearly from 0; it multiplies the schedule.
        clip_norm: The gradient is scaled down to this norm where it is longer; None never.
        reweighting: The epochs after which classes weigh by the inverse of their effective number
            (deferred re-weighting, Cao et al. 2019, with Cui et al.'s β = 0.9999); None never.
        augmentation: Of the training images.
        evaluate_every: Epochs between validations; the last epoch is always validated.
        keep: Metrics. Of each, the weights of the epoch with the best validation are kept, and the test metric
            of the same name is theirs; all others are those of the arm's metric if that is among them, else of
            the first. Empty: the last epoch's weights.
        patience: Validations in a row by which none of the metrics of ``keep`` got better, after which training ends
            early, as completed; the schedule stays that of all ``epochs``. None: all epochs are trained.
        test_crops: How images in files, which are larger than what networks see of them, are scored for the test:
            ``""`` by their middle, ``"inclusion"`` by ten crops whose probabilities of a class being in the k best
            are averaged (Berrada et al. 2018, appendix C), ``"softmax"`` by those whose softmax is.
        numerics: How the network computes.
    """

    epochs: int
    batch_size: int = 64
    accumulate: int = 1
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "cosine"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    warmup: float = 0.0
    clip_norm: float | None = None
    reweighting: int | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    evaluate_every: int = 1
    keep: tuple[str, ...] = ()
    patience: int | None = None
    test_crops: str = ""
    numerics: Numerics = field(default_factory=Numerics)

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        object.__setattr__(self, "keep", tuple(self.keep))
        for name in ("epochs", "batch_size", "accumulate", "evaluate_every"):
            value = getattr(self, name)
            check(value >= 1, f"Recipe.{name} must be at least 1, got {value!r}")
        self._check_choices()
        self._check_schedule()
        self._check_patience()

    def _check_choices(self) -> None:
        for name, options in (
            ("optimizer", ("sgd", "adam")),
            ("schedule", ("cosine", "constant", "milestones")),
            ("test_crops", ("", "inclusion", "softmax")),
        ):
            value = getattr(self, name)
            check(value in options, f"Recipe.{name} must be one of {list(options)}, got {value!r}")

    def _check_schedule(self) -> None:
        check(
            bool(self.milestones) == (self.schedule == "milestones"),
            f"Recipe.milestones go with schedule 'milestones', got {self.milestones!r} with {self.schedule!r}",
        )
        check(
            all(epoch >= 1 for epoch in self.milestones) and list(self.milestones) == sorted(self.milestones),
            f"Recipe.milestones must be rising epochs of at least 1, got {self.milestones!r}",
        )
        check(self.decay > 0, f"Recipe.decay must be above 0, got {self.decay!r}")
        check(self.warmup >= 0, f"Recipe.warmup must be at least 0, got {self.warmup!r}")
        check(
            self.clip_norm is None or self.clip_norm > 0,
            f"Recipe.clip_norm must be above 0 or None, got {self.clip_norm!r}",
        )
        check(
            self.reweighting is None or self.reweighting >= 0,
            f"Recipe.reweighting must be at least 0 or None, got {self.reweighting!r}",
        )

    def _check_patience(self) -> None:
        check(
            self.patience is None or self.patience >= 1,
            f"Recipe.patience must be at least 1 or None, got {self.patience!r}",
        )
        check(
            self.patience is None or bool(self.keep),
            f"Recipe.patience waits for metrics of keep to get better, got {self.patience!r} with keep {self.keep!r}",
        )

    def evaluates(self, epoch: int) -> bool:
        """Return whether the validation split is scored after this epoch, counted from 1."""
        return epoch % self.evaluate_every == 0 or epoch == self.epochs
