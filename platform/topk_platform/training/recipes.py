"""The papers' recipes as named values."""

from __future__ import annotations

from topk_platform.specs import Augmentation, Recipe

__all__ = [
    "BERRADA2018_CIFAR100",
    "GARCIN2022_CIFAR100",
    "GARCIN2022_PLANTNET",
    "SAWADA2020_CIFAR100_CUTOUT",
    "SAWADA2020_CIFAR100_MIXUP",
    "SAWADA2020_RING",
]

_CROP_AND_FLIP = Augmentation(crop=4, flip=True)

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

GARCIN2022_CIFAR100 = BERRADA2018_CIFAR100
"""garcin2022 4.4: the settings of berrada2018. (Their command line divides at 151 and 226, counted from 1.)"""

GARCIN2022_PLANTNET = Recipe(
    epochs=30,
    batch_size=32,
    learning_rate=2e-3,
    weight_decay=1e-4,
    schedule="milestones",
    milestones=(20, 25),
    keep=("macro_top5",),
)
"""garcin2022 4.5: pretrained ResNet-50; the best validation macro top-K is kept."""

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

SAWADA2020_CIFAR100_MIXUP = Recipe(
    epochs=200,
    batch_size=128,
    learning_rate=0.1,
    weight_decay=5e-4,
    schedule="milestones",
    milestones=(60, 120, 160),
    decay=0.2,
    augmentation=Augmentation(crop=4, flip=True, mix="mixup"),
    keep=("top1", "top5"),
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
"""sawada2020 IV: 1,000 epochs of full batches. The paper names neither optimiser nor rate; these are ours."""
