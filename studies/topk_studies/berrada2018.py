"""berrada2018's experiments: the smooth top-K SVM against cross-entropy, with wrong labels and with little data.

L. Berrada, A. Zisserman and M. P. Kumar, Smooth Loss Functions for Deep Top-k Classification, ICLR 2018. Settings are
the paper's, fixed, and nothing is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from topk_platform import Arm, Claim, Contrast, LabelNoise, Loss, Model, PerClass, Recipe, Regime, Study
from topk_studies.claims import gaps, mean_of
from topk_studies.published import Row, composed, loss_of, rows_of
from topk_studies.recipes import BERRADA2018_CIFAR100, BERRADA2018_IMAGENET, BERRADA2018_IMAGENET_SVM

__all__ = [
    "berrada2018_imagenet",
    "berrada2018_margin",
    "berrada2018_noise",
    "berrada2018_temperature",
    "fraction_claims",
    "map_claims",
    "noise_claims",
    "noisy_cifar100",
    "temperature_claims",
    "without_temperature",
]

_PAPER = "berrada2018"
_K = 5
_CE, _SVM = "cross_entropy", "smooth_topk_svm"
_NOISES = ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0")
_RESNET18 = Model("torchvision", {"architecture": "resnet18"}, label="resnet18")
_PER_CLASS = {"0.5": 640, "0.25": 320, "0.1": 128, "0.05": 64}


def noisy_cifar100(level: str) -> Regime:
    """Return CIFAR-100 with label noise of this probability within superclasses.

    Example:
        >>> noisy_cifar100("0.2").conditions, noisy_cifar100("0.0").conditions
        ((LabelNoise(probability=0.2),), ())
    """
    probability = float(level)
    return Regime(f"noise-{level}", "cifar100", (LabelNoise(probability),) if probability else ())


def _noise_arm(row: Row) -> Arm:
    model = Model("densenet", {"depth": 40, "growth": 40}, label=row.model)
    return Arm(noisy_cifar100(row.level), model, loss_of(row), _K, BERRADA2018_CIFAR100)


def berrada2018_noise() -> Study:
    """Return the study of Tables 1 and 9: label noise from 0 to 1 within CIFAR-100's superclasses, τ = 1.

    The weights with the best validation top-5 accuracy are tested, by top-1 as well; three seeds, as in the paper.

    Example:
        >>> [arm.regime.name for arm in berrada2018_noise().arms[:6]]
        ['noise-0.0', 'noise-0.2', 'noise-0.4', 'noise-0.6', 'noise-0.8', 'noise-1.0']
    """
    arms, published = composed(rows_of(_PAPER, "1/9"), _noise_arm)
    return Study(
        name="berrada2018_noise",
        arms=arms,
        seeds=3,
        show=("top1", "top5"),
        device="cuda",
        description="berrada2018 5.1: CIFAR-100, label noise 0 to 1; DenseNet 40-40; smooth top-5 SVM",
        published=published,
        claims=noise_claims("berrada2018, Table 1", [f"noise-{p}/densenet40-40" for p in _NOISES]),
    )


def _temperature_arm(row: Row) -> Arm:
    tau, recipe = row.parameters["tau"], BERRADA2018_CIFAR100
    label = f"tau-{tau:g}"
    loss, how = (loss_of(row, label), recipe) if tau else without_temperature(label, recipe, _K)
    model = Model("densenet", {"depth": 40, "growth": 12}, label=row.model)
    return Arm(Regime("clean", "cifar100"), model, loss, _K, how)


def without_temperature(label: str, recipe: Recipe, k: int) -> tuple[Loss, Recipe]:
    """Return the loss that the smooth top-K SVM tends to as τ → 0, and the recipe that trains it in the same steps.

    The limit is (1 + s_[K]/K - s_y/K)_+, a K-th of the top-K hinge with margin K. SGD takes the same steps with K times
    the loss, the decay and the norm at which gradients are clipped, at a K-th of the rate.

    Args:
        label: The loss's label.
        recipe: The recipe of the smooth top-K SVM.
        k: K.

    Example:
        >>> without_temperature("tau-0", BERRADA2018_CIFAR100, 5)[0].fixed
        {'margin': 5.0, 'learning_rate': 0.02, 'weight_decay': 0.0005}
    """
    fixed = {
        "margin": float(k),
        "learning_rate": recipe.learning_rate / k,
        "weight_decay": recipe.weight_decay * k,
    }
    clipped = None if recipe.clip_norm is None else k * recipe.clip_norm
    return Loss("topk_hinge", fixed=fixed, label=label), replace(recipe, clip_norm=clipped)


def berrada2018_temperature() -> Study:
    """Return the study of Table 6: the smooth top-5 SVM at τ = 0, 0.001, ..., 100 on CIFAR-100, DenseNet 40-12.

    τ = 0 is the limit, a fifth of the top-5 hinge with margin 5. Three seeds, where the paper had one; the paper also
    reports training accuracies, which are not measured here.

    Example:
        >>> [arm.loss.label for arm in berrada2018_temperature().arms]
        ['tau-0', 'tau-0.001', 'tau-0.01', 'tau-0.1', 'tau-1', 'tau-10', 'tau-100']
    """
    arms, published = composed(rows_of(_PAPER, "6"), _temperature_arm)
    return Study(
        name="berrada2018_temperature",
        arms=arms,
        seeds=3,
        baseline="tau-1",
        show=("top5",),
        device="cuda",
        description="berrada2018 D.1.2: CIFAR-100, τ from 0 to 100; DenseNet 40-12; smooth top-5 SVM",
        published=published,
        claims=temperature_claims("clean/densenet40-12"),
    )


def _imagenet_arm(row: Row) -> Arm:
    regime = Regime(
        f"{100 * float(row.level):g}-percent",
        "imagenet",
        (PerClass(_PER_CLASS[row.level]),) if row.level in _PER_CLASS else (),
    )
    recipe = BERRADA2018_IMAGENET if row.loss == "cross_entropy" else BERRADA2018_IMAGENET_SVM
    return Arm(regime, _RESNET18, loss_of(row), _K, recipe)


def berrada2018_imagenet() -> Study:
    """Return the study of Table 2: ImageNet and balanced parts of it, of 64 to 640 images a class, τ = 0.1.

    ResNet-18 for 120 epochs on every part; the test scores ten crops; one seed, as in the paper.

    Example:
        >>> [arm.regime.name for arm in berrada2018_imagenet().arms[::2]]
        ['100-percent', '50-percent', '25-percent', '10-percent', '5-percent']
    """
    arms, published = composed(rows_of(_PAPER, "2"), _imagenet_arm)
    return Study(
        name="berrada2018_imagenet",
        arms=arms,
        seeds=1,
        show=("top5",),
        device="cuda",
        description="berrada2018 5.2: ImageNet and 5 to 50 % of it; ResNet-18; smooth top-5 SVM",
        published=published,
        claims=fraction_claims(
            [f"{part}-percent/resnet18" for part in (5, 10, 25, 50)], "100-percent/resnet18"
        ),
    )


def _margin_arm(row: Row) -> Arm:
    k, margin = row.k_train or 1, float(row.level.removeprefix("margin="))
    recipe = BERRADA2018_IMAGENET if k == 1 else BERRADA2018_IMAGENET_SVM
    return Arm(
        Regime("imagenet", "imagenet"),
        _RESNET18,
        loss_of(row, f"k{k}-margin-{margin:g}", margin=margin),
        k,
        replace(recipe, keep=(f"top{k}",), test_crops=""),
    )


def berrada2018_margin() -> Study:
    """Return the study of Tables 7 and 8: the smooth SVM with margin 0 and 1, for K = 1 (τ = 1) and K = 5 (τ = 0.1).

    With K = 1 and margin 0 the loss is cross-entropy, so the arms with K = 1 get cross-entropy's learning rate and
    decay; the paper does not say. The paper's numbers are of the validation split and one crop; ours beside them are
    of the test split. One seed.

    Example:
        >>> [arm.loss.label for arm in berrada2018_margin().arms]
        ['k1-margin-0', 'k1-margin-1', 'k5-margin-0', 'k5-margin-1']
    """
    arms, published = composed(rows_of(_PAPER, "7", "8"), _margin_arm)
    return Study(
        name="berrada2018_margin",
        arms=arms,
        seeds=1,
        baseline="k1-margin-0",
        device="cuda",
        description="berrada2018 D.2.2: ImageNet, margins 0 and 1, K = 1 and 5; ResNet-18; smooth top-K SVM",
        published=published,
        claims=_margin_claims(),
    )


def noise_claims(source: str, columns: list[str]) -> tuple[Claim, ...]:
    """Return the paper's findings on label noise, as claims.

    Args:
        source: Where the findings are stated.
        columns: ``regime/model`` of each noise level, the first without noise. With one level of noise there is no
            claim that the improvement grows with it.
    """
    clean, *noisy = columns
    (at_clean,) = gaps([clean], _SVM, _CE, "top5")
    claim = partial(Claim, source=source, tolerance=0.5)
    growing = []
    if len(noisy) > 1:
        least, *_, most = gaps(noisy, _SVM, _CE, "top5")
        text = "The smooth SVM's improvement in top-5 grows with the noise: from the least to the most of it."
        growing = [claim(name="improvement-grows-with-noise", text=text, contrasts=[most.minus(least)])]
    return (
        claim(
            name="svm-beats-cross-entropy-with-noise",
            text="With noisy labels the smooth top-5 SVM beats cross-entropy in top-5.",
            contrasts=gaps(noisy, _SVM, _CE, "top5"),
        ),
        claim(
            name="svm-beats-cross-entropy-in-top1-with-noise",
            text="With noisy labels the smooth top-5 SVM beats cross-entropy in top-1 as well.",
            contrasts=gaps(noisy, _SVM, _CE, "top1"),
        ),
        *growing,
        claim(
            name="svm-loses-less-by-noise",
            text="The smooth SVM loses less top-5 accuracy by noise than cross-entropy does.",
            contrasts=[gap.minus(at_clean) for gap in gaps(noisy, _SVM, _CE, "top5")],
        ),
        claim(
            name="cross-entropy-ahead-in-top1-without-noise",
            text="Without noise cross-entropy is better in top-1.",
            contrasts=gaps([clean], _CE, _SVM, "top1"),
        ),
        claim(
            name="level-in-top5-without-noise",
            text="Without noise the two differ in top-5 by a very small margin.",
            contrasts=[at_clean],
            direction="within",
        ),
    )


def temperature_claims(column: str) -> tuple[Claim, ...]:
    """Return the paper's findings on the temperature, for arms ``tau-0`` to ``tau-100``."""
    arm = {tau: f"{column}/tau-{tau}" for tau in ("0", "0.001", "0.01", "0.1", "1", "10", "100")}
    claim = partial(Claim, source="berrada2018, Table 6")
    return (
        claim(
            name="without-smoothing-it-fails",
            text="With τ = 0 and 0.001 the network fails to train: top-5 below 50 %.",
            contrasts=mean_of((arm["0"], arm["0.001"]), "top5"),
            direction="below",
            bound=50,
        ),
        claim(
            name="from-0.01-it-trains",
            text="With τ of 0.01 and more it trains well: top-5 above 85 %.",
            contrasts=mean_of((arm[tau] for tau in ("0.01", "0.1", "1", "10", "100")), "top5"),
            bound=85,
        ),
        claim(
            name="high-temperatures-cost",
            text="High temperatures are easy to train and represent the task less: τ = 10 and 100 are behind 0.1.",
            contrasts=[Contrast.between(arm["0.1"], arm[tau], "top5") for tau in ("10", "100")],
            tolerance=0.1,
        ),
    )


def map_claims(clean: Sequence[str], noisy: str) -> tuple[Claim, ...]:
    """Return the paper's findings on noise and on little data, asked of a map of both.

    Args:
        clean: ``regime/model`` without noise, with few and with many images.
        noisy: ``regime/model`` with noise and many images.
    """
    few, many, with_noise = (gap for pair in (*clean, noisy) for gap in gaps([pair], _SVM, _CE, "top5"))
    return (
        Claim(
            name="noise-helps-the-svm",
            text="The smooth SVM is more ahead of cross-entropy in top-5 with noise than without, with many images.",
            source="berrada2018, Table 1",
            contrasts=[with_noise.minus(many)],
            tolerance=0.5,
        ),
        Claim(
            name="few-images-help-the-svm",
            text="It is more ahead with few images than with many, without noise.",
            source="berrada2018, Table 2",
            contrasts=[few.minus(many)],
            tolerance=0.5,
        ),
    )


def fraction_claims(parts: list[str], whole: str, loss: str = _SVM) -> tuple[Claim, ...]:
    """Return the paper's findings on little data.

    Args:
        parts: ``regime/model`` of parts of the data, the smallest first.
        whole: ``regime/model`` of all the data.
        loss: The label of the smooth SVM.
    """
    (smallest,) = gaps(parts[:1], loss, _CE, "top5")
    (largest,) = gaps(parts[-1:], loss, _CE, "top5")
    claim = partial(Claim, source="berrada2018, Table 2")
    return (
        claim(
            name="svm-beats-cross-entropy-with-little-data",
            text="With a part of the data the smooth top-5 SVM beats cross-entropy in top-5.",
            contrasts=gaps(parts, loss, _CE, "top5"),
            tolerance=0.1,
        ),
        claim(
            name="the-less-data-the-more",
            text="It is more ahead with the smallest part than with the largest.",
            contrasts=[smallest.minus(largest)],
            tolerance=0.5,
        ),
        claim(
            name="level-with-all-data",
            text="With all data the two differ by an insignificant amount in top-5.",
            contrasts=gaps([whole], loss, _CE, "top5"),
            direction="within",
            tolerance=0.25,
        ),
    )


def _margin_claims() -> tuple[Claim, ...]:
    arm = {(k, m): f"imagenet/resnet18/k{k}-margin-{m}" for k in (1, 5) for m in (0, 1)}
    return tuple(
        Claim(
            name=f"margin-helps-in-top{k}",
            text=f"A margin of 1 is better than none, for K = {k} in top-{k}.",
            source=f"berrada2018, Table {table}",
            contrasts=[Contrast.between(arm[k, 1], arm[k, 0], f"top{k}")],
            tolerance=0.1,
        )
        for k, table in ((1, 7), (5, 8))
    )
