"""An arm's completed search trials as an Optuna study, and the importance of each parameter in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import optuna

from topk_platform.protocol import Ended
from topk_platform.protocol.search.suggest import to_optuna
from topk_platform.specs import Dimension

__all__ = ["importances", "optuna_study"]


def optuna_study(space: Mapping[str, Dimension], trials: Iterable[Ended], scale: float = 1.0) -> optuna.Study:
    """Return completed trials, by their first metric, as an Optuna study in memory.

    Args:
        space: The searched parameters.
        trials: The trials; the values of other parameters are left out.
        scale: The factor that results are multiplied by, such as 100 for percent.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions, study = to_optuna(space), optuna.create_study(direction="maximize")
    for trial in trials:
        values = {name: trial.values[name] for name in space if trial.values.get(name) is not None}
        own = {name: distributions[name] for name in values}
        value = scale * trial.objective
        study.add_trial(optuna.create_trial(params=values, distributions=own, value=value))
    return study


def importances(space: Mapping[str, Dimension], trials: Iterable[Ended]) -> dict[str, float]:
    """Return each parameter's share, among all parameters, in explaining which trials are the best tenth.

    Args:
        space: The searched parameters.
        trials: Completed trials.

    Source:
        Watanabe, Bansal and Hutter, PED-ANOVA, IJCAI 2023.
    """
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(optuna_study(space, trials), evaluator=evaluator))
