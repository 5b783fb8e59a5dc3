"""How a study's arms were tuned: the gain by trials, how many are enough, and which parameters matter.

Everything is based on validation results; the test set is not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topk_platform.protocol import Ended
from topk_platform.records import ArmResults
from topk_platform.results.from_store import Held
from topk_platform.specs import Dimension

__all__ = ["ArmTuning", "tuning_of"]

_LEAST = 10  # completed trials for importances


@dataclass(frozen=True)
class ArmTuning:
    """How one arm was tuned.

    Args:
        arm: Its name.
        metric: The validation metric that selects the configuration.
        trace: For each n from 1, the best result among the first n search trials of all its searches together.
        importances: Each parameter's share, among all, in explaining which trials are the best tenth; empty if fewer
            than ten trials were completed, or if all results are equal.
    """

    arm: str
    metric: str
    trace: tuple[float, ...]
    importances: Mapping[str, float]

    def enough(self, within: float) -> int | None:
        """Return the number of trials until the search was within a tolerance of its best; None if none completed.

        Args:
            within: The tolerance, as a fraction of 1.

        Example:
            >>> ArmTuning("r/mlp/focal", "top1", (0.5, 0.68, 0.7), {}).enough(0.03)
            2
        """
        if not self.trace or not self.trace[-1]:
            return None
        return next(n for n, best in enumerate(self.trace, 1) if best >= self.trace[-1] - within - 1e-12)


def tuning_of(held: Held) -> list[ArmTuning]:
    """Return how the arms with search trials were tuned.

    A trial stopped early counts with its last validation; a trial that diverged or failed counts as 0.

    Args:
        held: The study's results, with the epochs of its trials.

    Source:
        PED-ANOVA: Watanabe, Bansal and Hutter, IJCAI 2023.
    """
    return [_tuned(results) for results in held.results.values() if results.history.search]


def _tuned(results: ArmResults) -> ArmTuning:
    arm, known = results.arm, results.history.ended()
    ended = [known[n] for n in sorted(known, key=arm.repeats.order) if results.state.counts(n)]
    best = itertools.accumulate(map(_result, ended), max)
    completed = [trial for trial in ended if trial.status == "completed"]
    return ArmTuning(arm.name, arm.metric, tuple(best), _importances(arm.loss.space, completed))


def _result(trial: Ended) -> float:
    """Return a trial's validation result: the last one for a trial stopped early, 0 if there is none."""
    if trial.status == "completed":
        return trial.objective
    return trial.curve[max(trial.curve)] if trial.status == "pruned" and trial.curve else 0.0


def _importances(space: Mapping[str, Dimension], trials: Sequence[Ended]) -> dict[str, float]:
    if len(trials) < _LEAST or len({trial.objective for trial in trials}) < 2:
        return {}
    import optuna  # noqa: PLC0415 - a second, which a table needs not

    from topk_platform.protocol.suggest import to_optuna  # noqa: PLC0415 - Optuna, as above

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions, study = to_optuna(space), optuna.create_study(direction="maximize")
    for trial in trials:
        values = {name: trial.values[name] for name in space if trial.values.get(name) is not None}
        own = {name: distributions[name] for name in values}
        study.add_trial(optuna.create_trial(params=values, distributions=own, value=trial.objective))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
