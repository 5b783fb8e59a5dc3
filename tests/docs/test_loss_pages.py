"""The losses' pages and their table say what the code says: names, parameters, ranges, gradients, pictures."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import loss_pictures
import topk_losses
from topk_losses import functional
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.specs import Float
from topk_platform.training.loss_table import LOSSES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "losses"
ALIASES = {"BalancedSoftmax", "LapSumTopKLoss", "MeanAbsoluteError"}
"""Special cases, which stand on the pages of what they equal."""
MODULES = sorted(
    name
    for name, member in vars(topk_losses).items()
    if inspect.isclass(member)
    and name not in ALIASES
    and (
        (issubclass(member, topk_losses.Loss) and member is not topk_losses.Loss)
        or name == "ConformalTraining"
    )
)
K = 2


def table() -> dict[str, list[str]]:
    """The cells of the table of all losses by class: page, parameters, soft targets, cost, consistency."""
    text = (FOLDER / "index.md").read_text()
    cells = [re.split(r" \| ", line.strip("| ")) for line in text.splitlines() if line.startswith("| [")]
    return {cell[1].strip("`").partition("(")[0]: cell for cell in cells}


def test_the_table_has_every_loss_and_each_its_page() -> None:
    assert sorted(table()) == MODULES
    pages = {re.findall(r"\((\w+)\.md\)", cell[0])[0] for cell in table().values()}
    files = {page.stem for page in FOLDER.glob("*.md")} - {"index"}
    assert pages == set(LOSSES) - {"balanced_softmax"} == files


def test_a_loss_is_called_in_tables_what_its_page_calls_it() -> None:
    assert set(LOSS_CATALOGUE) == set(LOSSES)
    headings = {
        name: (FOLDER / f"{name}.md").read_text().partition("\n")[0]
        for name in set(LOSSES) - {"balanced_softmax"}
    }
    assert headings == {name: f"# {LOSS_CATALOGUE[name].title}" for name in headings}


def values_table(name: str) -> dict[str, list[str]]:
    """The rows of a page's table of values by parameter: allowed, first, searched."""
    text = (FOLDER / f"{name}.md").read_text().partition("## Values")[2].partition("##")[0]
    return {row[0].strip("`"): row[1:] for row in map(cells_of, text.splitlines()) if row[0].startswith("`")}


def cells_of(line: str) -> list[str]:
    return re.split(r" \| ", line.strip("| "))


@pytest.mark.parametrize("name", [name for name, entry in LOSS_CATALOGUE.items() if entry.searched])
def test_a_page_has_the_ranges_of_the_catalogue_and_the_code_its_first_values(name: str) -> None:
    takes = inspect.signature(LOSSES[name]).parameters
    for parameter, (dimension, first) in LOSS_CATALOGUE[name].searched.items():
        assert takes[parameter].default == first
        assert dimension.holds(first)
        if isinstance(dimension, Float):
            scale = ", logarithmic" if dimension.log else ""
            assert values_table(name)[parameter][2] == f"{dimension.low:g} to {dimension.high:g}{scale}"


@pytest.mark.parametrize("name", MODULES)
def test_the_table_has_the_parameters_and_soft_targets_of_the_code(name: str) -> None:
    module = getattr(topk_losses, name)
    takes = list(inspect.signature(module.__init__).parameters.values())[1:]
    own = [taken for taken in takes if taken.kind is taken.POSITIONAL_OR_KEYWORD]
    parameters = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in own]
    assert table()[name][1] == f"`{name}({', '.join(parameters)})`".replace("'", '"')
    assert table()[name][2] == ("yes" if module.soft_targets else "no")


def onehot(scores: Tensor, index: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(index), len(scores)).to(scores)


def subsets(scores: Tensor, y: int, tau: float, size: int) -> tuple[Tensor, Tensor]:
    """σ of the other classes, and the probability of each class to be in a subset of them."""
    e = torch.exp(scores / (K * tau))
    others = [j for j in range(len(scores)) if j != y]
    none = [torch.tensor([], dtype=torch.long)]
    chosen = list(torch.combinations(torch.tensor(others), size)) if size else none
    weights = torch.stack([e[subset].prod() for subset in chosen])
    held = torch.stack([sum((onehot(scores, int(j)) for j in s), torch.zeros_like(scores)) for s in chosen])
    return weights.sum(), (weights[:, None] * held).sum(0) / weights.sum()


def smooth_svm(s: Tensor, y: int, tau: float = 0.7) -> Tensor:
    (upper, inside), (lower, below) = (subsets(s, y, tau, size) for size in (K, K - 1))
    p = torch.sigmoid((1 + tau * upper.log() - tau * lower.log() - s[y] / K) / tau)
    return p / K * (inside - below) - p / K * onehot(s, y)


def focal(s: Tensor, y: int, gamma: float = 2.0) -> Tensor:
    q = s.softmax(0)
    weight = (1 - q[y]) ** gamma - gamma * q[y] * (1 - q[y]) ** (gamma - 1) * q[y].log()
    return weight * (q - onehot(s, y))


def grouping(s: Tensor, y: int) -> Tensor:
    q, best = s.softmax(0), s.topk(K).indices
    inside = torch.zeros_like(s).index_fill(0, best, 1.0)
    return q - q / (q * inside).sum() * inside if y in best else q - onehot(s, y)


def transition(s: Tensor, y: int) -> Tensor:
    q, best = s.softmax(0), s.topk(K).indices
    inside = torch.zeros_like(s).index_fill(0, best, 1.0)
    share = (q * inside).sum()
    one, two = -q[y].log(), -share.log() if y in best else -q[y].log()
    mixed = (1 - share) * (q - onehot(s, y)) + share * grouping(s, y)
    return mixed + (two - one) * q * (inside - share)


def soft_error(s: Tensor, y: int, tau: float = 0.8) -> Tensor:
    p = functional.soft_topk(s[None], K, tau)[0]
    slope = p * (1 - p)
    return slope[y] / tau * (slope / slope.sum() - onehot(s, y))


def autkc(s: Tensor, y: int) -> Tensor:
    q = s.softmax(0)
    others = [int(j) for j in s.argsort(descending=True) if j != y][: K + 1]
    slopes = [-2 * (1 - (q[y] - q[j])) / K for j in others]
    v = sum((slope * (onehot(s, y) - onehot(s, j)) for slope, j in zip(slopes, others, strict=True)), 0 * s)
    return q * (v - (q * v).sum())


def truncated(s: Tensor, y: int) -> Tensor:
    left = [int(j) for j in s.argsort(descending=True) if j != y][K - 1 :]
    terms = torch.zeros_like(s).index_fill(0, torch.tensor(left), 1.0) * (s - s[y]).exp()
    total = 1 + terms.sum()
    return terms / total + (1 / total - 1) * onehot(s, y)


def hinge(rival_of: Callable[[Tensor, int], int]) -> Callable[[Tensor, int], Tensor]:
    def gradient(s: Tensor, y: int) -> Tensor:
        rival = rival_of(s, y)
        return (1 + s[rival] > s[y]) * (onehot(s, rival) - onehot(s, y))

    return gradient


def convex(s: Tensor, y: int) -> Tensor:
    raised = s + 1 - onehot(s, y)
    best = torch.zeros_like(s).index_fill(0, raised.topk(K).indices, 1 / K)
    return (raised.topk(K).values.mean() > s[y]) * (best - onehot(s, y))


def active_passive(s: Tensor, y: int, alpha: float = 2.0, beta: float = 0.5) -> Tensor:
    p, total = s.softmax(0), s.log_softmax(0).sum()
    first = s.log_softmax(0)[y] / total
    error = p[y] * (p - onehot(s, y))
    return alpha / total * (onehot(s, y) - p - first * (1 - len(s) * p)) - beta * math.log(1e-4) * error


def scaled(s: Tensor, y: int) -> Tensor:
    n = COUNTS.double()
    factors = (n / n.max()) ** 0.2
    q = (factors * s + 0.5 * (n / n.sum()).log()).softmax(0)
    return factors * (q - onehot(s, y))


def remembering(s: Tensor, y: int, strength: float = 0.6) -> Tensor:
    p, t = s.softmax(0), MEMORY
    return p - onehot(s, y) - strength * p * (t - p @ t) / (1 - p @ t)


def clipped(s: Tensor, y: int, limit: float = 1.0) -> Tensor:
    unit = s / s.norm()
    g = (limit * unit).softmax(0) - onehot(s, y)
    return limit / s.norm() * (g - unit * (unit @ g)) if s.norm() > limit else s.softmax(0) - onehot(s, y)


COUNTS, MARGINS = torch.tensor([1000, 300, 100, 30, 10, 3]), torch.linspace(0.1, 0.6, 6, dtype=torch.float64)
MEMORY = torch.tensor([0.5, 0.2, 0.1, 0.05, 0.05, 0.0], dtype=torch.float64)
GRADIENTS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, int], Tensor]]] = {
    "autkc": (lambda s, y: functional.autkc(s, y, K), autkc),
    "calibrated_topk_hinge": (
        lambda s, y: functional.calibrated_topk_hinge(s, y, K),
        hinge(lambda s, _: int(s.topk(K + 1).indices[-1])),
    ),
    "convex_topk_hinge": (lambda s, y: functional.convex_topk_hinge(s, y, K), convex),
    "cross_entropy": (functional.cross_entropy, lambda s, y: s.softmax(0) - onehot(s, y)),
    "focal": (lambda s, y: functional.focal(s, y, 2.0), focal),
    "generalized_cross_entropy": (
        lambda s, y: functional.generalized_cross_entropy(s, y, 0.7),
        lambda s, y: s.softmax(0)[y] ** 0.7 * (s.softmax(0) - onehot(s, y)),
    ),
    "early_learning": (lambda s, y: functional.early_learning(s, y, MEMORY[None], 0.6), remembering),
    "label_smoothing": (
        lambda s, y: functional.label_smoothing(s, y, 0.3),
        lambda s, y: s.softmax(0) - 0.7 * onehot(s, y) - 0.3 / len(s),
    ),
    "symmetric_cross_entropy": (
        lambda s, y: functional.symmetric_cross_entropy(s, y, 0.3, 0.2),
        lambda s, y: (0.3 - 0.2 * math.log(1e-4) * s.softmax(0)[y]) * (s.softmax(0) - onehot(s, y)),
    ),
    "active_passive_loss": (lambda s, y: functional.active_passive_loss(s, y, 2.0, 0.5), active_passive),
    "asymmetric_loss": (
        lambda s, y: functional.asymmetric_loss(s, y, "agce", 1.8, 3.0, beta=0.4),
        lambda s, y: 0.4 * (1.8 + s.softmax(0)[y]) ** 2 * s.softmax(0)[y] * (s.softmax(0) - onehot(s, y)),
    ),
    "logit_clip": (lambda s, y: functional.logit_clip(s, y, 1.0), clipped),
    "vector_scaling": (lambda s, y: functional.vector_scaling(s, y, COUNTS, 0.5, 0.2), scaled),
    "ldam": (
        lambda s, y: functional.ldam(s, y, MARGINS, 5.0),
        lambda s, y: 5.0 * ((5.0 * (s - MARGINS[y] * onehot(s, y))).softmax(0) - onehot(s, y)),
    ),
    "logit_adjusted": (
        lambda s, y: functional.logit_adjusted(s, y, COUNTS, 0.5),
        lambda s, y: (s + 0.5 * (COUNTS.double() / COUNTS.sum()).log()).softmax(0) - onehot(s, y),
    ),
    "smooth_topk_svm": (lambda s, y: functional.smooth_topk_svm(s, y, K, 0.7), smooth_svm),
    "soft_topk_loss": (lambda s, y: functional.soft_topk_loss(s, y, K, 0.8, form="error"), soft_error),
    "topk_grouping": (lambda s, y: functional.topk_grouping(s, y, K), grouping),
    "topk_hinge": (
        lambda s, y: functional.topk_hinge(s, y, K),
        hinge(lambda s, y: [int(j) for j in s.argsort(descending=True) if j != y][K - 1]),
    ),
    "topk_transition": (lambda s, y: functional.topk_transition(s, y, K), transition),
    "truncated_topk_entropy": (lambda s, y: functional.truncated_topk_entropy(s, y, K), truncated),
}


@pytest.mark.parametrize("name", sorted(GRADIENTS))
def test_the_gradient_that_a_page_shows_is_that_of_the_code(name: str) -> None:
    """Of rows whose label is first, in the middle and last, in float64, to rounding."""
    function, gradient = GRADIENTS[name]
    rows = 1.5 * torch.randn(12, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for number, row in enumerate(rows):
        y, leaf = number % 6, row.clone().requires_grad_()
        (result,) = torch.autograd.grad(function(leaf[None], torch.tensor([y])), leaf)
        torch.testing.assert_close(gradient(row, y), result, rtol=1e-8, atol=1e-10)


def test_the_pages_with_a_formula_of_their_own_are_tried() -> None:
    """But for maxima, draws and automatic derivatives, which have none."""
    shown = {page.stem for page in FOLDER.glob("*.md") if r"\frac{\partial" in page.read_text()}
    assert shown - {"smooth_topk_hinge", "topk_entropy"} <= set(GRADIENTS)


def test_every_picture_of_a_loss_is_symmetric_and_lower_at_the_true_class() -> None:
    """The other two classes are alike; the noised imbalanced hinge is 0 everywhere with its largest noise."""
    points = 2 * loss_pictures.simplex(6)
    corner = points[:, 2].argmax()
    for name, entry in LOSS_CATALOGUE.items():
        for fixed in entry.drawn:
            values = loss_pictures.values_on(name, fixed, points)
            mirrored = loss_pictures.values_on(name, fixed, points[:, [1, 0, 2]])
            np.testing.assert_allclose(values, mirrored, atol=1e-9, err_msg=name)
            assert values[corner] <= values[points[:, 0].argmax()], name
            assert np.ptp(values) > 0 or (name, fixed) == ("noised_imbalanced_topk_hinge", {"epsilon": 1.0})
    entropy = np.log(np.exp(points).sum(1)) - points[:, 2]
    np.testing.assert_allclose(loss_pictures.values_on("cross_entropy", {}, points), entropy)
    assert len(loss_pictures.level_sets("noised_imbalanced_topk_hinge").axes) >= 4
