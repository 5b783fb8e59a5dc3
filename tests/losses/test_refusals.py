"""Every bad argument of a function or of a constructor is refused, by a message whose subject is the argument."""

import inspect
import math

import pytest
import torch

import topk_losses
from topk_losses import functional

SCORES, LABELS, NAN, INF = torch.zeros(2, 4), torch.tensor([0, 1]), math.nan, math.inf
GIVEN = {
    "scores": SCORES,
    "target": LABELS,
    "memory": SCORES,
    "name": "torch",
    "margins": torch.zeros(4),
    "class_counts": torch.ones(4),
    "max_margin": 0.5,
    "k": 2,
    "epsilon": 0.1,
    "samples": 3,
    "in_features": 8,
    "classes": 5,
}
"""What a function gets for parameters without a default."""

COUNTS = tuple({"class_counts": one} for one in ([5, 0, 3], [5.0, -2.0], [5.0, NAN], [[5, 1]]))
SIZES = tuple({"k": one} for one in (4, 0, True, 2.0))  # of four classes, so that three others are left
OF_FOUR = tuple({"k": one} for one in (5, 0))
HINGE = (*SIZES, {"margin": INF}, {"margin": torch.zeros(3)})
NOISED = (
    *({"k": 4}, {"epsilon": -1e-9}, {"samples": 0}, {"samples": None, "noise": torch.zeros(1, 2, 4)}),
    *({"noise": SCORES}, {"generator": [torch.Generator()] * 3}, {"generator": []}),
)
CONFORMAL = (
    *({"alpha": 1.0}, {"temperature": 0.0}, {"kappa": -1.0}, {"size_weight": -1.0}),
    {"classification": -1.0},
)
WHOLE = {"scores": SCORES.long()}
REFUSED = {
    "cross_entropy": (
        *(WHOLE, {"scores": [[0.0, 1.0]]}, {"target": LABELS[:1], "scores": SCORES[0, :3]}),
        *({"target": one} for one in ([0, 1], torch.zeros(3).long(), SCORES.long(), torch.zeros(2))),
        *({"target": one} for one in (LABELS > 0, LABELS + 3, LABELS - 1, LABELS[:, None])),
        *({"scores": SCORES[0], "target": 0}, {"scores": SCORES[..., None], "target": LABELS}),
        *({"target": SCORES, "ignore_index": 1}, {"reduction": "avg"}),
        *({"weight": torch.ones(2)}, {"weight": 2.0}),
    ),
    "conformal_training": (
        *(*CONFORMAL, {"target": LABELS[:0], "scores": SCORES[:0]}),
        {"target": LABELS[:, None], "scores": SCORES[..., None]},
        *({"target": one} for one in (SCORES + 0.25, LABELS + 3, LABELS - 100, [0, 1])),
        WHOLE,
    ),
    "early_learning": (
        *({"strength": -1.0}, {"memory": SCORES[:, :3]}, {"memory": [0.0]}),
        *({"target": one} for one in (SCORES, [0])),
    ),
    "focal": ({"gamma": -0.1}, {"gamma": NAN}),
    "generalized_cross_entropy": ({"gamma": 0.0}, {"gamma": 1.1}),
    "label_smoothing": ({"epsilon": 1.0}, {"epsilon": -0.1}),
    "symmetric_cross_entropy": ({"alpha": -1}, {"beta": -1}),
    "active_passive_loss": ({"passive": "gce"}, {"alpha": -1}, {"beta": -1}),
    "asymmetric_loss": ({"form": "aul", "a": 0.6}, {"form": "gce"}, {"q": 0.0}),
    "logit_clip": ({"limit": 0.0},),
    "ldam": ({"margins": torch.zeros(5)}, {"scale": 0.0}),
    "balanced_softmax": ({"class_counts": torch.tensor([1, 0, 2, 3])},),
    "logit_adjusted": ({"tau": 0}, {"class_counts": torch.zeros(4)}),
    "vector_scaling": ({"gamma": -1}, {"tau": -1}, {"class_counts": torch.zeros(4)}),
    "topk_hinge": HINGE,
    "convex_topk_hinge": HINGE,
    "calibrated_topk_hinge": HINGE,
    "smooth_topk_svm": (*HINGE, {"tau": 0.0}, {"tau": -1.0}, {"tau": INF}),
    "smooth_topk_hinge": ({"k": 4}, {"gamma": 0.0}, {"gamma": INF}, {"margin": torch.ones(3)}),
    "noised_topk_hinge": NOISED,
    "noised_imbalanced_topk_hinge": (*NOISED, {"scale": 0}, {"margins": torch.zeros(3)}, {"margins": 0.2}),
    "truncated_topk_entropy": SIZES,
    "topk_entropy": SIZES,
    "autkc": ({"k": 4}, {"surrogate": "cubic"}),
    "topk_grouping": SIZES,
    "topk_transition": SIZES,
    "soft_topk_loss": ({"k": 4}, {"tau": 0.0}, {"tau": -1.0}, {"shape": "normal"}, {"form": "ln"}),
    "lapsum_topk_loss": ({"k": 4}, {"temperature": INF}, {"temperature": 0.0}),
    "sorting_topk_cross_entropy": (
        *({"k": 4}, {"steepness": 0.0}, {"relaxation": "gauss"}),
        *({"candidates": one} for one in (12, 2, 8.0)),
        *({"mixture": one} for one in ([1.0], [0.5, 0.6], [1.5, -0.5], [NAN, 1.0])),
    ),
    "expected_topk": (*OF_FOUR, {"epsilon": -1.0}, {"epsilon": INF}, WHOLE, {"scores": torch.tensor(1.0)}),
    "noised_topk": (
        *(*OF_FOUR, {"epsilon": -0.1}, {"samples": 0}, {"samples": None}, WHOLE),
        *({"noise": torch.zeros(3, 2, 5)}, {"noise": SCORES}),
    ),
    "inclusion_probabilities": (*OF_FOUR, {"temperature": 0.0}, WHOLE),
    "lapsum_topk": (*OF_FOUR, {"temperature": 0.0}, WHOLE),
    "soft_topk": ({"k": 5}, {"tau": 0.0}, {"shape": "normal"}, WHOLE),
    "uneven_margins": (*COUNTS, {"max_margin": 0}),
    "effective_number_weights": (*COUNTS, {"beta": 1}),
    "CosineHead": ({"in_features": 0}, {"classes": 2.5}, {"scale": 0.0}),
    "use_backend": tuple({"name": one} for one in ("cuda", "Torch", "", None, 1)),
    "CrossEntropy": (
        *({"reduction": "avg"}, {"weight": torch.tensor([1.0, -1.0])}, {"weight": torch.ones(2, 2)}),
    ),
    "ConformalTraining": CONFORMAL,
    "EarlyLearning": ({"samples": 0}, {"beta": 1.0}, {"strength": -1.0}),
    "Focal": ({"gamma": -1.0},),
    "GeneralizedCrossEntropy": ({"gamma": 1.5},),
    "LDAM": ({"margins": torch.tensor([0.1, NAN])}, {"scale": -1}),
    "BalancedSoftmax": ({"class_counts": [1, 0]},),
    "LogitAdjusted": ({"class_counts": [1, 0]}, {"tau": 0}),
    "TopKHinge": ({"k": 0}, {"margin": torch.tensor([INF])}),
    "ConvexTopKHinge": ({"k": "5"},),
    "CalibratedTopKHinge": ({"margin": "1"},),
    "SmoothTopKSVM": ({"tau": 0.0},),
    "NoisedTopKHinge": ({"epsilon": -1.0}, {"samples": 0}),
    "NoisedImbalancedTopKHinge": ({"scale": 0}, {"margins": 0.2}),
    "TopKGrouping": ({"k": -3},),
    "TopKTransition": ({"k": 1.5},),
    "LapSumTopKLoss": ({"temperature": 0.0}, {"k": True}),
    "AUTKC": ({"surrogate": "cubic"},),
    "SoftTopKLoss": (*({"shape": "cubic"}, {"shape": "power", "form": "log"}, {"form": "ln"}, {"tau": 0.0}),),
    "SmoothTopKHinge": ({"gamma": -1.0},),
    "SortingTopKCrossEntropy": ({"candidates": 6}, {"mixture": (1, 1)}),
    "TopKEntropy": ({"k": 0},),
    "TruncatedTopKEntropy": ({"k": 0},),
}
"""What a function or a constructor refuses: of several arguments it is the last one."""


@pytest.mark.parametrize(("name", "changes"), [(name, one) for name, rows in REFUSED.items() for one in rows])
def test_a_bad_argument_is_refused_by_its_name(name, changes):
    function = getattr(functional, name, None) or getattr(topk_losses, name)
    parameters = inspect.signature(function).parameters.values()
    required = {one.name: GIVEN[one.name] for one in parameters if one.default is one.empty}
    with pytest.raises(ValueError, match=" must ") as error:
        function(**{**required, **changes})
    assert list(changes)[-1] in str(error.value).partition(" must ")[0].split()
