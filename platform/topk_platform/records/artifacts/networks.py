"""The networks of confirmed runs, as safetensors with their configuration, in the store under the trial's key."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_platform.elsewhere import parse_json
from topk_platform.records.artifacts.files import read_parsed, write_artifact
from topk_platform.records.storage.store import Store
from topk_platform.records.table.rows import Row
from topk_platform.specs import Inputs, Trial, canonical_json

if TYPE_CHECKING:
    from torch import nn

__all__ = ["SavedModel", "read_model", "save_model"]

_LENGTH = struct.Struct("<Q")  # a safetensors file begins with the length in bytes of its JSON header


@dataclass(frozen=True)
class SavedModel:
    """A network in a store.

    Args:
        content: The bytes of its safetensors file.
        trial: The trial that trained it.
        inputs: The network's inputs and classes.
        backbone: The hash of the weights of the backbone that computed the network's input features. It is empty if the
            network takes no features.
    """

    content: bytes
    trial: Trial
    inputs: Inputs
    backbone: str = ""

    @classmethod
    def of(cls, content: bytes) -> SavedModel:
        """Return the network that a safetensors file holds. This does not import torch.

        Raises:
            ValueError: if the bytes are not such a file, or the file is not a trial's network.

        Example:
            >>> SavedModel.of(b"weights")
            Traceback (most recent call last):
            ValueError: not the network of a trial
        """
        try:
            (length,) = _LENGTH.unpack_from(content)
            metadata = parse_json(content[_LENGTH.size : _LENGTH.size + length])["__metadata__"]
            parse_json(metadata["trial"])  # raises for JSON that is too long or too deep
            return cls(
                content,
                Trial.from_json(metadata["trial"]),
                Inputs.from_data(parse_json(metadata["inputs"])),
                metadata.get("backbone", ""),
            )
        except (struct.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError("not the network of a trial") from error


def save_model(store: Store, trial: Trial, model: nn.Module, inputs: Inputs, backbone: str = "") -> str:
    """Write a network as a safetensors file, with the JSON of trial and inputs in the file's metadata.

    Equal tensors give equal bytes, on any device.

    Args:
        store: The study's folder.
        trial: The confirmed trial.
        model: Its network.
        inputs: The network's inputs and classes.
        backbone: The hash of the weights of its features' backbone; empty if it takes no features.

    Returns:
        The file's SHA-256.

    Raises:
        StoreError: if the store cannot be written.
    """
    from safetensors.torch import save  # noqa: PLC0415 - imports torch, which only networks need

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    metadata = {"trial": trial.to_json(), "inputs": canonical_json(inputs)}
    metadata |= {"backbone": backbone} if backbone else {}
    return write_artifact(store, "network", trial.key, _ordered(save(tensors, metadata=metadata)))


def _ordered(content: bytes) -> bytes:
    """Return a safetensors file with its metadata in sorted order; the library's order varies."""
    (length,) = _LENGTH.unpack_from(content)
    start = _LENGTH.size + length
    header = json.loads(content[_LENGTH.size : start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH.size)  # the tensors begin at a multiple of eight bytes
    return _LENGTH.pack(len(text)) + text + content[start:]


def read_model(store: Store, row: Row) -> SavedModel | None:
    """Return a trial's network; None if the store has none.

    Args:
        store: The study's folder.
        row: The trial's row of the ledger.

    Raises:
        DamagedError: if its bytes are not those that were recorded, or not a trial's network.
        StoreError: if it cannot be read.
    """
    return read_parsed(store, "network", row, SavedModel.of)
