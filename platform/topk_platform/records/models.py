"""The networks of confirmed runs, as safetensors with their configuration, in the store under the trial's key."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_platform.elsewhere import parse_json
from topk_platform.errors import StoreError
from topk_platform.records.store import Store
from topk_platform.specs import Inputs, Trial, canonical_json

if TYPE_CHECKING:
    from torch import nn

__all__ = ["SavedModel", "model_name", "read_model", "save_model"]

_LENGTH = struct.Struct("<Q")  # of a safetensors file's header, which is JSON


@dataclass(frozen=True)
class SavedModel:
    """A network in a store.

    Args:
        content: The bytes of its safetensors file.
        trial: The trial that it is the network of.
        inputs: The network's inputs and classes.
    """

    content: bytes
    trial: Trial
    inputs: Inputs

    @classmethod
    def of(cls, content: bytes) -> SavedModel:
        """Return the network that a safetensors file holds; torch is not needed.

        Raises:
            ValueError: if it is no such file, or not one of a trial's network.

        Example:
            >>> SavedModel.of(b"weights")
            Traceback (most recent call last):
            ValueError: not the network of a trial
        """
        try:
            (length,) = _LENGTH.unpack_from(content)
            told = parse_json(content[_LENGTH.size : _LENGTH.size + length])["__metadata__"]
            parse_json(told["trial"])  # within limits
            return cls(content, Trial.from_json(told["trial"]), Inputs.from_data(parse_json(told["inputs"])))
        except (struct.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError("not the network of a trial") from error


def model_name(key: str) -> str:
    """Return the name, inside a study's folder, of a trial's network."""
    return f"models/{key}.safetensors"


def save_model(store: Store, trial: Trial, model: nn.Module, inputs: Inputs) -> None:
    """Write a network's tensors, on the CPU, with the JSON of trial and inputs in the file's metadata.

    Args:
        store: The study's folder.
        trial: The confirmed trial.
        model: Its network.
        inputs: What the network takes.
    """
    from safetensors.torch import save  # noqa: PLC0415 - torch, which only who has a network needs

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    told = {"trial": trial.to_json(), "inputs": canonical_json(inputs)}
    store.write(model_name(trial.key), save(tensors, metadata=told))


def read_model(store: Store, key: str) -> SavedModel | None:
    """Return a trial's network, None where none was kept.

    Args:
        store: The study's folder.
        key: The trial's key.

    Raises:
        StoreError: if it cannot be read, or what is there is something else.
    """
    try:
        return SavedModel.of(store.read(model_name(key)))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"store {store.uri!r}: {model_name(key)} is {error}") from error
