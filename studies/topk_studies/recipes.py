"""The papers' recipes as named values."""

from __future__ import annotations

from dataclasses import replace

from topk_platform.specs import Augmentation, Recipe

__all__ = [
    "BERRADA2018_CIFAR100",
    "BERRADA2018_IMAGENET",
    "BERRADA2018_IMAGENET_SVM",
    "GARCIN2022_CIFAR100",
    "GARCIN2022_IMAGENET",
    "GARCIN2022_IMAGENET_LT",
    "GARCIN2022_IMAGENET_NOISED",
    "GARCIN2022_IMAGENET_SVM",
    "GARCIN2022_PLANTNET",
    "SAWADA2020_CIFAR100_CUTOUT",
    "SAWADA2020_CIFAR100_MIXUP",
    "SAWADA2020_RING",
]

_CROP_AND_FLIP = Augmentation(crop=4, flip=True)
_WINDOW_AND_FLIP = Augmentation(window=True, flip=True)

BERRADA2018_CIFAR100 = Recipe(
    epochs=300,
    batch_size=64,
    learning_rate=0.1,
    weight_decay=1e-4,
    schedule="milestones",
    milestones=(150, 225),
    augmentation=_CROP_AND_FLIP,
    keep=("top5",),
)
"""berrada2018 5.1: DenseNet 40-40 with Huang et al. 2017's settings; the best validation top-5 is kept."""

BERRADA2018_IMAGENET = Recipe(
    epochs=120,
    batch_size=256,
    learning_rate=0.1,
    weight_decay=1e-4,
    schedule="milestones",
    milestones=(30, 60, 90),
    augmentation=_WINDOW_AND_FLIP,
    keep=("top5",),
    test_crops="inclusion",
)
"""berrada2018 5.2 for cross-entropy: ResNet-18; the best validation top-5 is kept, and the test uses ten crops."""

BERRADA2018_IMAGENET_SVM = replace(BERRADA2018_IMAGENET, learning_rate=1.0, weight_decay=2.5e-5)
"""berrada2018 5.2 for the smooth top-K SVM, at τ = 0.1."""

GARCIN2022_CIFAR100 = BERRADA2018_CIFAR100
"""garcin2022 4.4: the settings of berrada2018. (Their command line divides at 151 and 226, counted from 1.)"""

GARCIN2022_PLANTNET = Recipe(
    epochs=30,
    batch_size=32,
    learning_rate=2e-3,
    weight_decay=1e-4,
    schedule="milestones",
    milestones=(20, 25),
    augmentation=Augmentation(window=True),
    keep=("macro_top5",),
)
"""garcin2022 4.5: pretrained ResNet-50; "early stopping based on the best macro-average top-K accuracy on the
validation set". The paper gives no patience, so all epochs are trained and the weights of the best one are kept. Random
windows without mirroring are taken from the authors' program, because the paper does not mention augmentation."""

GARCIN2022_IMAGENET = replace(BERRADA2018_IMAGENET, keep=("top1", "top5"), test_crops="")
"""garcin2022, final version, appendix D, for cross-entropy: berrada2018's settings, the best validation top-K for
K = 1 and 5. The paper does not give the batch size, so it is berrada2018's. It does not mention ten crops."""

GARCIN2022_IMAGENET_SVM = replace(GARCIN2022_IMAGENET, learning_rate=1.0, weight_decay=2.5e-5)
"""The same for the smooth top-K SVM, at τ = 0.1."""

GARCIN2022_IMAGENET_NOISED = replace(GARCIN2022_IMAGENET, weight_decay=1.5e-4)
"""The same for the noised top-K hinge, at ε = 0.5 and B = 10."""

GARCIN2022_IMAGENET_LT = Recipe(
    epochs=100,
    batch_size=128,
    learning_rate=0.1,
    weight_decay=5e-4,
    schedule="milestones",
    milestones=(60, 80),
    augmentation=_WINDOW_AND_FLIP,
    keep=("macro_top1", "macro_top5"),
)
"""garcin2022, final version, 4.5.2: ResNet-34. The paper does not give the learning rate, the weight decay, the
augmentation or the metrics by which weights are kept, so these are ours."""

SAWADA2020_CIFAR100_CUTOUT = Recipe(
    epochs=200,
    batch_size=128,
    learning_rate=0.1,
    weight_decay=5e-4,
    schedule="milestones",
    milestones=(60, 120, 160),
    decay=0.2,
    augmentation=Augmentation(crop=4, flip=True, cutout=8),
    keep=("top1", "top5"),
)
"""sawada2020 V with Cutout 8×8: test top-1 by the best validation top-1, top-5 by the best top-5."""

SAWADA2020_CIFAR100_MIXUP = replace(
    SAWADA2020_CIFAR100_CUTOUT, augmentation=Augmentation(crop=4, flip=True, mix="mixup")
)
"""sawada2020 V with Mixup."""

SAWADA2020_RING = Recipe(
    epochs=1000,
    batch_size=2**20,
    optimizer="adam",
    learning_rate=0.01,
    weight_decay=0.0,
    schedule="constant",
    evaluate_every=1000,
)
"""sawada2020 IV: 1,000 epochs of full batches. The paper gives neither optimiser nor rate, so these are ours."""
