"""The accuracies of networks that choose the number of candidates, by mean cardinality, as a Parquet table."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import pyarrow as pa
import pyarrow.parquet as pq

from topk_platform.errors import StoreError, reason
from topk_platform.records import Store
from topk_platform.records.table.mark import command_of

__all__ = ["TABLE", "CardinalityPoint", "read_points", "write_points"]

TABLE = "tables/cardinality.parquet"
"""The table's file in the study's folder."""


@dataclass(frozen=True)
class CardinalityPoint:
    """One confirmed network's accuracy with sets of one kind.

    Args:
        arm: The arm's name, ``regime/model/loss``.
        key: The key of the confirmation.
        seed: Its seed.
        kind: ``"fixed"``: each image gets the same number of candidates; ``"selected"``: a selector chooses it.
        value: The size of fixed sets, or the penalty λ of selected sets.
        growth: How the cost of a set grows with its size, ``"log"`` or ``"linear"``; empty for fixed sets.
        cardinality: The mean number of candidates of a test image.
        accuracy: The share of test images whose candidates include the true class.
        trained: The number of samples that the selector was trained on; 0 for fixed sets.
        tested: The number of test images.
    """

    arm: str
    key: str
    seed: int
    kind: str
    value: float
    growth: str
    cardinality: float
    accuracy: float
    trained: int
    tested: int


def write_points(store: Store, points: Iterable[CardinalityPoint]) -> None:
    """Write points into the table of a study; they replace the points of the same arms.

    Args:
        store: The study's folder.
        points: The points.
    """
    points = list(points)
    arms = {point.arm for point in points}
    kept = [point for point in read_points(store) if point.arm not in arms]
    rows = sorted((asdict(point) for point in kept + points), key=lambda row: tuple(map(str, row.values())))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="zstd")
    store.write(TABLE, sink.getvalue())


def read_points(store: Store) -> list[CardinalityPoint]:
    """Return the points in the table of a study; none if it has no such table.

    Args:
        store: The study's folder.

    Raises:
        StoreError: if the table is damaged.
    """
    try:
        content = store.read(TABLE)
    except FileNotFoundError:
        return []
    names = [field.name for field in fields(CardinalityPoint)]
    try:
        rows = pq.read_table(io.BytesIO(content), columns=names).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{TABLE} is damaged: {reason(error)}; `{command_of(store, 'cardinality')}` writes it again"
        ) from error
    return [CardinalityPoint(**row) for row in rows]
