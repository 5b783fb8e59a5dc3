"""The networks of confirmed runs, as safetensors with their configuration, in the store under the trial's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.records.store import Store
from topk_platform.specs import Trial

if TYPE_CHECKING:
    from torch import nn

__all__ = ["model_name", "save_model"]


def model_name(key: str) -> str:
    """Return the name, inside a study's folder, of a trial's network."""
    return f"models/{key}.safetensors"


def save_model(store: Store, trial: Trial, model: nn.Module) -> None:
    """Write a network's tensors, on the CPU, with the trial's JSON in the file's metadata."""
    from safetensors.torch import save  # noqa: PLC0415 - torch, which only who has a network needs

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    store.write(model_name(trial.key), save(tensors, metadata={"trial": trial.to_json()}))
