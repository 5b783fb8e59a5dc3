"""What images hold, as hashes: a photo is the same photo under any name and in any folder."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from topk_platform.data.folders import arrays_in, cache_folder, write_whole
from topk_platform.data.images.decoding import pool
from topk_platform.data.images.in_files import Images

__all__ = ["contents"]

_State = tuple[bytes, int, int]
"""A file's path below the dataset's folder, its size and the date of its last change."""


def contents(images: Tensor | Images) -> list[bytes]:
    """Return a hash of 16 bytes of each image: of its pixels, or of its file's bytes.

    A file is read once; from then on its hash is known by its path, its size and its date, in
    :func:`~topk_platform.data.folders.cache_folder`.

    Args:
        images: Images in memory, uint8 ``(n, ...)``, or in files.

    Example:
        >>> import torch
        >>> first, second, third = contents(torch.tensor([1, 2, 1], dtype=torch.uint8)[:, None])
        >>> first == third, first == second
        (True, False)
    """
    if isinstance(images, Images):
        return _contents_of_files(images.files.root, images.names)
    return [_hash(row.tobytes()) for row in images.contiguous().cpu().numpy()]


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _contents_of_files(root: Path, names: Sequence[bytes]) -> list[bytes]:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:20]
    kept = cache_folder() / "lists" / f"{name}.contents.npz"
    known = _read(kept)

    def hashed(name: bytes) -> tuple[_State, bytes]:
        path = root / os.fsdecode(name)
        try:
            status = path.stat()
            state = (name, status.st_size, status.st_mtime_ns)
            return state, known.get(state) or _hash(path.read_bytes())
        except OSError:  # whoever decodes it says so
            return (name, -1, 0), _hash(name)

    result = list(pool().map(hashed, names))
    new = {state: content for state, content in result if state not in known and state[1] >= 0}
    if new:
        now = {state[0] for state in new}
        _write(kept, {state: content for state, content in known.items() if state[0] not in now} | new)
    return [content for _, content in result]


def _read(file: Path) -> dict[_State, bytes]:
    try:
        data = arrays_in(file)
        states = zip(data["names"].tolist(), *data["states"].T.tolist(), strict=True)
        return dict(zip(states, map(bytes, data["contents"]), strict=True))
    except (OSError, KeyError):  # there is none yet, or half a file
        return {}


def _write(file: Path, known: Mapping[_State, bytes]) -> None:
    arrays: dict[str, Any] = {
        "names": np.array([name for name, *_ in known], dtype=np.bytes_),
        "states": np.array([state for _, *state in known], dtype=np.int64),
        "contents": np.frombuffer(b"".join(known.values()), np.uint8).reshape(-1, 16),
    }
    try:
        write_whole(file, partial(np.savez, **arrays))
    except OSError as error:
        warnings.warn(
            f"every process reads all images anew, because what it notes of them cannot be kept: {error}. Name a "
            "folder that can be written to with TOPK_CACHE",
            stacklevel=2,
        )
