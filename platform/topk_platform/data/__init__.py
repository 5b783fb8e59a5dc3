# ruff: noqa: F403 - what the catalogue of datasets exports
"""Datasets, and the conditions that turn them into regimes.

``Regime(name, dataset, conditions, options)`` names a dataset of :data:`DATASETS`, whose options are its function's
arguments, or a user's function as ``package.module:attribute``. The function returns a :class:`Dataset`; if it has a
parameter ``generator``, every seed trains on data drawn anew from its own random stream.

    ============================  =========================================================================
    :func:`digits`                scikit-learn's 8×8 digits
    :func:`letters`               A to Z, a to z and 0 to 9 of free typefaces, 28×28, or any alphabet of your own fonts
    :func:`kanji`                 up to 2,965 Chinese characters of 35 free Japanese typefaces, 28×28
    :func:`ring`                  sawada2020's six classes around a circle, drawn anew for every seed
    :func:`synthetic_images`      made-up 32×32 images, of any size and difficulty
    :func:`cifar100`              from the data folder, downloaded when asked
    :func:`image_folder`          your own images, from the data folder, in memory
    :func:`image_files`           the same, of any size and number, read as they are needed: iNaturalist and the like
    :func:`imagenet`              from the data folder, read as it is needed
    :func:`imagenet_lt`           its long-tailed part by the public lists
    :func:`inaturalist`           2017 to 2019 by their public lists, from the data folder, read as it is needed
    :func:`plantnet300k`          from the data folder, read as it is needed
    :func:`from_tensors`          for your own function: inputs and labels, split by fractions or given
    ============================  =========================================================================

Datasets that are read as they are needed have splits whose inputs are :class:`Images` rather than a tensor. Two
environment variables control the reading, and neither changes a result: ``TOPK_DECODERS`` is the number of decoding
threads in each process, by default one per core; ``TOPK_CACHE`` is a folder, on a fast disk, where decoded and scaled
images are kept. Without ``TOPK_CACHE`` only lists of files are kept, in ``.topk`` in the data folder.

The data folder is ``topk run --data DIR``, the environment's ``TOPK_DATA``, or ``data``: see :func:`data_folder`.
"""

from topk_platform.data import loading
from topk_platform.data.checking import check_source
from topk_platform.data.conditions import apply_conditions, long_tail_counts, noisy_labels, set_aside
from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.datasets.cifar import read_cifar100
from topk_platform.data.datasets.letters import LOOK_ALIKES
from topk_platform.data.datasets.own import from_tensors
from topk_platform.data.folder import cache_folder, data_at, data_folder, use_data_folder
from topk_platform.data.images.in_files import Images
from topk_platform.data.loading import *
from topk_platform.data.noise_files import write_labels
from topk_platform.data.population import Population, Source
from topk_platform.data.shots import shot_words, shots

__all__ = [
    "LOOK_ALIKES",
    "Dataset",
    "Images",
    "Population",
    "Source",
    "Split",
    "apply_conditions",
    "cache_folder",
    "check_source",
    "data_at",
    "data_folder",
    "from_tensors",
    "long_tail_counts",
    "noisy_labels",
    "read_cifar100",
    "set_aside",
    "shot_words",
    "shots",
    "use_data_folder",
    "write_labels",
]
__all__ += loading.__all__
