"""Scikit-learn's 1,797 handwritten digits: real images that need no network."""

from __future__ import annotations

import numpy as np
import torch

from topk_platform.data.dataset import Dataset, Split

__all__ = ["digits"]

_SPLIT_SEED = 1797
_HELD_OUT = 360


def digits() -> Dataset:
    """Return the 8×8 digits, float32 ``(n, 1, 8, 8)`` in ``[0, 1]``, in fixed stratified splits.

    1,077 for training, 360 for validation, 360 for test; the superclasses are {0, ..., 4} and {5, ..., 9}.

    Source:
        E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, as scikit-learn ships it.

    Example:
        >>> data = digits()
        >>> len(data.train), len(data.validation), len(data.test), data.shape
        (1077, 360, 360, (1, 8, 8))
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 - a second of import that only this dataset needs
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    raw = load_digits()
    inputs = torch.from_numpy(raw.images.astype(np.float32) / 16).unsqueeze(1)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    rest, test = train_test_split(
        np.arange(len(labels)), test_size=_HELD_OUT, stratify=raw.target, random_state=_SPLIT_SEED
    )
    train, validation = train_test_split(
        rest, test_size=_HELD_OUT, stratify=raw.target[rest], random_state=_SPLIT_SEED
    )
    whole = Split(inputs, labels)

    def split(indices: np.ndarray) -> Split:
        return whole.take(torch.from_numpy(np.sort(indices)))

    return Dataset(split(train), split(validation), split(test), classes=10, superclasses=(0,) * 5 + (1,) * 5)
