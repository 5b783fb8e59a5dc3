"""Scores of a test split by ten crops of each image."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from topk_losses.operators import inclusion_probabilities
from topk_platform.data import Images, Split
from topk_platform.metrics import Scorer
from topk_platform.specs import Recipe
from topk_platform.training.setup import Scored
from topk_platform.training.steps.batches import Normalisation, prepared
from topk_platform.training.steps.stepping import precision

__all__ = ["score_crops"]

_LAST = 1 - 2**-24
_POSITIONS = (None, (0.0, 0.0), (0.0, _LAST), (_LAST, 0.0), (_LAST, _LAST))


@torch.no_grad()
def score_crops(
    model: nn.Module,
    split: Split,
    normalisation: Normalisation | None,
    recipe: Recipe,
    device: str,
    scorer: Scorer,
) -> Scored:
    """Score a split by ten crops of each image: the middle, the four corners, and their mirror images.

    Otherwise it works as :func:`topk_platform.training.session.score`. Each crop's scores become probabilities, and
    their sum over the crops is ranked. ``recipe.test_crops`` chooses the probabilities for top-k accuracy:
    ``"inclusion"`` takes the probability that a class is among the k best, where a set A of k classes has the weight
    ``exp(Σ_{j∈A} s_j)``; ``"softmax"`` takes the softmax for every k. The least K for an accuracy, the area under the
    curve and sets use the softmax. Unless pixels are kept in a cache, each image is decoded five times.

    Args:
        model: The network.
        split: Images in files.
        normalisation: The normalisation of uint8 images.
        recipe: The recipe, with the numerics and the kind of average.
        device: The network's device.
        scorer: The measures.

    Returns:
        The measures, and the sum of the crops' softmax as the scores.

    Raises:
        TypeError: if the split holds a tensor in place of images in files.

    Source:
        berrada2018 5.2 and appendix C; Krizhevsky et al. 2012.
    """
    model.eval()
    sizes = sorted({1, *scorer.topk}) if recipe.test_crops == "inclusion" else [1]
    totals, finite = _totals(model, split.inputs, normalisation, recipe, device, sizes)
    values: dict[str, Tensor] = {}
    for k in scorer.topk:
        part = replace(scorer, topk=(k,), targets=(), measures=())
        values |= zip(part.names, part(totals.get(k, totals[1]), split.labels), strict=True)
    softmax = replace(scorer, topk=(1,), measures=())
    values = dict(zip(softmax.names, softmax(totals[1], split.labels), strict=True)) | values
    if scorer.measures:
        sets = replace(scorer, topk=(1,), targets=())
        of_sets = zip(sets.names, sets(totals[1].double().log(), split.labels), strict=True)
        values |= {name: value for name, value in of_sets if name not in values}
    measures = torch.stack([finite.double(), *(values[name] for name in scorer.names)])
    return Scored(measures, totals[1], split, scorer.groups, averaged=True)


def _totals(
    model: nn.Module,
    images: Tensor | Images,
    normalisation: Normalisation | None,
    recipe: Recipe,
    device: str,
    sizes: list[int],
) -> tuple[dict[int, Tensor], Tensor]:
    """Sum each size's probabilities, ``(n, L)``, over the crops, and check whether all scores are finite."""
    if not isinstance(images, Images):
        raise TypeError("ten crops need images in files, got a tensor")
    totals: dict[int, Tensor] = {}
    finite = torch.ones((), dtype=torch.bool, device=device)
    for position in _POSITIONS:
        start = 0
        for batch in images.in_order(position):
            inputs = prepared(batch, normalisation, recipe.numerics.channels_last)
            rows = slice(start, start + len(inputs))
            start = rows.stop
            for view in (inputs, inputs.flip(3)):
                with precision(device, recipe.numerics.bfloat16):
                    scores = model(view).float()
                finite &= scores.isfinite().all()
                for k in sizes:
                    total = totals.setdefault(k, scores.new_zeros((len(images), scores.shape[1])))
                    total[rows] += inclusion_probabilities(scores, k) if k > 1 else scores.softmax(1)
    return totals, finite
