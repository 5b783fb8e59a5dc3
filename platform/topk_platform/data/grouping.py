"""Groups of samples: read from the names of image files or from a table, and kept whole in splits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from topk_platform.data.arrays import class_numbers
from topk_platform.data.dataset import Split
from topk_platform.data.folders import rows_of_table
from topk_platform.data.images.listing import SPLITS
from topk_platform.errors import UserError
from topk_platform.specs.checks import check, first_few

__all__ = ["by_table", "check_apart", "group_numbers", "groups_of_files", "matched", "split_whole_groups"]

_PIECE = re.compile(r"\{group\}|\{class\}|\*|[^{*]+|.")
_PIECES = {"{group}": "(?P<group>[^/]+?)", "{class}": "[^/]+", "*": "[^/]*"}
_ENDING = ".csv"

Numbers = npt.NDArray[np.int64]


def group_numbers(named: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the groups of each split's samples as numbers from 0; a name has the same number in all splits.

    Args:
        named: For each split, the group of each sample. Groups are strings in all splits, or whole numbers in all.

    Raises:
        UserError: if they are of another type or shape.

    Example:
        >>> numbers = group_numbers({"train": ["ann", "bob"], "test": ["eve", "eve"]})
        >>> numbers["train"].tolist(), numbers["test"].tolist()
        ([0, 1], [2, 2])
    """
    arrays = {split: _names(split, values) for split, values in named.items()}
    if not arrays:
        return {}
    kinds = {split: array.dtype.kind for split, array in arrays.items()}
    check(
        len({kind == "U" for kind in kinds.values()}) == 1,
        "groups must be texts in all splits, or whole numbers in all",
    )
    numbers = np.unique(np.concatenate(list(arrays.values())), return_inverse=True)[1]
    parts = np.split(numbers, np.cumsum([len(array) for array in arrays.values()])[:-1])
    return {split: torch.from_numpy(part.astype(np.int64)) for split, part in zip(arrays, parts, strict=True)}


def _names(split: str, values: Any) -> np.ndarray[Any, Any]:
    what = f"{split} groups"
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.dtype == object and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)  # a pandas column of texts
    if array.dtype.kind != "U":
        check(array.dtype.kind in "iu", f"{what} must be texts or whole numbers, got {array.dtype}")
        return class_numbers(what, torch.as_tensor(array.astype(np.int64))).numpy()
    check(array.ndim == 1, f"{what} must be of shape (n,), got {array.shape}")
    return array


def groups_of_files(paths: Sequence[str], inside: Sequence[str], root: Path, how: str) -> dict[str, str]:
    """Return the group of each image by its path.

    Args:
        paths: The paths relative to ``root``, with slashes.
        inside: The same paths relative to the folder of their split.
        root: The dataset's folder.
        how: A pattern of the paths in a split's folder, see :func:`matched`; or the name of a CSV file in ``root``, see
            :func:`by_table`.

    Raises:
        MissingDataError: if there is no such CSV file.
        UserError: if the group of an image is not known.
    """
    if not how.endswith(_ENDING):
        return dict(zip(paths, matched(how, inside), strict=True))
    table = by_table(root / how)
    lacking = [path for path in paths if path not in table]
    check(
        not lacking,
        f"groups: {root / how} must name the group of every image, by its path from {root}; {len(lacking)} are "
        f"not in it: {first_few(lacking)}",
    )
    return table


def matched(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the groups of images that a pattern matches in their paths.

    Args:
        pattern: ``{group}`` stands for the group, with as few characters as possible; ``{class}`` for a class's name;
            ``*`` for any characters. None of them matches a slash.
        names: Paths relative to a split's folder, with slashes.

    Raises:
        UserError: if the pattern does not have exactly one ``{group}``, or an image does not match the pattern.

    Example:
        >>> matched("{class}/{group}_*", ["owl/ann_1.jpg", "owl/bob_1.jpg", "gull/ann_2.jpg"])
        ['ann', 'bob', 'ann']
    """
    check(
        pattern.count("{group}") == 1,
        f"groups must be a pattern with one {{group}}, such as '{{class}}/{{group}}_*', or a CSV file, got {pattern!r}",
    )
    expression = re.compile(
        "".join(_PIECES.get(piece) or re.escape(piece) for piece in _PIECE.findall(pattern))
    )
    matches = [(name, expression.fullmatch(name)) for name in names]
    odd = [name for name, match in matches if match is None]
    check(
        not odd,
        f"groups: {len(odd)} of {len(names)} images do not match {pattern!r}: {first_few(odd)}",
    )
    return [match["group"] for _, match in matches if match is not None]


def by_table(file: Path) -> dict[str, str]:
    """Return the group of each image's path from a CSV file: a header, then a path and a group in each line.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if the file cannot be read, or a line is not a path and a group, or names an image a second time.
    """
    groups: dict[str, str] = {}
    for row in rows_of_table(file, "groups")[1:]:
        check(
            len(row) == 2 and all(row) and row[0] not in groups,
            f"groups: {file} must have the path of an image and its group in each line, each image once, "
            f"got {','.join(row)!r}",
        )
        groups[row[0]] = row[1]
    return groups


def split_whole_groups(
    labels: Tensor,
    groups: Tensor,
    fractions: Sequence[float],
    generator: Generator,
    names: Sequence[str] | None = None,
) -> list[Tensor]:
    """Return the indices of the training split, then those of the splits taken from it; no group is in two splits.

    Every split gets at least one group of each class. Each remaining group, from the largest on, goes to the split
    where it brings the numbers of samples of each class closest to the fractions. Groups of the same size are in random
    order.

    Args:
        labels: int64 ``(n,)``.
        groups: The group of each sample, int64 ``(n,)``.
        fractions: The fraction of each split to take.
        generator: The source of randomness.
        names: The classes' names, for errors.

    Raises:
        UserError: if the fractions are not above 0 and below 1 in sum, or a class has too few groups.

    Example:
        >>> labels, groups = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1]), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
        >>> train, test = split_whole_groups(labels, groups, (0.25,), Generator().manual_seed(0))
        >>> set(groups[train].tolist()) & set(groups[test].tolist()), len(test)
        (set(), 2)
    """
    if min(fractions, default=1) <= 0 or not sum(fractions) < 1:
        raise UserError(
            f"the fractions of validation and test must be above 0 and below 1 in sum, got {tuple(fractions)}"
        )
    numbers = torch.unique(groups, return_inverse=True)[1]
    counts = _counts(numbers.numpy(), labels.numpy())
    order = torch.randperm(counts.shape[0], generator=generator).numpy()
    shares = np.array([1 - sum(fractions), *fractions])
    part = np.full(counts.shape[0], -1)
    lacking = _assign_each_class(counts, order, len(shares), part)
    if lacking:
        raise UserError(_too_few(lacking, np.diff(counts.tocsc().indptr), len(shares), names))
    _assign_rest(counts, order, shares, part)
    of_sample = torch.from_numpy(part)[numbers]
    return [(of_sample == split).nonzero()[:, 0] for split in range(len(shares))]


def _counts(groups: Numbers, labels: Numbers) -> Any:
    """Return how many samples of each class each group has, as a sparse matrix, because nearly all numbers are 0."""
    from scipy import sparse  # noqa: PLC0415 - most datasets do not need it

    return sparse.coo_array((np.ones(len(groups)), (groups, labels))).tocsr()


def _assign_each_class(counts: Any, order: Numbers, splits: int, part: Numbers) -> list[int]:
    """Give every split a group of each class, the smallest groups first; return the classes that have too few groups.

    The classes with the fewest groups are served first.
    """
    sizes, of_class, lacking = counts.sum(1), counts.tocsc(), []
    position = np.argsort(order)
    for label in np.argsort(np.diff(of_class.indptr), kind="stable").tolist():
        members = of_class.indices[of_class.indptr[label] : of_class.indptr[label + 1]]
        members = members[np.lexsort((position[members], sizes[members]))]
        for split in (*range(1, splits), 0) if len(members) else ():
            if (part[members] == split).any():
                continue
            free = members[part[members] < 0]
            if not len(free):
                lacking.append(label)
                break
            part[free[0]] = split
    return lacking


def _too_few(lacking: Sequence[int], groups: Numbers, splits: int, names: Sequence[str] | None) -> str:
    named = [
        f"{label if names is None else repr(names[label])} has {groups[label]}" for label in sorted(lacking)
    ]
    return (
        f"groups cannot be kept whole: each of the {splits} splits needs a group of every class that is in no other "
        f"split, and there are too few groups: class {first_few(named)}. Give validation and test of your own, leave "
        "such classes out, or take whole_groups=False, which may put a group into several splits"
    )


def _assign_rest(counts: Any, order: Numbers, shares: Any, part: Numbers) -> None:
    """Give each remaining group to the split that lacks it most: the smallest growth of relative squared errors."""
    targets = np.maximum(shares[:, None] * counts.sum(0), 1e-9)
    held = np.stack([counts[part == split].sum(0) for split in range(len(shares))])
    largest_first = order[np.argsort(-counts.sum(1)[order], kind="stable")]
    for group in largest_first[part[largest_first] < 0]:
        row = slice(counts.indptr[group], counts.indptr[group + 1])
        classes, more = counts.indices[row], counts.data[row]
        lacks = held[:, classes] - targets[:, classes]
        part[group] = ((more * (2 * lacks + more)) / targets[:, classes]).sum(1).argmin()
        held[part[group], classes] += more


def check_apart(splits: Mapping[str, Split]) -> None:
    """Raise ``UserError`` if two splits share a group."""
    grouped = {name: splits[name].groups for name in SPLITS if name in splits}
    held = {name: set(groups.tolist()) for name, groups in grouped.items() if groups is not None}
    for first, other in combinations(held, 2):
        both = held[first] & held[other]
        check(
            not both,
            f"{len(both)} groups are in {first} and in {other}, so the score would be measured on groups that were "
            "seen before: move each group to one of these splits, or take whole_groups=False",
        )
