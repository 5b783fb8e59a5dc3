"""Every loss by labels against its definition, value and gradient, and at the parameters where it is another loss."""

import pytest
import torch

from topk_losses import functional as tf

COUNTS = torch.tensor([100, 10, 40, 7, 1, 3, 5, 2])
MARGINS = torch.tensor([0.3, 0.1, 0.7, 0.2, 0.5, 0.4, 0.9, 0.6], dtype=torch.float64)
OF_LABELS, LOG_SHAPES = {"soft": False}, ("logistic", "laplace", "gaussian", "midpoint")


def each_k(*ks, **given):
    return [{"k": k, **given} for k in ks]


PARAMETERS = {
    "cross_entropy": [{}],
    "focal": [{"gamma": 1.5}],
    "generalized_cross_entropy": [{"gamma": gamma} for gamma in (0.1, 0.7, 1.0)],
    "ldam": [{"margins": MARGINS, "scale": 5.0}],
    "balanced_softmax": [{"class_counts": COUNTS}],
    "logit_adjusted": [{"class_counts": COUNTS, "tau": 0.5}],
    "vector_scaling": [{"class_counts": COUNTS, "tau": 0.5, "gamma": 0.2}],
    "label_smoothing": [{"epsilon": epsilon} for epsilon in (0.0, 0.3)],
    "mean_absolute_error": [{}],
    "symmetric_cross_entropy": [{"alpha": 0.7, "beta": 0.2}],
    "active_passive_loss": [{"alpha": 2.0, "beta": 0.5, "passive": one} for one in ("mae", "rce", "nnce")],
    "asymmetric_loss": [
        {"form": "agce", "a": 1.8, "q": 3.0},
        {"form": "aul", "a": 6.0, "q": 3.0, "alpha": 10.0, "beta": 0.015},
        {"form": "ael", "a": 1.5, "alpha": 1.0},
    ],
    "logit_clip": [{"limit": limit} for limit in (0.5, 6.0, 100.0)],
    **{
        f"{kind}topk_hinge": [
            one for margin in (1.0, 0.0, MARGINS) for one in each_k(*range(1, 8), margin=margin)
        ]
        for kind in ("", "convex_", "calibrated_")
    },
    "smooth_topk_hinge": [
        *each_k(1, 2, 4, 7),
        *({"k": 3, "gamma": gamma} for gamma in (1e-3, 30.0)),
        *({"k": 2, "gamma": 0.5, "margin": margin} for margin in (MARGINS, 0.0)),
    ],
    "truncated_topk_entropy": each_k(*range(1, 8)),
    "topk_entropy": each_k(*range(1, 8)),
    "topk_grouping": each_k(*range(1, 8)),
    "topk_transition": [
        one for detach in (False, True) for one in each_k(*range(1, 8), detach_weight=detach)
    ],
    "autkc": [
        one
        for surrogate in ("squared", "exponential", "logistic", "hinge")
        for one in each_k(1, 3, 6, 7, surrogate=surrogate)
    ],
    "lapsum_topk_loss": [
        {"k": k, "temperature": t} for k, t in ((1, 0.3), (2, 3.0), (3, 0.3), (5, 1.0), (7, 0.3))
    ],
    "soft_topk_loss": [
        {"k": k, "tau": tau, "shape": shape, "form": form}
        for form, shapes in (("log", LOG_SHAPES), ("error", (*LOG_SHAPES, "clip", "power")))
        for shape in shapes
        for k, tau in ((1, 0.6), (3, 2.0), (7, 1.0))
    ],
    "sorting_topk_cross_entropy": [
        {"k": 2, "candidates": 4},
        {"k": 3, "candidates": 8, "relaxation": "logistic", "steepness": 0.7},
        {"k": 5, "candidates": 16, "steepness": 1.0},  # more wires than classes
        {"k": 4, "candidates": 16, "relaxation": "logistic"},
        {"k": 3, "candidates": 8, "mixture": [0.25, 0.0, 0.75]},
        {"k": 5, "candidates": 8, "mixture": [0.2] * 5, "relaxation": "logistic"},
    ],
}


@pytest.mark.parametrize(
    ("name", "given"), [(name, one) for name, all_ in PARAMETERS.items() for one in all_]
)
def test_loss_and_gradient_are_those_of_the_definition(name, given, assert_matches_oracle):
    slow = name in ("soft_topk_loss", "lapsum_topk_loss", "sorting_topk_cross_entropy", "smooth_topk_hinge")
    soft = name != "soft_topk_loss" or given["k"] == 3
    assert_matches_oracle(name, classes=8, parameters=given, rows=3 if slow else 12, soft=soft)


@pytest.mark.parametrize("classes", [2, 3, 6, 10])
@pytest.mark.parametrize("tau", [1.0, 0.05])
def test_the_smooth_svm_of_every_k_is_the_sum_over_all_subsets(classes, tau, assert_matches_oracle):
    for given in each_k(*range(1, classes), tau=tau, margin=0.7):
        assert_matches_oracle("smooth_topk_svm", classes, given, soft=False, rows=6)


@pytest.mark.parametrize("classes", [2, 4, 9])
def test_groups_of_every_size_are_those_of_the_definition(classes, assert_matches_oracle):
    for given in each_k(*range(1, classes)):
        assert_matches_oracle("topk_grouping", classes, given)
        assert_matches_oracle("topk_transition", classes, given)


def entropy(s, y, **options):
    return tf.cross_entropy(s, y, **options)


def error(s, y):
    return 1 - s.softmax(1).gather(1, y[:, None]).mean()


EQUAL = {
    "focal at 0": (lambda s, y: tf.focal(s, y, 0), entropy),
    "generalized at 1": (lambda s, y: tf.generalized_cross_entropy(s, y, 1), error),
    "generalized at 0": (lambda s, y: tf.generalized_cross_entropy(s.float(), y, 1e-9).double(), entropy),
    "label smoothing": (
        lambda s, y: tf.label_smoothing(s, y, 0.2),
        lambda s, y: torch.nn.functional.cross_entropy(s, y, label_smoothing=0.2),
    ),
    "sorting at 1": (lambda s, y: tf.sorting_topk_cross_entropy(s, y, 1), entropy),
    "smooth svm at 1": (lambda s, y: tf.smooth_topk_svm(s, y, 1, 1.0, 0.0), entropy),
    "laplace": (
        lambda s, y: tf.soft_topk_loss(s, y, 3, 0.4, "laplace"),
        lambda s, y: tf.lapsum_topk_loss(s, y, 3, 0.4),
    ),
    **{
        f"noised without noise, {samples}": (
            lambda s, y, samples=samples: tf.noised_topk_hinge(s, y, 2, 0.0, samples, MARGINS),
            lambda s, y: tf.calibrated_topk_hinge(s, y, 2, MARGINS),
        )
        for samples in (1, 4, None)
    },
    "imbalanced": (
        lambda s, y: tf.noised_imbalanced_topk_hinge(s, y, 2, MARGINS, 0.3, None, 40.0),
        lambda s, y: 40 * tf.noised_topk_hinge(s, y, 2, 0.3, None, MARGINS),
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_a_loss_at_some_parameters_is_another(case, sample):
    scores, target = sample(20, 8)
    ours, theirs = (loss(scores, target) for loss in EQUAL[case])
    torch.testing.assert_close(ours, theirs, rtol=1e-6 if case == "generalized at 0" else 1e-7, atol=1e-7)


OFFSET = {
    "cross_entropy": {},
    "ldam": {"margins": MARGINS},
    "balanced_softmax": {"class_counts": COUNTS},
    "logit_adjusted": {"class_counts": COUNTS, "tau": 0.5},
    "vector_scaling": {"class_counts": COUNTS, "gamma": 0.0},
}


@pytest.mark.parametrize("name", OFFSET)
def test_a_common_offset_costs_no_digits(name, sample):
    """With exact differences of float64 scores."""
    scores, target = sample(24, 8)
    scores = (scores * 2**10).round() / 2**10
    moved, losses = (getattr(tf, name)(s, target, **OFFSET[name]) for s in (scores + 2.0**40, scores))
    torch.testing.assert_close(moved, losses, rtol=1e-13, atol=1e-13)
