"""Datasets, and the conditions that turn them into regimes.

``Regime(name, dataset, conditions, options)`` names a dataset of :data:`DATASETS`, or a user's function as
``package.module:attribute``. The options are the arguments of the dataset's function, which returns a :class:`Dataset`.
If the function has a parameter ``generator``, every seed draws its own data from its own random stream.

    ============================  =========================================================================
    :func:`digits`                scikit-learn's 8×8 digits
    :func:`letters`               A to Z, a to z and 0 to 9 of free typefaces, 28×28, or any alphabet of your own fonts
    :func:`kanji`                 up to 2,965 Chinese characters of 35 free Japanese typefaces, 28×28
    :func:`ring`                  sawada2020's six classes around a circle, other points for every seed
    :func:`synthetic_images`      made-up images, by default 32×32, of any difficulty
    :func:`cifar100`              CIFAR-100 from the data folder, downloaded if you ask for it
    :func:`image_folder`          your own images from the data folder, in memory
    :func:`image_files`           the same, of any size and number, read when needed, such as iNaturalist 2021
    :func:`parquet_images`        images in Parquet files from the data folder, in memory
    :func:`array_file`            arrays in one file from the data folder, ``.npz`` or ``.pt``
    :func:`image_features`        features that a frozen network computes from another dataset's images
    :func:`imagenet`              ImageNet from the data folder, read when needed
    :func:`imagenet_lt`           ImageNet's long-tailed part by its public lists, read when needed
    :func:`inaturalist`           iNaturalist 2017 to 2019 by their public lists, read when needed
    :func:`plantnet300k`          Pl@ntNet-300K from the data folder, read when needed
    :func:`from_tensors`          for your own function: inputs and labels, in given splits or split by fractions
    ============================  =========================================================================

If images are read when needed, the inputs of the splits are :class:`Images` and not a tensor. Two environment variables
control the reading, and neither changes a result: ``TOPK_DECODERS`` is the number of decoding threads in each process,
by default one per core, of which a study's workers on a machine have equal parts; ``TOPK_CACHE`` is a folder, on a fast
disk, where decoded and scaled images are kept. Without ``TOPK_CACHE`` only lists of files and features are kept, in
``.topk`` in the data folder.

The data folder is ``topk run --data DIR``, the environment's ``TOPK_DATA``, or ``data``: see :func:`data_folder`.
"""

from topk_platform.data.conditions import apply_conditions, long_tail_counts, noisy_labels
from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.dataset_table import (
    DATASETS,
    check_source,
    download,
    forget_datasets,
    image_features,
    load,
    read,
)
from topk_platform.data.datasets.array_file import array_file
from topk_platform.data.datasets.characters import LOOK_ALIKES, digits, kanji, letters
from topk_platform.data.datasets.cifar import cifar100, read_cifar100
from topk_platform.data.datasets.generated import ring, synthetic_images
from topk_platform.data.datasets.image_files import image_files, image_folder
from topk_platform.data.datasets.imagenet import imagenet, imagenet_lt
from topk_platform.data.datasets.parquet import parquet_images
from topk_platform.data.datasets.species import inaturalist, plantnet300k
from topk_platform.data.datasets.tensors import from_tensors
from topk_platform.data.folders import cache_folder, data_at, data_folder, use_data_folder
from topk_platform.data.images.in_files import Images
from topk_platform.data.population import Population, Source
from topk_platform.data.splitting import shot_words, shots
from topk_platform.data.wrong_labels import write_labels

__all__ = [
    "DATASETS",
    "LOOK_ALIKES",
    "Dataset",
    "Images",
    "Population",
    "Source",
    "Split",
    "apply_conditions",
    "array_file",
    "cache_folder",
    "check_source",
    "cifar100",
    "data_at",
    "data_folder",
    "digits",
    "download",
    "forget_datasets",
    "from_tensors",
    "image_features",
    "image_files",
    "image_folder",
    "imagenet",
    "imagenet_lt",
    "inaturalist",
    "kanji",
    "letters",
    "load",
    "long_tail_counts",
    "noisy_labels",
    "parquet_images",
    "plantnet300k",
    "read",
    "read_cifar100",
    "ring",
    "shot_words",
    "shots",
    "synthetic_images",
    "use_data_folder",
    "write_labels",
]
