"""Datasets and the conditions that make regimes of them."""

from topk_platform.data.cifar import cifar100, read_cifar100
from topk_platform.data.conditions import apply_conditions, long_tail_counts, noisy_labels
from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.digits import digits
from topk_platform.data.folder import data_at, data_folder, use_data_folder
from topk_platform.data.groups import shots
from topk_platform.data.loading import DATASETS, download, load, read
from topk_platform.data.own import from_tensors, image_folder
from topk_platform.data.population import Population, Source
from topk_platform.data.ring import ring
from topk_platform.data.synthetic import synthetic_images

__all__ = [
    "DATASETS",
    "Dataset",
    "Population",
    "Source",
    "Split",
    "apply_conditions",
    "cifar100",
    "data_at",
    "data_folder",
    "digits",
    "download",
    "from_tensors",
    "image_folder",
    "load",
    "long_tail_counts",
    "noisy_labels",
    "read",
    "read_cifar100",
    "ring",
    "shots",
    "synthetic_images",
    "use_data_folder",
]
