"""Datasets by name, of which each process keeps those that it read last, and checks of what they hold."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from torch import Tensor

from topk_platform.data.arrays import check_finite
from topk_platform.data.dataset import Dataset
from topk_platform.data.datasets.array_file import array_file
from topk_platform.data.datasets.characters import digits, kanji, letters
from topk_platform.data.datasets.cifar import cifar100, download_cifar100
from topk_platform.data.datasets.generated import ring, synthetic_images
from topk_platform.data.datasets.image_files import image_files, image_folder
from topk_platform.data.datasets.imagenet import imagenet, imagenet_lt
from topk_platform.data.datasets.parquet import parquet_images
from topk_platform.data.datasets.species import inaturalist, plantnet300k
from topk_platform.data.folders import data_folder
from topk_platform.data.images.backbones import load_backbone, weights_hash
from topk_platform.data.images.features import features_of
from topk_platform.data.population import Population, Source, with_files
from topk_platform.errors import MissingDataError, UserError, as_user_error
from topk_platform.references import check_arguments, is_reference, look_up
from topk_platform.specs import FEATURES, Regime, images_of

__all__ = [
    "DATASETS",
    "DOWNLOADS",
    "backbone_hash",
    "check_source",
    "download",
    "feature_arguments",
    "forget_datasets",
    "image_features",
    "load",
    "read",
]


def image_features(
    of: str,
    backbone: str = "efficientnet_lite0",
    pixels: int = 128,
    weights: str = "",
    **options: bool | int | float | str | None,
) -> Dataset:
    """Return another dataset's images as features of a frozen backbone, float32 ``(n, d)``; see :func:`features_of`.

    Args:
        of: The dataset of images: a name of the platform's table, or ``package.module:attribute``.
        backbone: The network, see :func:`~topk_platform.data.images.backbones.load_backbone`.
        pixels: The side of the square to which images are scaled before the backbone.
        weights: The file of the backbone's weights, see :func:`~topk_platform.data.images.backbones.load_backbone`.
        **options: The keyword arguments of the dataset ``of``.

    Raises:
        MissingDataError: if the data, a package or the weights are not on this machine.
        UserError: if every seed draws its own data of ``of``, or if ``of``, :func:`features_of` or
            :func:`~topk_platform.data.images.backbones.load_backbone` raises it.
    """
    source = read(Regime("features", of, options=options))
    if not isinstance(source, Dataset):
        raise UserError(f"every seed draws its own data of dataset {of}, so their features cannot be kept")
    return features_of(source, load_backbone(backbone, pixels, weights), of)


def feature_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of :func:`image_features` with their defaults; those of the images are in ``options``.

    Example:
        >>> feature_arguments({"of": "cifar100", "validation": 0.2})["options"]
        {'validation': 0.2}
    """
    bound = inspect.signature(image_features).bind(**options)
    bound.apply_defaults()
    return dict(bound.arguments)


def backbone_hash(regime: Regime) -> str:
    """Return the hash of the weights of the backbone that computes a regime's features; empty if it has none.

    Raises:
        MissingDataError: if a package or the weights are not on this machine.
    """
    if regime.dataset != FEATURES:
        return ""
    given = feature_arguments(regime.options)
    return weights_hash(load_backbone(given["backbone"], given["pixels"], given["weights"]))


DATASETS: dict[str, Callable[..., Dataset]] = {
    "array_file": array_file,
    "cifar100": cifar100,
    "digits": digits,
    "image_features": image_features,
    "image_files": image_files,
    "image_folder": image_folder,
    "imagenet": imagenet,
    "imagenet_lt": imagenet_lt,
    "inaturalist": inaturalist,
    "kanji": kanji,
    "letters": letters,
    "parquet_images": parquet_images,
    "plantnet300k": plantnet300k,
    "ring": ring,
    "synthetic_images": synthetic_images,
}

DOWNLOADS: dict[str, Callable[[Path], None]] = {
    "cifar100": download_cifar100,
}
"""The functions that download datasets into the data folder."""


def download(regime: Regime) -> None:
    """Download the regime's dataset, or the images of its features, into the data folder unless they are there.

    Does nothing for a dataset that cannot be downloaded.

    Raises:
        UserError: if the download fails.
    """
    if (images := images_of(regime)) in DOWNLOADS:
        DOWNLOADS[images](data_folder())


def forget_datasets() -> None:
    """Let :func:`load` read all datasets again: their files may have changed since this process read them."""
    _load.cache_clear()


def load(regime: Regime) -> Source:
    """Return the regime's dataset before its conditions; a process keeps the last four that it has read.

    Raises:
        UserError: as :func:`read`.
    """
    folder = data_folder()
    source = _load(regime.dataset, tuple(sorted(regime.options.items())), folder)
    return with_files(source, regime.condition_files, folder) if regime.condition_files else source


@lru_cache(maxsize=4)
def _load(
    name: str,
    options: tuple[tuple[str, bool | int | float | str | None], ...],
    folder: Path,  # noqa: ARG001 - the same name may mean other data in another folder
) -> Source:
    return read(Regime("dataset", name, options=dict(options)))


def read(regime: Regime) -> Source:
    """Return the regime's dataset before its conditions, always read again.

    If the dataset's function has a parameter ``generator``, return a :class:`Population`: :func:`apply_conditions`
    draws its data for every seed.

    Raises:
        MissingDataError: if the dataset's files are not on disk.
        UserError: if there is no such dataset, an option is unknown, the files cannot be read, or the function does not
            return a :class:`Dataset`.
    """
    name, options = regime.dataset, dict(regime.options)
    function = look_up("dataset", name, DATASETS)
    try:
        drawn = "generator" in inspect.signature(function).parameters
    except ValueError:  # some built-in functions have no signature; check_arguments raises as well
        drawn = False
    if drawn:
        if "generator" in options:
            raise UserError(f"dataset {name}: generator is the trial's own and cannot be an option")
        check_arguments("dataset", name, function, {**options, "generator": None})
        return Population(name, partial(_call, name, function), options)
    check_arguments("dataset", name, function, options)
    return _call(name, function, **options)


def _call(name: str, function: Callable[..., Any], /, **arguments: Any) -> Dataset:
    with as_user_error(f"dataset {name}"):
        try:
            dataset = function(**arguments)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and _is_data(error.filename):
                raise MissingDataError(
                    f"dataset {name}: there is no {error.filename}: put it there, or name the folder of datasets with "
                    "--data DIR or TOPK_DATA"
                ) from error
            raise UserError(f"dataset {name} cannot be read: {error}") from error
        except UserError as error:
            if str(error).startswith(f"dataset {name}"):
                raise
            raise type(error)(f"dataset {name}: {error}") from error
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"dataset {name}: must return a topk_platform.data.Dataset, got {type(dataset).__name__}"
        )
    return dataset


def _is_data(file: object) -> bool:
    """Return whether a path lies in the folder of datasets."""
    return isinstance(file, str | os.PathLike) and Path(os.path.abspath(file)).is_relative_to(data_folder())


def check_source(regime: Regime, source: Source) -> None:
    """Check that data have two classes and finite inputs, and that a user's function returns the same data twice.

    Effect: a user's function is called a second time, which doubles its time and memory. For a population, one sample
    is drawn twice from the same seed.

    Args:
        regime: The regime.
        source: The regime's dataset before the conditions.

    Raises:
        UserError: if one of the checks fails.
    """
    if source.classes < 2:
        raise UserError(
            f"regime {regime.name}: dataset {regime.dataset} must have at least two classes, got {source.classes}"
        )
    dataset = source.example
    if 0 in dataset.shape:
        raise UserError(
            f"dataset {regime.dataset}: inputs must hold numbers, got samples of shape {dataset.shape}"
        )
    for name, split in dataset.splits.items():
        if isinstance(split.inputs, Tensor):
            check_finite(f"dataset {regime.dataset}: inputs", split.inputs, f"of the {name} split")
    if is_reference(regime.dataset):
        _check_repeats(regime, source)


def _check_repeats(regime: Regime, source: Source) -> None:
    if read(regime).example.fingerprint == source.example.fingerprint:
        return
    if isinstance(source, Population):
        raise UserError(
            f"dataset {regime.dataset} must return the same data for the same generator, but a second call returned "
            "others: draw all random numbers from its parameter generator"
        )
    raise UserError(
        f"dataset {regime.dataset} must return the same data in every process, but a second call returned others: draw "
        "all random numbers from torch.Generator().manual_seed(0) or numpy.random.default_rng(0), or, for other data "
        "with every seed of the study, from a parameter generator"
    )
