"""How busy workers are until a study's last training starts, where its arms take unequally long.

python benchmarks/utilisation.py --arms 16 --workers 8 --studies 100

Made-up studies, played through as `topk plan` does: board and order of arms are real, trainings are not. An arm's
trainings take a time of its own (log-normal, --spread) with a spread within (--within), neither of which is known at
the start. Where an arm's own chain of trials takes longer than a worker's share of all, nothing keeps the workers busy:
such studies are left out. The rule of before, by which the arm with most trials left goes first, is played beside it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from topk_platform import Arm, Float, Loss, Model, NoPruning, Protocol, Random, Recipe, Regime, Study
from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard, Board, Pace, Slot
from topk_platform.protocol.order import Order
from topk_platform.running.estimate.forecast import Forecast, forecast

LOSS = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})


def a_study(arms: int, trials: int, seeds: int) -> Study:
    """Return a study whose arms are alike but for what they are called."""
    how = Protocol(Random(), pruner=NoPruning())
    made = [
        Arm(Regime(f"r{i}", "digits"), Model("mlp"), LOSS, 3, Recipe(4), protocol=how) for i in range(arms)
    ]
    return Study("utilisation", made, topk=(1, 3), trials=trials, seeds=seeds)


@contextmanager
def most_left_first() -> Iterator[None]:
    """Let the arm with most trials left go first, whatever they take."""

    def urgency(_order: Order, arm: ArmBoard, _pace: Pace) -> tuple[float, float]:
        return float(arm.left - len(arm.running)), 0.0

    with patch.object(Order, "urgency", urgency):
        yield


def played(study: Study, means: dict[str, float], given: argparse.Namespace, seed: int) -> Forecast:
    """Play a study through: a training's time is drawn from its name, whatever the order."""

    def lasting(arm: ArmBoard, slot: Slot) -> float:
        draw = random.Random(f"{seed} {arm.arm.regime.name} {slot}")  # noqa: S311 - of a simulation
        return means[arm.arm_id] * draw.lognormvariate(0, given.within)

    board = Board(ArmBoard(study, arm, Identity("code", "data")) for arm in study.arms)
    return forecast(board, lasting, given.workers)


def main() -> None:
    """Print a row for each rule."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("arms", 16), ("workers", 8), ("trials", 15), ("seeds", 5), ("studies", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--spread", type=float, default=0.5, help="Of the arms' times, as of a logarithm.")
    parser.add_argument("--within", type=float, default=0.3, help="Of one arm's trainings, likewise.")
    given = parser.parse_args()
    study = a_study(given.arms, given.trials, given.seeds)
    found: list[tuple[Forecast, Forecast]] = []
    for seed in range(given.studies):
        draw = random.Random(seed)  # noqa: S311 - as above
        means = {study.arm_id(arm): draw.lognormvariate(0, given.spread) for arm in study.arms}
        share = sum(means.values()) * (given.trials + given.seeds) / given.workers
        if max(means.values()) * (given.trials + 1) > 0.9 * share:
            continue
        with most_left_first():
            before = played(study, means, given, seed)
        found.append((played(study, means, given, seed), before))
    print(f"{len(found)} of {given.studies} studies could keep {given.workers} workers busy")
    for place, rule in enumerate(("longest chain first", "most trials left first")):
        busy = sorted(pair[place].busy for pair in found)
        ratio = sum(pair[place].seconds for pair in found) / sum(pair[0].seconds for pair in found)
        print(
            f"{rule}: busy {100 * busy[0]:.1f} % at least, {100 * sum(busy) / len(busy):.1f} % on average; "
            f"it took {ratio:.3f} times as long"
        )


if __name__ == "__main__":
    main()
