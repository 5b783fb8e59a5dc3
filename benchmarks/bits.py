"""Whether two versions of the losses give the same bits: a file of hashes from one, compared with it on the other.

    git stash; python benchmarks/bits.py write bits.json; git stash pop; python benchmarks/bits.py compare bits.json

Every loss and operator, value and gradient, for each backend that is installed: few and many classes, close and
spread scores, float64, float32 and half precision, masks, margins, weights, ignored labels and soft targets. Hashes
hold on one kind of processor and for one version of each package. Run each version once before: a process that compiles
kernels may give other last digits than later ones (``topk_losses/_expected/cpu.py``).
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

import topk_losses
from topk_losses import functional

HARD_ALONE = ("smooth_topk_svm", "early_learning")
SIZES = {"torch": (5, 20, 100, 1000), "numba": (5, 20, 100, 1000), "triton": (5, 150)}
ROWS = {"torch": 33, "numba": 33, "triton": 3}
SPREADS = (0.3, 3.0, 40.0)
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "focal": ({}, {"gamma": 0.5}),
    "generalized_cross_entropy": ({}, {"gamma": 0.1}),
    "active_passive_loss": ({}, {"passive": "nnce"}),
    "asymmetric_loss": ({}, {"form": "aul", "a": 5.5, "q": 3.0, "alpha": 1.0}, {"form": "ael", "a": 2.5}),
    "logit_adjusted": ({"tau": 0.5},),
    "smooth_topk_hinge": ({}, {"gamma": 0.1}),
    "smooth_topk_svm": ({}, {"tau": 0.05}),
    "noised_topk_hinge": ({}, {"epsilon": 2.0, "samples": 40}, {"samples": None}, {"epsilon": 0.0}),
    "noised_imbalanced_topk_hinge": ({}, {"samples": None}),
    "topk_transition": ({}, {"detach_weight": True}),
    "autkc": tuple({"surrogate": one} for one in ("squared", "exponential", "logistic", "hinge")),
    "soft_topk_loss": (
        *({"shape": shape} for shape in ("logistic", "gaussian", "midpoint")),
        *({"shape": shape, "form": "error"} for shape in ("logistic", "laplace", "clip", "power")),
        {"tau": 0.1},
    ),
    "sorting_topk_cross_entropy": ({}, {"relaxation": "logistic", "candidates": 32}),
}
OPERATORS: dict[str, tuple[dict[str, Any], ...]] = {
    "expected_topk": ({"epsilon": 1.0}, {"epsilon": 0.1}),
    "inclusion_probabilities": ({}, {"temperature": 0.3}),
    "lapsum_topk": ({}, {"temperature": 0.3}),
    "log_elementary_symmetric": ({},),
    "soft_topk": tuple({"shape": shape} for shape in ("logistic", "gaussian", "clip", "power", "midpoint")),
    "noised_topk": ({"epsilon": 1.0, "samples": 7},),
}


def _takes(name: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(functional, name)).parameters)


LOSSES = {
    name: SETTINGS.get(name, ({},))
    for name in functional.__all__
    if _takes(name)[:2] == ("scores", "target") and "reduction" in _takes(name)
}


Name = Literal["torch", "numba", "triton"]


def using(backend: Name) -> AbstractContextManager[None]:
    """The losses in one backend alone; Numba's kernels where they are chosen by themselves."""
    return topk_losses.use_backend("auto" if backend == "numba" else backend)


def backends() -> list[Name]:
    """Those that can run here: Triton's kernels need a GPU, or its interpreter in a process of its own."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return ["triton"]
    return ["torch"] if topk_losses.backend("cpu") == "torch" else ["torch", "numba"]


def inputs(classes: int, rows: int, spread: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scores ``(rows, classes)``, of which some are equal and some masked, and labels."""
    source = torch.Generator().manual_seed(classes + rows)
    scores = spread * torch.randn(rows, classes, generator=source, dtype=torch.float64)
    scores[0] = 0.5
    scores[1] = scores[1].round()
    scores[2, 1::3] = -torch.inf
    return scores.to(dtype), torch.randint(classes, (rows,), generator=source) // 3 * 3 % classes


def parameters(name: str, classes: int, k: int) -> dict[str, Any]:
    """What a loss takes beside its scores, labels and own parameters."""
    source = torch.Generator().manual_seed(classes)
    takes = _takes(name)
    given: dict[str, Any] = {"k": k} if "k" in takes else {}
    if "class_counts" in takes:
        given["class_counts"] = torch.randint(1, 1000, (classes,), generator=source)
    if "margins" in takes:
        given["margins"] = torch.rand(classes, generator=source)
    return given


def cases(backend: str) -> Iterator[tuple[str, Callable[[Tensor], Tensor], Tensor]]:
    """Each case's name, its function, and the scores that it is of."""
    for classes, spread, dtype in itertools.product(SIZES[backend], SPREADS, DTYPES):
        scores, labels = inputs(classes, ROWS[backend], spread, dtype)
        for k in sorted({k for k in (1, 5, 17) if k < classes - 1}):
            at = f"{classes}/{spread}/{dtype}/{k}"
            for name, own in _each(LOSSES):
                if k == 1 or "k" in _takes(name):
                    yield from _of_loss(name, own, scores, labels, k, at)
            for name, own in _each(OPERATORS):
                yield f"{name} {own} {at}", _operator(name, own, k), scores


def _each(table: dict[str, tuple[dict[str, Any], ...]]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, own) for name, settings in table.items() for own in settings)


def _of_loss(
    name: str, own: dict[str, Any], scores: Tensor, labels: Tensor, k: int, at: str
) -> Iterator[tuple[str, Callable[[Tensor], Tensor], Tensor]]:
    classes = scores.shape[1]
    if own.get("candidates", 16) <= k:
        return
    given = parameters(name, classes, k) | own
    if "memory" in _takes(name):
        given["memory"] = torch.rand(scores.shape, generator=torch.Generator().manual_seed(classes)) / classes
    weight = torch.linspace(0.5, 2, classes)
    ignored = labels.clone()
    ignored[3:5] = -100
    shared: dict[str, tuple[Tensor, dict[str, Any]]] = {
        "each": (labels, {"reduction": "none"}),
        "mean": (labels, {}),
        "weighted": (ignored, {"weight": weight}),
        "sum": (ignored, {"reduction": "sum"}),
    }
    if name not in HARD_ALONE and classes <= 20:
        shared["soft"] = (scores.float().nan_to_num(neginf=-1e9).softmax(1), {"reduction": "none"})
    if name.endswith("hinge") and "margins" not in given:
        shared["margin"] = (labels, {"margin": torch.linspace(0.1, 1, classes)})
    for way, (target, options) in shared.items():
        yield f"{name} {own} {at} {way}", _loss(name, target, given | options), scores


def _loss(name: str, target: Tensor, given: dict[str, Any]) -> Callable[[Tensor], Tensor]:
    def value(scores: Tensor) -> Tensor:
        drawing = {"generator": torch.Generator().manual_seed(3)} if "generator" in _takes(name) else {}
        result: Tensor = getattr(functional, name)(scores, target, **given, **drawing)
        return result

    return value


def _operator(name: str, own: dict[str, Any], k: int) -> Callable[[Tensor], Tensor]:
    def value(scores: Tensor) -> Tensor:
        drawing = {"generator": torch.Generator().manual_seed(3)} if name == "noised_topk" else {}
        result: Tensor = getattr(functional, name)(scores, k, **own, **drawing)
        return result

    return value


def bits(function: Callable[[Tensor], Tensor], scores: Tensor) -> str:
    """A hash of a value and of a gradient that differs from row to row."""
    leaf = scores.clone().requires_grad_()
    value = function(leaf)
    along = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    (gradient,) = torch.autograd.grad((value * along).nan_to_num(0, 0, 0).sum(), leaf, allow_unused=True)
    state = hashlib.sha256()
    for tensor in (value.detach(), gradient):
        if tensor is not None:
            state.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()[:16]


def table() -> dict[str, str]:
    """Each case's hash."""
    torch.set_num_threads(1)
    result: dict[str, str] = {}
    for backend in backends():
        with using(backend):
            for name, function, scores in cases(backend):
                result[f"{backend}: {name}"] = bits(function, scores)
    return result


def main() -> int:
    """Write the hashes, or compare with those written; 1 if some differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    result = table()
    if chosen.action == "write":
        chosen.file.write_text(json.dumps(result, indent=0))
        print(f"{len(result)} hashes in {chosen.file}")
        return 0
    before = json.loads(chosen.file.read_text())
    differing = [name for name, value in result.items() if before.get(name) != value]
    kinds = Counter(f"{name.split('/')[0]} {name.split()[-1]}" for name in differing)
    print(*(f"{count} differ: {kind}" for kind, count in kinds.items()), sep="\n")
    print(f"{len(result) - len(differing)} of {len(result)} are the same; {len(before)} were written")
    return 1 if differing or len(before) != len(result) else 0


if __name__ == "__main__":
    sys.exit(main())
