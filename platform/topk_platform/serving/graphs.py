"""The graphs of a study's networks, for MLflow's logged models."""

from __future__ import annotations

from functools import partial

from topk_platform.records import Row, Store
from topk_platform.results.from_store import read
from topk_platform.serving.exporting import best_of
from topk_platform.specs import Study
from topk_platform.tracking import Graph, Graphs
from topk_platform.trust import Trust

__all__ = ["study_graphs"]


def study_graphs(study: Study, store: str) -> Graphs:
    """Return the functions that make the graph of each arm's best network, by trial key.

    The best network is the one that ``topk export`` writes by default. An arm without a completed confirmation has
    none.

    Args:
        study: The study.
        store: Folder or URI of the results.
    """
    held = read(study, store)
    best = (best_of(arm.history, arm.confirmations()) for arm in held.results.values())
    trust = Trust.of_study(study)
    return {row["key"]: partial(_graph, held.ledger.store, row, trust) for row in best if row is not None}


def _graph(store: Store, row: Row, trust: Trust) -> Graph:
    from topk_platform.serving.pt2 import graph_of_row  # noqa: PLC0415 - torch, which a study without networks does not need

    return graph_of_row(store, row, trust)
