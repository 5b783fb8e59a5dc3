"""Calibration of a network for its export, on samples that its study set aside, with the results on the test set."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from safetensors.torch import load

from topk_platform.data import Dataset, Split
from topk_platform.errors import UserError
from topk_platform.records import SavedModel
from topk_platform.serving.classifier import Classifier
from topk_platform.serving.loading import assembled
from topk_platform.serving.package import Config
from topk_platform.serving.sets.conformal import calibrate, prevalences_of, sets
from topk_platform.serving.sets.set_calibration import METHODS, SetCalibration, rank_of
from topk_platform.training.setup import dataset_of
from topk_platform.trust import Trust

__all__ = ["calibrated_network"]

_COVERAGES = (0.9, 0.95, 0.99)


def calibrated_network(saved: SavedModel, trust: Trust) -> tuple[str, str]:
    """Return a network's calibration as JSON, and the section of its card that describes it.

    The exported network scores the samples in float32 and with one crop, because it will predict in this way.

    Args:
        saved: The network; its study must set calibration samples aside.
        trust: The code that may build it.

    Raises:
        MissingDataError: if the study's data are missing.
        ChangedError: if they are not the data on which the network was trained.
        UserError: if the study sets no calibration samples aside.
    """
    dataset = dataset_of(saved.trial)
    aside = _set_aside(dataset)
    file = f"the network of trial {saved.trial.key}"
    classifier = assembled(Config.of(saved), load(saved.content), file, trust)
    prevalences = prevalences_of(dataset.class_counts)
    calibration = calibrate(classifier.scores_of(aside), aside.labels, prevalences, saved.trial.key)
    return calibration.to_json(), _section(classifier, dataset, calibration)


def _set_aside(dataset: Dataset) -> Split:
    if dataset.calibration is None:
        raise UserError("the study must set calibration samples aside, Study(calibration=0.5), got none")
    return dataset.calibration


def _section(classifier: Classifier, dataset: Dataset, calibration: SetCalibration) -> str:
    return (
        f"{calibration.tuned + calibration.samples} validation samples that chose neither the network nor its values "
        f"were set aside: {calibration.tuned} of them decided the temperature, {calibration.temperature:.4g}, by which "
        f"scores are divided, and RAPS' values (rank {calibration.rank}, penalty {calibration.penalty:g}); the other "
        f"{calibration.samples} decide the thresholds of sets.\n\n"
        "Guarantee: if a new image and the calibration samples are exchangeable, drawn in the same way from the same "
        "images, its set holds the true class with at least the requested probability, which may be at most "
        f"{calibration.most:.2%} with so many samples. This is an average over images and over draws of calibration "
        "samples. It promises nothing for a single class, nor for images of another kind.\n"
        + _caution(dataset)
        + "\n"
        + "\n".join(_table(classifier, dataset, calibration))
        + "\n"
    )


def _caution(dataset: Dataset) -> str:
    groups = _set_aside(dataset).groups
    if groups is None:
        return ""
    count = len(set(groups.tolist()))
    return (
        f"\nThe calibration samples come from {count} {dataset.groups}, and samples of one resemble "
        "one another: on few new groups the coverage varies more than the number of samples suggests.\n"
    )


def _table(classifier: Classifier, dataset: Dataset, calibration: SetCalibration) -> Iterator[str]:
    """Yield the lines of a table: the coverage of the test set, and the sizes of its sets."""
    scores, labels = classifier.scores_of(dataset.test), dataset.test.labels
    yield f"On the {len(labels)} test samples:\n"
    yield "| method | requested | covered | mean over classes | classes in a set | largest set |"
    yield "|---|---|---|---|---|---|"
    for method in METHODS:
        for coverage in _COVERAGES:
            if rank_of(coverage, calibration.samples) <= calibration.samples:
                inside, _ = sets(scores, calibration, coverage, method)
                covered = inside.gather(1, labels[:, None])[:, 0].double()
                sizes = inside.sum(1)
                by_class = torch.stack(
                    [covered[labels == label].mean() for label in sorted(set(labels.tolist()))]
                )
                yield (
                    f"| {method} | {coverage:.0%} | {covered.mean().item():.2%} | {by_class.mean().item():.2%} | "
                    f"{sizes.double().mean().item():.2f} | {int(sizes.max())} |"
                )
