"""Checks of arguments: each raises a ``ValueError`` that names the argument, the rule and the value."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "check_counts",
    "check_dimension",
    "check_exponent",
    "check_k",
    "check_labels",
    "check_losses",
    "check_margin",
    "check_margins",
    "check_noise",
    "check_not_negative",
    "check_one_of",
    "check_per_class",
    "check_positive",
    "check_reduction",
    "check_samples",
    "check_scores",
    "check_soft",
    "check_soft_topk",
    "check_target",
    "check_topk",
    "has_values",
    "values_are_readable",
]

SOFT_SHAPES = ("logistic", "laplace", "gaussian", "clip", "power", "midpoint")
MAY_BE_0 = ("clip", "power")
FINITE = (-sys.float_info.max, sys.float_info.max)
REDUCTIONS = ("mean", "sum", "none")
FEW_LABELS = 16
PLAIN = (Tensor, torch.nn.Parameter)  # not fake, sparse, or distributed over processes


def has_values(tensor: Tensor) -> bool:
    """Whether a tensor has values at all: those on ``meta`` and fake tensors have a shape alone."""
    return not tensor.is_meta and type(tensor) in PLAIN


def values_are_readable(tensor: Tensor) -> bool:
    """Whether reading a tensor's values is cheap: in eager mode, on the CPU, outside ``torch.func``.

    Anywhere else, reading them would wait for the device, break the graph of ``torch.compile`` or fail under ``vmap``.
    """
    return (
        tensor.is_cpu
        and not torch.compiler.is_compiling()
        and type(tensor) in PLAIN
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def all_within(values: Tensor, least: float, most: float) -> bool:
    """Whether values can be read and are all in ``[least, most]``; False if one is NaN, or if there are none."""
    if not values_are_readable(values) or values.numel() == 0:
        return False
    if values.ndim == 0:
        return least <= values.item() <= most
    if most == math.inf:  # one bound takes less time than both
        return bool(values.detach().min().item() >= least)
    lowest, highest = bounds_of(values)
    return least <= lowest and highest <= most


def bounds_of(values: Tensor) -> tuple[float, float]:
    """The least and the largest of some values; NaN if one is NaN."""
    least, most = torch.aminmax(values.detach() if values.requires_grad else values)
    return least.item(), most.item()


def check_scores(scores: Tensor, name: str = "scores", dimensions: int = 2) -> None:
    """Check that scores are floating-point and have at least ``dimensions`` dimensions."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"{name} must be a floating-point tensor, got {kind}")
    if scores.ndim < dimensions:
        shape = "(N, L) or (N, L, ...)" if dimensions == 2 else "(..., L)"
        raise ValueError(f"{name} must have the shape {shape}, got {tuple(scores.shape)}")


def check_losses(losses: Tensor, rows: Tensor, labels: Tensor) -> None:
    """Check that a loss of rows returned one loss for each row and label, which broadcasting would hide."""
    if not isinstance(losses, Tensor) or losses.shape != labels.shape:
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"rows must return losses of the labels' shape {tuple(labels.shape)} for scores of shape "
            f"{tuple(rows.shape)}, got {got}"
        )


def check_k(k: int, upper: int | None = None, rule: str = "the number of classes less one") -> None:
    """Check a whole number in ``[1, upper]``, or of at least 1 while the number of classes is unknown (None)."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise ValueError(f"k must be an int, got {k!r}")
    if k < 1 or (upper is not None and k > upper):
        span = "at least 1" if upper is None else f"in [1, {upper}], where {upper} is {rule}"
        raise ValueError(f"k must be {span}, got {k}")


def check_topk(scores: Tensor, k: int, margin: float | Tensor = 0.0) -> None:
    """Check the scores, K and margin of a top-K loss."""
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    check_margin(margin, scores.shape[1])


def check_samples(samples: int | None) -> None:
    """Check a positive whole number, or None for the exact expectation."""
    if samples is not None:
        check_dimension("samples", samples, " or None")


def _check_number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Check a finite number above 0."""
    _check_number(name, value)
    if value <= 0:
        raise ValueError(f"{name} must be above 0, got {value}")


def check_not_negative(name: str, value: float) -> None:
    """Check a finite number of at least 0."""
    _check_number(name, value)
    if value < 0:
        raise ValueError(f"{name} must be at least 0, got {value}")


def check_exponent(name: str, value: float) -> None:
    """Check a finite number above 0 and at most 1."""
    check_positive(name, value)
    if value > 1:
        raise ValueError(f"{name} must be at most 1, got {value}")


def check_share(name: str, value: float) -> None:
    """Check a number of at least 0 and below 1."""
    check_not_negative(name, value)
    if value >= 1:
        raise ValueError(f"{name} must be below 1, got {value}")


def check_dimension(name: str, value: int, others: str = "") -> None:
    """Check a whole number of at least 1; ``others`` names other values that are allowed."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an int of at least 1{others}, got {value!r}")


def check_reduction(reduction: str) -> None:
    """Check that the reduction is ``"mean"``, ``"sum"`` or ``"none"``."""
    check_one_of("reduction", reduction, REDUCTIONS)


def check_one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a value is one of several names."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_soft_topk(shape: str, form: str = "error") -> None:
    """Check a shape of the soft top-K, and that the loss exists in this form for it."""
    check_one_of("shape", shape, SOFT_SHAPES)
    check_one_of("form", form, ("log", "error"))
    if form == "log" and shape in MAY_BE_0:
        raise ValueError(f"form must be 'error' for shape {shape!r}, whose memberships may be 0, got 'log'")


def check_per_class(name: str, values: Tensor, classes: int | None = None) -> None:
    """Check a tensor with one real value per class; ``classes`` is None while their number is unknown."""
    if (
        not isinstance(values, Tensor)
        or values.ndim != 1
        or values.is_complex()
        or values.dtype == torch.bool
    ):
        kind = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else repr(values)
        raise ValueError(f"{name} must be a tensor of real numbers of shape (L,), got {kind}")
    if classes is not None and values.shape[0] != classes:
        raise ValueError(
            f"{name} must have one value for each of the {classes} classes, got {values.shape[0]}"
        )


def check_margin(margin: float | Tensor, classes: int | None = None, name: str = "margin") -> None:
    """Check a finite number, or one value per class."""
    if isinstance(margin, Tensor):
        check_per_class(name, margin, classes)
    else:
        _check_number(name, margin)


def check_margins(margins: Tensor, classes: int | None = None) -> None:
    """Check one floating-point margin per class; integers are most likely class counts passed by mistake."""
    check_per_class("margins", margins, classes)
    if not margins.is_floating_point():
        raise ValueError(
            f"margins must be floating-point numbers, one per class, got {margins.dtype}; to get margins from class "
            "counts, call uneven_margins(class_counts, max_margin), or the from_counts method of the module"
        )


def check_noise(noise: Tensor, shape: torch.Size) -> None:
    """Check noise of shape ``(B, *shape)``."""
    check_scores(noise, "noise", dimensions=1)
    if noise.ndim != len(shape) + 1 or noise.shape[1:] != shape or not noise.shape[0]:
        raise ValueError(
            f"noise must have the shape (B, {', '.join(map(str, shape))}), got {tuple(noise.shape)}"
        )


def check_counts(class_counts: Tensor, classes: int | None = None, *, look: bool = False) -> None:
    """Check one count above 0 per class; with ``look`` the values are read on every device.

    A count of 0 has no logarithm and no margin, and would silently make the values of all classes useless.
    """
    check_per_class("class_counts", class_counts, classes)
    readable = values_are_readable(class_counts) or (look and has_values(class_counts))
    if not readable or not class_counts.numel():
        return
    whole = not class_counts.is_floating_point()  # then 0 is the only bound
    least, most = (class_counts.min().item(), 0) if whole else bounds_of(class_counts)
    if not (least > 0 and most < math.inf):
        wrong = class_counts[~((class_counts > 0) & torch.isfinite(class_counts))]
        raise ValueError(f"class_counts must be above 0 for every class, got {wrong[0].item()}")


def check_labels(target: Tensor, shape: torch.Size, classes: int, ignore_index: int | None) -> bool:
    """Check labels of shape ``(N, ...)`` in ``[0, classes)``; those equal to ``ignore_index`` are allowed.

    Returns:
        Whether it is known that no label is ignored, which saves the work of handling ignored labels.
    """
    if target.dtype == torch.bool or target.is_complex():
        raise ValueError(
            f"target must hold integer labels or floating-point probabilities, got {target.dtype}"
        )
    expected = shape[:1] if len(shape) == 2 else shape[:1] + shape[2:]
    if target.shape != expected:
        raise ValueError(
            f"target must have the shape {tuple(expected)} for scores of shape {tuple(shape)}, "
            f"got {tuple(target.shape)}"
        )
    if not (values_are_readable(target) and target.numel()):
        return False
    if target.dtype != torch.int64:  # torch has no bounds of uint16, and takes -1 for 255 beside uint8
        target = target.to(torch.int64)
    few = target.ndim == 1 and len(target) <= FEW_LABELS  # a list takes a third of the time
    values = target.tolist() if few else bounds_of(target)
    least, most = min(values), max(values)
    if least < 0 or most >= classes:
        _check_out_of_range(target, classes, ignore_index)
    return ignore_index is None or not least <= ignore_index <= most


def check_target(target: Tensor) -> None:
    """Check that a target is a tensor."""
    if not isinstance(target, Tensor):
        raise ValueError(f"target must be a tensor, got {type(target).__name__}")


def check_soft(scores: Tensor, target: Tensor, ignore_index: int | None, taken: bool) -> None:
    """Check probabilities of the scores' shape, for a loss that takes them."""
    if not taken:
        raise ValueError(
            f"target must hold integer labels, since this loss takes no soft targets; got {target.dtype}"
        )
    if target.shape != scores.shape:
        raise ValueError(
            f"target must have the shape {tuple(scores.shape)} of the scores when it holds probabilities, "
            f"got {tuple(target.shape)}"
        )
    if ignore_index is not None and ignore_index >= 0:
        raise ValueError(f"ignore_index must be negative (unused) with soft targets, got {ignore_index}")


def _check_out_of_range(target: Tensor, classes: int, ignore_index: int | None) -> None:
    outside = (target < 0) | (target >= classes)
    wrong = target[outside if ignore_index is None else outside & (target != ignore_index)]
    if wrong.numel():
        from_one = bool((wrong == classes).all() and (target != 0).all())
        hint = "; if classes are numbered from 1 on, take target - 1" if from_one else ""
        ignored = "" if ignore_index is None else f" or equal ignore_index = {ignore_index}"
        raise ValueError(f"target must be in [0, {classes - 1}]{ignored}, got {wrong[0].item()}{hint}")
