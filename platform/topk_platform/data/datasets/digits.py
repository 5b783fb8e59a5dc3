"""Scikit-learn's 1,797 handwritten digits: real images that need no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from topk_platform.data.dataset import Dataset, Split

__all__ = ["digits"]

# The images and labels of scikit-learn, and the split of each image. The package has its own copy because importing
# scikit-learn takes every worker a second. A test compares it with scikit-learn's digits and its train_test_split.
_FILE = Path(__file__).with_name("digits.npz")


def digits() -> Dataset:
    """Return the 8×8 digits, float32 ``(n, 1, 8, 8)`` in ``[0, 1]``, in fixed stratified splits.

    The splits have 1,077, 360 and 360 images for training, validation and test. The superclasses are {0, ..., 4} and
    {5, ..., 9}.

    Source:
        E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, as scikit-learn ships it.

    Example:
        >>> data = digits()
        >>> len(data.train), len(data.validation), len(data.test), data.shape
        (1077, 360, 360, (1, 8, 8))
    """
    with np.load(_FILE) as file:
        images, labels, splits = (file[name] for name in ("images", "labels", "split"))
    whole = Split(
        torch.from_numpy(images.astype(np.float32) / 16).unsqueeze(1),
        torch.from_numpy(labels.astype(np.int64)),
    )
    train, validation, test = (whole.take(torch.from_numpy(np.flatnonzero(splits == n))) for n in range(3))
    return Dataset(
        train, validation, test, classes=10, superclasses=(0,) * 5 + (1,) * 5, names=tuple("0123456789")
    )
