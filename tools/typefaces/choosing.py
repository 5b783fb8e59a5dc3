"""Which families are kept, and which split each is in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from typefaces.faces import Face
from typefaces.pictures import Pictures, distances, legible, single_case

__all__ = ["CLONES", "KIN", "Choice", "choose", "groups_of"]

CLONES = 0.2
"""How little the pictures of two families of letters differ if one is the other under another name."""

KIN = 0.23
"""How little the pictures of two families of letters differ if one was made from the other."""

_SHARED = 0.01  # of the characters: unrelated faces may draw one of thousands alike, such as a bar for 一
_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+|\d+|[^\W\d_]+")  # the first of "NanumGothic" is Nanum


@dataclass(frozen=True)
class Choice:
    """What became of the faces.

    Args:
        splits: The places of the faces in each split, ascending, by the split's name.
        left_out: How many faces were left out for which reason.
    """

    splits: dict[str, list[int]]
    left_out: dict[str, int]


def choose(
    faces: Sequence[Face],
    pictures: Pictures,
    characters: str,
    sizes: Mapping[str, int],
    seed: int,
    per_package: int | None = None,
    clones: float = CLONES,
    kin: float = KIN,
) -> Choice:
    """Return which faces each split gets: legible ones of two cases, no two alike, and none of kin in two splits.

    Of faces whose pictures differ by less than ``clones`` the first is kept. Kin are those that differ by less than
    ``kin``, that have a hundredth of their pictures in common, at least one, or whose families' names begin with one
    word.

    Args:
        faces: In the order of preference.
        pictures: Theirs, ``(faces, characters, size, size)``.
        characters: The classes.
        sizes: How many families each split should have; fewer are there if kin or the folder leave no more.
        seed: Of another division.
        per_package: How many families of one package are kept at most; None for all.
        clones: The difference below which families are one.
        kin: The difference below which families are kin.
    """
    readable, one_case = legible(pictures, characters), single_case(pictures, characters)
    left_out = {"illegible": int((~readable).sum()), "of one case": int((readable & one_case).sum())}
    kept = np.flatnonzero(readable & ~one_case)
    apart = distances(pictures[kept])
    firsts = [members[0] for members in groups_of(apart < clones)]
    left_out["alike another"] = len(kept) - len(firsts)
    chosen = _at_most([int(kept[i]) for i in firsts], faces, per_package, seed)
    left_out["of a package that has enough"] = len(firsts) - len(chosen)
    places = np.searchsorted(kept, chosen)
    related = (
        (apart[np.ix_(places, places)] < kin)
        | _namesakes([faces[i] for i in chosen])
        | _sharing(pictures[chosen])
    )
    splits = _divided([[chosen[i] for i in group] for group in groups_of(related)], faces, sizes, seed)
    left_out["not needed"] = len(chosen) - sum(map(len, splits.values()))
    return Choice(splits, left_out)


def groups_of(joined: NDArray[np.bool_]) -> list[list[int]]:
    """Return the connected parts of a graph, each ascending, in the order of their first members.

    Args:
        joined: Symmetric, ``(n, n)``.

    Example:
        >>> groups_of(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool))
        [[0, 2], [1]]
    """
    part = np.arange(len(joined))
    for first, second in np.argwhere(np.triu(joined, 1)):
        low, high = sorted((part[first], part[second]))
        part[part == high] = low
    return [np.flatnonzero(part == first).tolist() for first in np.unique(part)]


def _namesakes(faces: Sequence[Face]) -> NDArray[np.bool_]:
    words = (_WORD.search(face.family) for face in faces)
    first = np.array([word[0].casefold() if word else "" for word in words])
    same: NDArray[np.bool_] = first[:, None] == first[None]
    return same


def _sharing(pictures: Pictures) -> NDArray[np.bool_]:
    """Return which families have pictures in common, as plain bars for an l: these must not be in two splits."""
    owners: dict[bytes, set[int]] = {}
    for family, characters in enumerate(pictures):
        for picture in characters:
            owners.setdefault(picture.tobytes(), set()).add(family)
    shared = np.zeros((len(pictures), len(pictures)), np.int64)
    for families in owners.values():
        shared[np.ix_(*[sorted(families)] * 2)] += 1
    many: NDArray[np.bool_] = shared >= max(1, _SHARED * pictures.shape[1])
    return many


def _lot(seed: int, face: Face) -> str:
    return hashlib.sha256(f"{seed} {face.family}".encode()).hexdigest()


def _at_most(chosen: list[int], faces: Sequence[Face], per_package: int | None, seed: int) -> list[int]:
    """Return at most so many faces of each package, by lot, ascending."""
    taken: dict[str, list[int]] = {}
    for index in sorted(chosen, key=lambda i: _lot(seed, faces[i])):
        taken.setdefault(faces[index].package.partition(" ")[0] or faces[index].file, []).append(index)
    return sorted(index for places in taken.values() for index in places[:per_package])


def _divided(
    groups: list[list[int]], faces: Sequence[Face], sizes: Mapping[str, int], seed: int
) -> dict[str, list[int]]:
    """Return the groups' members by split: largest first, each to the split that lacks the largest share."""
    splits: dict[str, list[int]] = {name: [] for name in sizes}
    for group in sorted(groups, key=lambda group: (-len(group), _lot(seed, faces[group[0]]))):
        name = max(sizes, key=lambda name: 1 - len(splits[name]) / max(sizes[name], 1))
        splits[name] += sorted(group, key=lambda i: _lot(seed, faces[i]))[: sizes[name] - len(splits[name])]
    return {name: sorted(places) for name, places in splits.items()}
