"""What swapping the loss costs at cross-entropy's learning rate, and with that rate times ``matched_scale``.

    python benchmarks/first_try.py letters                                    # the setting of letters_underfit
    python benchmarks/first_try.py pixels --files FOLDER --per-class 50       # Parquet files, such as CIFAR-100
    python benchmarks/first_try.py letters --ways matched --seeds 1 2         # a part

A row per way: test accuracy in the first and in the five best guesses, its mean over the seeds and standard deviation.
``entropy`` is cross-entropy, ``swapped`` the smooth top-5 SVM at the same learning rate, ``matched`` the SVM with the
learning rate times the factor.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from topk_losses import SmoothTopKSVM, matched_scale
from topk_platform.data import load
from topk_platform.specs import Arm, LabelNoise, Loss, Model, PerClass, Recipe, Regime, Trial
from topk_platform.training import finish, run_trials
from topk_platform.training.setup import dataset_of, initialised
from topk_studies.letters import recipe

__all__ = ["main"]

K, RATE = 5, 0.1
_LOSSES = {
    "entropy": Loss("cross_entropy"),
    "swapped": Loss("smooth_topk_svm"),
    "matched": Loss("smooth_topk_svm"),
}


def setting(options: argparse.Namespace) -> tuple[Regime, Model, Recipe]:
    """The data, the network and the recipe, with weight decay and momentum as the studies' papers have them."""
    if options.data == "letters":
        regime = Regime("underfit", "letters", (PerClass(50), LabelNoise(0.8)))
        return regime, Model("convnet", {"width": 8}), replace(recipe(20), weight_decay=1e-4)
    regime = Regime(
        "pixels",
        "parquet_images",
        (PerClass(options.per_class),),
        options={"files": str(options.files.resolve()), "label": options.label},
    )
    return regime, Model("convnet", {"width": 16}), replace(recipe(options.epochs), weight_decay=1e-4)


def trial_of(way: str, rate: float, seed: int, options: argparse.Namespace) -> Trial:
    """One training."""
    regime, model, plain = setting(options)
    return Trial(
        study="first_try",
        arm_id=way,
        arm=Arm(regime, model, _LOSSES[way], K, replace(plain, learning_rate=rate)),
        topk=(1, K),
        phase="confirm",
        number=0,
        seed=seed,
        root=0,
        values={},
        dataset_fingerprint=load(regime).fingerprint,
        code_version="",
    )


def factor(options: argparse.Namespace) -> float:
    """The smooth SVM's factor on 512 images and an untrained network."""
    trial = trial_of("swapped", RATE, 1, options)
    data = dataset_of(trial)
    assert isinstance(data.train.inputs, Tensor)
    images = data.train.inputs[:512].float()
    scores = initialised(trial, data)((images - images.mean()) / images.std())
    return matched_scale(SmoothTopKSVM(K), scores, data.train.labels[:512])


def accuracies(trial: Trial) -> tuple[float, float]:
    """Test accuracy in the first guess and in five, in per cent."""
    test = finish(run_trials([trial]))[-1].test or {}
    return 100 * test["top1"], 100 * test[f"top{K}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=["letters", "pixels"])
    parser.add_argument("--files", type=Path)
    parser.add_argument("--label", default="fine_label", help="the column of the labels")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--ways", nargs="+", choices=_LOSSES, default=list(_LOSSES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    options = parser.parse_args()
    scale = factor(options)
    print(f"factor {scale:.2f}\n\n| way | learning rate | top-1 | top-5 |\n|---|---|---|---|")
    for way in options.ways:
        rate = RATE * (scale if way == "matched" else 1.0)
        results = [accuracies(trial_of(way, rate, seed, options)) for seed in options.seeds]
        cells = [
            f"{statistics.mean(values):.1f} ± {statistics.stdev(values) if len(values) > 1 else 0:.1f}"
            for values in zip(*results, strict=True)
        ]
        print(f"| {way} | {rate:.3g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
