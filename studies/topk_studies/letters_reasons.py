"""Studies that test explanations of what the letters show: memorised wrong labels, and networks that hardly learned."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topk_platform import Arm, Claim, Contrast, LabelNoise, Loss, Model, PerClass, Protocol, Regime, Study
from topk_studies.claims import gaps
from topk_studies.letters import CONVNET, MLP, SHOW, TOPK, K, recipe
from topk_studies.letters_losses import as_published, balanced

__all__ = ["letters_memory", "letters_underfit"]

_NOISY = Regime("noise-0.8", "letters", (PerClass(50), LabelNoise(0.8)))
_MLP_SEEDS, _MLP_EPOCHS = 10, 28
_CONVNET_SEEDS, _CONVNET_EPOCHS = 5, 20
_FORGETTING = ("decay", "early")
"""What keeps a network from memorising: a hundred times the weight decay, or a quarter of the epochs."""
_LEARNING = ("fast", "long")
"""What lets a network learn more: ten times the learning rate, or four times the epochs."""


def letters_memory() -> Study:
    """Return the study that tests an explanation: at the papers' values cross-entropy memorises wrong labels.

    If so, whatever keeps a network from memorising has to help cross-entropy by more than the smooth top-5 SVM, which
    does not ask for one of the look-alikes alone. Both have the papers' values, and each way changes one thing:
    ``decay`` is a weight decay of 0.01 in place of 0.0001, ``early`` 7 epochs in place of 28, and ``warm``, of
    cross-entropy alone, a temperature of 10.

    Example:
        >>> [arm.loss.label for arm in letters_memory().arms][:4]
        ['cross_entropy', 'cross_entropy-decay', 'cross_entropy-early', 'cross_entropy-warm']
    """
    entropy, smooth = _as_published()
    early = _MLP_EPOCHS // 4

    def arm(loss: Loss, epochs: int = _MLP_EPOCHS) -> Arm:
        return _arm(MLP, loss, epochs, Protocol(ensemble=_MLP_SEEDS))

    arms = [
        way
        for loss in (entropy, smooth)
        for way in (
            arm(loss),
            arm(_with(loss, "decay", weight_decay=0.01)),
            arm(_with(loss, "early"), early),
            *([arm(_with(loss, "warm", temperature=10.0))] if loss is entropy else []),
        )
    ]
    return Study(
        name="letters_memory",
        arms=arms,
        topk=TOPK,
        seeds=_MLP_SEEDS,
        show=SHOW,
        description="letters, noise 0.8: what keeps cross-entropy from memorising wrong labels; an MLP; K = 5",
        claims=_memory_claims(f"{_NOISY.name}/{MLP.label}"),
    )


def letters_underfit() -> Study:
    """Return the study that tests an explanation: at the papers' values top-K losses leave a small convnet untrained.

    With these values the convolutional network of ``letters`` is far worse by the smooth top-5 SVM than by
    cross-entropy, of which a perceptron shows the contrary. If the reason is that the SVM's gradients are too small for
    so few steps, whatever lets a network learn more has to help the SVM by more. Both losses have the papers' values,
    and each way changes one thing: ``fast`` is a learning rate of 1 in place of 0.1, ``long`` 80 epochs in place of 20.

    Example:
        >>> [arm.loss.label for arm in letters_underfit().arms][3:]
        ['smooth_topk_svm', 'smooth_topk_svm-fast', 'smooth_topk_svm-long']
    """

    def arm(loss: Loss, epochs: int = _CONVNET_EPOCHS) -> Arm:
        return _arm(CONVNET, loss, epochs, Protocol())

    arms = [
        way
        for loss in _as_published()
        for way in (
            arm(loss),
            arm(_with(loss, "fast", learning_rate=1.0)),
            arm(_with(loss, "long"), 4 * _CONVNET_EPOCHS),
        )
    ]
    return Study(
        name="letters_underfit",
        arms=arms,
        topk=TOPK,
        seeds=_CONVNET_SEEDS,
        show=SHOW,
        description="letters, noise 0.8: what the smooth SVM lacks at the papers' values; a convnet; K = 5",
        claims=_underfit_claims(f"{_NOISY.name}/{CONVNET.label}"),
    )


def _as_published() -> tuple[Loss, Loss]:
    losses = {loss.name: replace(as_published(loss), label="") for loss in balanced()}
    return losses["cross_entropy"], losses["smooth_topk_svm"]


def _with(loss: Loss, way: str, **values: float) -> Loss:
    return replace(loss, fixed={**loss.fixed, **values}, label=f"{loss.name}-{way}")


def _arm(model: Model, loss: Loss, epochs: int, protocol: Protocol) -> Arm:
    return Arm(_NOISY, model, loss, k=K, recipe=recipe(epochs), protocol=protocol)


def _memory_claims(column: str) -> tuple[Claim, ...]:
    claim = partial(Claim, source="an explanation of what letters_map shows", tolerance=1.0)
    return (
        claim(
            name="svm-ahead-at-the-papers-values",
            text="At the papers' values the smooth top-5 SVM is ahead of cross-entropy in top-5.",
            contrasts=gaps([column], "smooth_topk_svm", "cross_entropy", "top5"),
        ),
        claim(
            name="not-memorising-helps-cross-entropy",
            text="What keeps a network from memorising helps cross-entropy in top-5.",
            contrasts=gaps(
                [column], [f"cross_entropy-{way}" for way in _FORGETTING], "cross_entropy", "top5"
            ),
        ),
        claim(
            name="it-helps-the-svm-less",
            text="It helps cross-entropy by more than the smooth top-5 SVM.",
            contrasts=[_gains_more(column, "cross_entropy", "smooth_topk_svm", way) for way in _FORGETTING],
        ),
    )


def _underfit_claims(column: str) -> tuple[Claim, ...]:
    claim = partial(Claim, source="an explanation of what letters shows", tolerance=1.0)
    return (
        claim(
            name="svm-behind-at-the-papers-values",
            text="At the papers' values the smooth top-5 SVM is behind cross-entropy in top-5.",
            contrasts=gaps([column], "cross_entropy", "smooth_topk_svm", "top5"),
        ),
        claim(
            name="learning-more-helps-the-svm",
            text="What lets a network learn more helps the smooth top-5 SVM in top-5.",
            contrasts=gaps(
                [column], [f"smooth_topk_svm-{way}" for way in _LEARNING], "smooth_topk_svm", "top5"
            ),
        ),
        claim(
            name="it-helps-cross-entropy-less",
            text="It helps the smooth top-5 SVM by more than cross-entropy.",
            contrasts=[_gains_more(column, "smooth_topk_svm", "cross_entropy", way) for way in _LEARNING],
        ),
    )


def _gains_more(column: str, loss: str, other: str, way: str) -> Contrast:
    """Return how much more a loss gains by a way than another one does."""
    loss, other = f"{column}/{loss}", f"{column}/{other}"
    return Contrast({f"{loss}-{way}": 1.0, loss: -1.0, f"{other}-{way}": -1.0, other: 1.0}, "top5")
