"""The rank of the true class of every test image, per confirmed run: every k, group and comparison comes from it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.records.store import Store
from topk_platform.specs import Trial

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Ranks", "ranks_name", "read_ranks", "save_ranks"]

Ranks = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Of each test image, in the split's order: how many classes score above the true one, how many others equal it."""


def ranks_name(key: str) -> str:
    """Return the name, inside a study's folder, of a trial's ranks."""
    return f"ranks/{key}.parquet"


def save_ranks(store: Store, trial: Trial, greater: Tensor, tied: Tensor) -> None:
    """Write a trial's ranks: two bytes an image, four where there are more classes; ties, which are rare, take none."""
    columns = {"greater": _column(greater), "tied": _column(tied)}
    table = pa.table(columns).replace_schema_metadata({"trial": trial.to_json()})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    store.write(ranks_name(trial.key), buffer.getvalue())


def _column(values: Tensor) -> pa.Array:
    found = values.numpy()
    return pa.array(found, pa.uint16() if found.max(initial=0) < 2**16 else pa.uint32())


def read_ranks(store: Store, key: str) -> Ranks | None:
    """Return a trial's ranks, None where none were kept.

    With g classes above the true one and t others equal to it, the image's top-k accuracy under random tie-breaking
    is ``clip((k - g) / (t + 1), 0, 1)``.

    Args:
        store: The study's folder.
        key: The trial's.
    """
    try:
        table = pq.ParquetFile(io.BytesIO(store.read(ranks_name(key)))).read()
    except FileNotFoundError:
        return None
    greater, tied = (table[name].to_numpy().astype(np.int64) for name in ("greater", "tied"))
    return greater, tied
