"""The networks of confirmed runs, and the checkpoints of trials that have not ended, in the store."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import struct
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_platform.errors import StoreError
from topk_platform.records.files import read_parsed, write_artifact
from topk_platform.records.per_image import save_guesses, save_ranks
from topk_platform.records.rows import Row
from topk_platform.records.storage.store import MARK, PAUSES, Store
from topk_platform.specs import Inputs, Regime, Trial, canonical_json
from topk_platform.trust import parse_json

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["SavedModel", "StoreKeeper", "forget", "read_model", "save_model"]

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

    Raises:
        DamagedError: if its bytes are not those that were recorded, or not a trial's network.
        StoreError: if it cannot be read.
    """
    return read_parsed(store, "network", row, SavedModel.of)


_FOLDER = "checkpoints"
_SUFFIX = ".ckpt"
_KEPT = 2  # the last one, and the one before it in case the last is damaged
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class StoreKeeper:
    """Keeps the checkpoints of running trials, and the networks, ranks and guesses of confirmed ones.

    A checkpoint begins with the SHA-256 of the rest, which ``torch.save`` wrote. It is read with ``weights_only=True``.

    Args:
        store: The study's folder.
        seconds: The least time between two checkpoints of a trial.
        pauses: Seconds between tries to write a confirmation's files, if the store refuses.
        recorded: The keys of trials that already have a record, such as some members of an ensemble. Their files stay
            as they are, because their records have the SHA-256 of these files.
        backbone: Returns the hash of the weights of the backbone that computes a regime's features, which is stored
            with a network; empty for a regime without features.
    """

    store: Store
    seconds: float = 30.0
    pauses: Sequence[float] = PAUSES
    recorded: frozenset[str] = frozenset()
    backbone: Callable[[Regime], str] = lambda _regime: ""

    def check_seen(self) -> None:
        """Raise ``StoreError`` unless this machine sees the study's folder, which all machines must share."""
        if not self.store.exists(MARK):
            raise StoreError(
                f"store {self.store.uri!r} holds no {MARK}: is it a folder that not all machines share?"
            )

    def load(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        """Return the newest intact checkpoint; damaged ones are skipped with a warning."""
        folder = _folder(trials)
        for name in reversed(self.store.names(folder, _SUFFIX)):
            try:
                return _unpack(self.store.read(f"{folder}/{name}"))
            except (ValueError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
                warnings.warn(
                    f"checkpoint {folder}/{name} of trial {trials[0].key} cannot be used and is skipped: {error}",
                    stacklevel=2,
                )
        return None

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        """Write the checkpoint of a step and delete those that are no longer needed.

        If the store cannot be written, the trial goes on with a warning.
        """
        folder = _folder(trials)
        try:
            self.store.write(f"{folder}/{step:012d}{_SUFFIX}", _pack(state))
            self.store.delete(*(f"{folder}/{name}" for name in self.store.names(folder, _SUFFIX)[:-_KEPT]))
        except (StoreError, OSError) as error:
            warnings.warn(f"no checkpoint of trial {trials[0].key} after step {step}: {error}", stacklevel=2)

    def save_model(self, trial: Trial, model: nn.Module, inputs: Inputs) -> str:
        """Write a network as safetensors; return the file's SHA-256, or an empty text if the trial has a record."""
        if trial.key in self.recorded:
            return ""
        return save_model(self.store, trial, model, inputs, self.backbone(trial.arm.regime))

    def save_ranks(
        self, trial: Trial, ranks: Tensor, images: str, cluster: Tensor | None = None, clusters: str = ""
    ) -> str:
        """Write a trial's ranks as Parquet; return the file's SHA-256, or an empty text if the trial has a record."""
        recorded = trial.key in self.recorded
        return "" if recorded else save_ranks(self.store, trial, ranks, images, cluster, clusters)

    def save_guesses(self, trial: Trial, guesses: Tensor, images: str) -> str:
        """Write a trial's guesses as Parquet; return the file's SHA-256, or an empty text if the trial has a record."""
        return "" if trial.key in self.recorded else save_guesses(self.store, trial, guesses, images)


def forget(store: Store, keys: Iterable[str] | None = None) -> None:
    """Delete the checkpoints of the trials with these keys, which have ended; by default all checkpoints."""
    ended = None if keys is None else set(keys)
    if ended == set():
        return
    for key in store.folders(_FOLDER):
        if ended is None or key in ended:
            store.delete_folder(f"{_FOLDER}/{key}")


def _folder(trials: Sequence[Trial]) -> str:
    return f"{_FOLDER}/{trials[0].key}"  # the first member of an ensemble: its key stands for the others


def _pack(state: dict[str, Any]) -> bytes:
    import torch  # noqa: PLC0415 - takes a second to import, and readers of the ledger do not need it

    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    return hashlib.sha256(data).digest() + data


def _unpack(data: bytes) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - as above

    digest, rest = data[:_DIGEST], data[_DIGEST:]
    if hashlib.sha256(rest).digest() != digest:
        raise ValueError("its bytes are not those that were written")
    state: dict[str, Any] = torch.load(io.BytesIO(rest), map_location="cpu", weights_only=True)
    return state
