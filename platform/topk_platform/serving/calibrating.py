"""Calibration of an exported network: on labelled samples, or at its export on its study's validation split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors.torch import load

from topk_platform.data import Dataset
from topk_platform.data.folders import is_left_out
from topk_platform.data.images.own_files import plain_name
from topk_platform.errors import UserError, unknown_name
from topk_platform.records.networks import SavedModel
from topk_platform.serving.card import with_calibration
from topk_platform.serving.classifier import Classifier
from topk_platform.serving.conformal import calibrate, prevalences_of, sets
from topk_platform.serving.loader import assembled, load_trusting
from topk_platform.serving.network_inputs import Given, listed
from topk_platform.serving.package import CALIBRATION, CARD, Config
from topk_platform.serving.set_calibration import (
    METHODS,
    SetCalibration,
    needed_calibration,
    rank_of,
)
from topk_platform.specs import Inputs
from topk_platform.training.setup import dataset_of
from topk_platform.trust import Trust

__all__ = ["calibrate_export", "calibrated_on_validation", "keep_calibration"]

_COVERAGES = (0.9, 0.95, 0.99)


def calibrate_export(export: str | Path, samples: str | Path, *, trust: Iterable[str] = ()) -> SetCalibration:
    """Calibrate an exported network on labelled samples, and keep the calibration in its folder.

    Its model card says on how many samples.

    Args:
        export: The folder of the export.
        samples: A folder with a folder of inputs for each class, by the class's name. A class may have none: the
            coverage is that of all inputs, not of each class.
        trust: Modules whose code may build the network.

    Raises:
        UserError: if a folder has another name than a class, there is no sample, or an input or the export cannot be
            read.
    """
    folder, trusted = Path(export).expanduser(), Trust.of(trust)
    classifier = load_trusting(folder, trusted)
    labelled = _labelled(Path(samples).expanduser(), classifier.config.inputs)
    calibration = needed_calibration(classifier.calibrated(*labelled).calibration)
    text = (
        f"It was calibrated on labelled samples. {_numbers(calibration)}\n\n"
        "Guarantee: if none of these samples trained or selected the network, and a new image is exchangeable with "
        "them, drawn in the same way from the same images, its set holds the true class with at least the requested "
        f"probability, which may be at most {calibration.most:.2%} with so many samples. This is an average over "
        "images and over draws of calibration samples. It promises nothing for a single class, nor for images of "
        "another kind.\n"
    )
    keep_calibration(folder, calibration, text)
    return calibration


def keep_calibration(export: Path, calibration: SetCalibration, text: str) -> None:
    """Write a calibration into the folder of an export, and the text about it into the model card."""
    (export / CALIBRATION).write_text(calibration.to_json())
    card = with_calibration((export / CARD).read_text(), Config.read(export).inputs, text)
    (export / CARD).write_text(card)


def calibrated_on_validation(saved: SavedModel, trust: Trust) -> tuple[SetCalibration, str]:
    """Return the calibration of a network on its validation split, and the text about it for the card.

    The exported network scores the samples in float32 and with one crop, because it will predict in this way.

    Args:
        saved: The network.
        trust: The code that may build it.

    Raises:
        MissingDataError: if the study's data are missing.
        ChangedError: if they are not the data on which the network was trained.
    """
    dataset = dataset_of(saved.trial)
    file = f"the network of trial {saved.trial.key}"
    classifier = assembled(Config.of(saved), load(saved.content), file, trust)
    known, prevalences = dataset.validation, prevalences_of(dataset.class_counts)
    calibration = calibrate(classifier.scores_of(known), known.labels, prevalences, saved.trial.key)
    return calibration, (
        f"It was calibrated on the validation split. {_numbers(calibration)}\n\n"
        "The validation split has also selected this network: its parameters, and the epoch whose weights were kept. "
        "So no coverage is guaranteed, and sets tend to be a little too small. Calibration on samples that selected "
        f"nothing gives a guarantee: `topk predict . PHOTOS --calibrate`.\n{_caution(dataset)}\n"
        + "\n".join(_table(classifier, dataset, calibration))
        + "\n"
    )


def _labelled(folder: Path, inputs: Inputs) -> tuple[list[Given], list[int]]:
    """Return the inputs in the folders of the classes, and the number of each one's class."""
    numbers = {plain_name(inputs.name(label)): label for label in range(inputs.classes)}
    files: list[Given] = []
    labels: list[int] = []
    for part in sorted(folder.iterdir()) if folder.is_dir() else ():
        if part.is_dir() and not is_left_out(part.name):
            if plain_name(part.name) not in numbers:
                raise unknown_name(f"class: --calibrate {folder} has a folder for", part.name, numbers)
            new = listed(part, inputs) if any(part.iterdir()) else []
            files += new
            labels += [numbers[plain_name(part.name)]] * len(new)
    if not files:
        raise UserError(f"--calibrate must be a folder with a folder for each class, got {str(folder)!r}")
    return files, labels


def _numbers(calibration: SetCalibration) -> str:
    return (
        f"{calibration.tuned} of the {calibration.tuned + calibration.samples} samples decided the temperature, "
        f"{calibration.temperature:.4g}, by which scores are divided; the other {calibration.samples} decide the "
        "thresholds of sets."
    )


def _caution(dataset: Dataset) -> str:
    groups = dataset.validation.groups
    if groups is None:
        return ""
    count = len(set(groups.tolist()))
    return (
        f"\nThe validation samples come from {count} {dataset.groups}, and samples of one resemble one another: on few "
        "new groups the coverage varies more than the number of samples suggests.\n"
    )


def _table(classifier: Classifier, dataset: Dataset, calibration: SetCalibration) -> Iterator[str]:
    """Yield the lines of a table: the coverage of the test set, and the sizes of its sets."""
    scores, labels = classifier.scores_of(dataset.test), dataset.test.labels
    yield f"On the {len(labels)} test samples, which decided nothing:\n"
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
