"""Five questions asked of letters, a regime each: temperature, noise scale, samples, under-fitting, convolutions.

Each question has its own baseline, which its claims name. Three are stand-ins, of minutes, for experiments of papers
that take days on CIFAR-100: what holds for letters and a perceptron does not carry over to a DenseNet. In the first
four nothing is searched: parameters that the question is not about have the papers' values.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topk_platform import (
    Arm,
    Claim,
    Contrast,
    LabelNoise,
    Loss,
    PerClass,
    Protocol,
    Regime,
    Study,
    grid,
)
from topk_studies.berrada2018 import temperature_claims, without_temperature
from topk_studies.claims import gaps, stand_ins
from topk_studies.garcin2022 import epsilon_claims, samples_claims
from topk_studies.letters import CONVNET, MLP, SHOW, TOPK, K, recipe, searched_on_letters
from topk_studies.searched_losses import searched

__all__ = ["letters_questions"]

_SEEDS, _SEARCHES, _TRIALS = 10, 5, 20
_TOGETHER = Protocol(ensemble=_SEEDS)
_ENTROPY, _SVM, _SOFT = "cross_entropy", "smooth_topk_svm", "soft_topk_loss"
_LEARNING = ("fast", "long")
"""What lets a network learn more: ten times the learning rate, or four times the epochs."""

_TEMPERATURE, _EPSILON, _COUNTS = (
    Regime(name, "letters", (PerClass(50),)) for name in ("temperature", "epsilon", "samples")
)
_UNDERFIT = Regime("underfit", "letters", (PerClass(50), LabelNoise(0.8)))
_CONVOLUTIONS = Regime("convolutions", "letters", (PerClass(5), LabelNoise(0.8)))


def letters_questions() -> Study:
    """Return the study of five questions, a regime each; see its claims, ``topk table letters_questions --claims``.

    - ``temperature``: τ from 0 to 100 of the smooth top-5 SVM, beside τ = 1; stand-in for berrada2018's Table 6 and
      Figure 2 (the share of the gradient's non-zero entries is recorded as ``gradient_density``). τ = 0 is the limit,
      a fifth of the top-5 hinge with margin 5.
    - ``epsilon``: ε from 0 to 100 of the noised hinge with B = 10, beside 0.1; stand-in for garcin2022's Table 2.
      ε = 0 is the calibrated hinge.
    - ``samples``: B from 1 to 100 with ε = 0.2, and the exact expectation, beside B = 10; stand-in for its Table 3.
    - ``underfit``: at the papers' values top-K losses leave a small convolutional network untrained. If their gradients
      are too small for so few steps, ``fast`` (a learning rate of 1 in place of 0.1) and ``long`` (80 epochs in place
      of 20) have to help the smooth SVM by more than cross-entropy.
    - ``convolutions``: does the lead with five images and mostly wrong labels hold for a convolutional network? Four
      losses, each searched five times with twenty trials, beside cross-entropy.

    Example:
        >>> [arm.loss.label for arm in letters_questions().only("temperature/*").arms]
        ['tau-0', 'tau-0.001', 'tau-0.01', 'tau-0.1', 'tau-1', 'tau-10', 'tau-100']
    """
    return Study(
        name="letters_questions",
        arms=(*_temperatures(), *_epsilons(), *_sample_counts(), *_underfitted(), *_convolutions()),
        topk=TOPK,
        trials=_SEARCHES * _TRIALS,
        seeds=_SEEDS,
        show=SHOW,
        description="letters: temperature, noise scale, samples, under-fitting, a convnet; a question a regime; K = 5",
        claims=(
            *_stand_ins(_TEMPERATURE, temperature_claims(f"{_TEMPERATURE.name}/{MLP.label}")),
            *_stand_ins(_EPSILON, epsilon_claims(f"{_EPSILON.name}/{MLP.label}")),
            *_stand_ins(_COUNTS, samples_claims(f"{_COUNTS.name}/{MLP.label}")),
            *_underfit_claims(f"{_UNDERFIT.name}/{CONVNET.label}"),
            *_convolution_claims(f"{_CONVOLUTIONS.name}/{CONVNET.label}"),
        ),
    )


def _stand_ins(regime: Regime, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    return stand_ins(*(replace(claim, name=f"{regime.name}-{claim.name}") for claim in claims))


def _temperatures() -> tuple[Arm, ...]:
    limit, how = without_temperature("tau-0", recipe(40), K)
    losses = [
        Loss(_SVM, fixed={"tau": tau}, label=f"tau-{tau:g}") for tau in (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
    ]
    return Arm(_TEMPERATURE, MLP, limit, K, how, protocol=_TOGETHER), *_fixed(_TEMPERATURE, losses)


def _epsilons() -> tuple[Arm, ...]:
    noised = [
        Loss("noised_topk_hinge", fixed={"epsilon": scale, "samples": 10}, label=f"epsilon-{scale:g}")
        for scale in (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)
    ]
    return _fixed(_EPSILON, [Loss("calibrated_topk_hinge", label="epsilon-0"), *noised])


def _sample_counts() -> tuple[Arm, ...]:
    counts = {f"samples-{count}": count for count in (1, 2, 3, 5, 10, 50, 100)}
    losses = [
        Loss("noised_topk_hinge", fixed={"epsilon": 0.2, "samples": count}, label=label)
        for label, count in {**counts, "expectation": None}.items()
    ]
    return _fixed(_COUNTS, losses)


def _fixed(regime: Regime, losses: list[Loss]) -> tuple[Arm, ...]:
    return grid([regime], [MLP], losses, k=K, recipe=recipe(40), protocol=_TOGETHER)


def _underfitted() -> tuple[Arm, ...]:
    arms = []
    for name in (_ENTROPY, _SVM):
        published = searched(name).first
        for label, rate, epochs in ((name, 0.1, 20), (f"{name}-fast", 1.0, 20), (f"{name}-long", 0.1, 80)):
            loss = Loss(name, fixed={**published, "learning_rate": rate}, label=label)
            arms.append(Arm(_UNDERFIT, CONVNET, loss, k=K, recipe=recipe(epochs)))
    return tuple(arms)


def _convolutions() -> tuple[Arm, ...]:
    losses = searched_on_letters(_ENTROPY, _SVM, "noised_topk_hinge", _SOFT)
    protocol = Protocol(searches=_SEARCHES)
    return grid([_CONVOLUTIONS], [CONVNET], losses, k=K, recipe=recipe(100), protocol=protocol)


def _underfit_claims(column: str) -> tuple[Claim, ...]:
    def gains_more(way: str) -> Contrast:
        smooth, entropy = f"{column}/{_SVM}", f"{column}/{_ENTROPY}"
        weights = {f"{smooth}-{way}": 1.0, smooth: -1.0, f"{entropy}-{way}": -1.0, entropy: 1.0}
        return Contrast(weights, "top5")

    claim = partial(Claim, source="an explanation of what an earlier study of letters showed", tolerance=1.0)
    return (
        claim(
            name="svm-behind-at-the-papers-values",
            text="At the papers' values the smooth top-5 SVM is behind cross-entropy in top-5 on a small convnet.",
            contrasts=gaps([column], _ENTROPY, _SVM, "top5"),
        ),
        claim(
            name="learning-more-helps-the-svm",
            text="What lets a network learn more helps the smooth top-5 SVM in top-5.",
            contrasts=gaps([column], [f"{_SVM}-{way}" for way in _LEARNING], _SVM, "top5"),
        ),
        claim(
            name="it-helps-cross-entropy-less",
            text="It helps the smooth top-5 SVM by more than cross-entropy.",
            contrasts=[gains_more(way) for way in _LEARNING],
        ),
    )


def _convolution_claims(column: str) -> tuple[Claim, ...]:
    claim = partial(Claim, source="stated when the perceptron's results were known", tolerance=0.5)
    return (
        claim(
            name="ahead-with-five-images-and-noise",
            text="With five images and noise 0.8 the smooth SVM and the soft top-K loss are ahead in top-5.",
            contrasts=gaps([column], (_SVM, _SOFT), _ENTROPY, "top5"),
        ),
        claim(
            name="top5-losses-cost-the-first-guess",
            text="With five images and noise 0.8 the smooth SVM and the soft top-K loss are behind in top-1.",
            contrasts=gaps([column], _ENTROPY, (_SVM, _SOFT), "top1"),
        ),
    )
