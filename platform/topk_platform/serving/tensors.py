"""The tensors of an exported network: read from a file whose hash is known, and compared with those of a built one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from topk_platform.errors import UserError

__all__ = ["differing_tensor", "read_tensors"]


def read_tensors(file: Path, sha256: str) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file, by name.

    Args:
        file: The file.
        sha256: Its SHA-256.

    Raises:
        UserError: if it cannot be read, or has another SHA-256.
    """
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if sha256 != digest:
            raise UserError(f"{file} is damaged or was changed: its SHA-256 differs from that of the export")
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    return tensors


def differing_tensor(built: Mapping[str, Tensor], read: Mapping[str, Tensor], file: Path | str) -> str:
    """Return a text about the first tensor that differs in type or shape from that in a file; empty if none does.

    Args:
        built: The tensors of the built network, by name.
        read: Those in the file.
        file: The file.
    """
    for name in sorted(built.keys() | read.keys()):
        ours, theirs = _in_words(built, name), _in_words(read, name)
        if ours != theirs:
            return f"tensor {name!r} is {ours} and {theirs} in {file}"
    return ""


def _in_words(tensors: Mapping[str, Tensor], name: str) -> str:
    return f"{tensors[name].dtype} of shape {tuple(tensors[name].shape)}" if name in tensors else "missing"
