"""What conformal sets cover on test data that decided nothing, and how large they are.

    python benchmarks/sets.py                       # letters, an MLP: 3 networks, 20 calibrations each; minutes
    python benchmarks/sets.py --networks 1 --calibrations 5 --coverage 90 95 99
    python benchmarks/sets.py --tail 100            # trained on a long tail of this ratio

Each network trains on 50 images of each class, or on a long tail. Half of the validation images, drawn anew each time,
calibrate it; the test images, of other typefaces, are covered or not. Tables are Markdown, on standard output.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from topk_platform import Arm, LongTail, Loss, PerClass, Regime
from topk_platform.data import load
from topk_platform.serving.conformal import calibrate, prevalences_of, sets
from topk_platform.serving.set_calibration import METHODS
from topk_platform.specs import Trial
from topk_platform.training import Session
from topk_platform.training.scoring import score
from topk_studies.letters import MLP, K, recipe


class Network(NamedTuple):
    """A trained network's scores of validation and test, with the labels and the training samples per class."""

    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    counts: Tensor


def trained(regime: Regime, seed: int, epochs: int) -> Network:
    """Train a network with cross-entropy and score both splits."""
    arm = Arm(regime, MLP, Loss("cross_entropy"), K, recipe(epochs))
    fingerprint = load(regime).fingerprint
    trial = Trial("sets", "", arm, (1,), "confirm", 0, seed, 0, {}, fingerprint, "")
    session = Session.prepare(trial)
    for _ in range(epochs):
        session.advance()

    def scored(name: str) -> tuple[Tensor, Tensor]:
        split = getattr(session.dataset, name)
        given = session.model, split, session.normalisation, session.recipe, "cpu", session.scorer
        return score(*given).scores, split.labels

    return Network(scored("validation"), scored("test"), session.dataset.class_counts)


def measured(
    network: Network, coverage: float, method: str, calibrations: int
) -> Iterator[tuple[float, ...]]:
    """Yield for each calibration: coverage, that of the class that is covered least, mean and largest size of sets."""
    scores, labels = network.validation
    for number in range(calibrations):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(number))
        half = order[: len(order) // 2]
        calibration = calibrate(scores[half], labels[half], prevalences_of(network.counts), "")
        held, _ = sets(network.test[0], calibration, coverage, method)
        target = network.test[1]
        hit = held.gather(1, target[:, None])[:, 0].double()
        sizes = held.sum(1).double()
        counts = torch.bincount(target, minlength=held.shape[1])
        yield (
            hit.mean().item(),
            (torch.bincount(target, hit, held.shape[1]) / counts).min().item(),
            sizes.mean().item(),
            sizes.max().item(),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", type=int, default=3)
    parser.add_argument("--calibrations", type=int, default=20, help="of each network")
    parser.add_argument("--coverage", type=int, nargs="+", default=[90, 95], help="percent")
    parser.add_argument("--epochs", type=int, default=28)
    parser.add_argument(
        "--tail", type=float, help="the ratio of a long tail, instead of 50 images of each class"
    )
    given = parser.parse_args(arguments)
    condition = LongTail(given.tail) if given.tail else PerClass(50)
    regime = Regime("r", "letters", (condition,))
    networks = [trained(regime, seed, given.epochs) for seed in range(1, given.networks + 1)]
    print(
        "| method | requested | covered | over the calibrations | the least covered class | mean size | largest |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for method in METHODS:
        for percent in given.coverage:
            rows = [
                row for one in networks for row in measured(one, percent / 100, method, given.calibrations)
            ]
            covered, least, size, largest = zip(*rows, strict=True)
            means = [sum(values) / len(rows) for values in (covered, least, size)]
            print(
                f"| `{method}` | {percent} % | {means[0]:.1%} | {min(covered):.1%} to {max(covered):.1%} | "
                f"{means[1]:.1%} | {means[2]:.1f} | {max(largest):.0f} |"
            )


if __name__ == "__main__":
    main()
