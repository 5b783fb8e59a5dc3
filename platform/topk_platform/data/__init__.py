"""Datasets and the conditions that make regimes of them."""

from topk_platform.data.conditions import apply_conditions, long_tail_counts, noisy_labels
from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.digits import digits
from topk_platform.data.loading import DATASETS, load, read

__all__ = [
    "DATASETS",
    "Dataset",
    "Split",
    "apply_conditions",
    "digits",
    "load",
    "long_tail_counts",
    "noisy_labels",
    "read",
]
