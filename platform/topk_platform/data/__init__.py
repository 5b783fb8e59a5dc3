"""Datasets and the conditions that make regimes of them."""

from topk_platform.data.conditions import apply_conditions, long_tail_counts, noisy_labels
from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.digits import digits
from topk_platform.data.groups import shots
from topk_platform.data.loading import DATASETS, load, read
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
    "digits",
    "load",
    "long_tail_counts",
    "noisy_labels",
    "read",
    "ring",
    "shots",
    "synthetic_images",
]
