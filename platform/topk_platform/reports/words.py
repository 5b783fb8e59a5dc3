"""Numbers, metrics and configurations as texts, for tables, sentences and plots."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence

from topk_platform.errors import masked
from topk_platform.references import is_reference
from topk_platform.results.intervals import Estimate
from topk_platform.specs import Study
from topk_platform.specs.checks import rounded
from topk_platform.specs.metric_names import GROUPS, digits_of, measure_of, scale_of, unit_of
from topk_platform.specs.smoke import SMOKE

__all__ = [
    "ERRORS",
    "command",
    "in_range",
    "metric_title",
    "more_searches",
    "number",
    "only_words",
    "points",
    "rounded_in",
    "title_of",
    "ui_command",
]

_STORE = "runs"  # the default of --store
_BUDGET = ("searches", "trials", "seeds")
_ENOUGH = 3  # searches of an arm

_LONG = re.compile(r"(?<![\w.])\d+\.\d{5,}(?:e[+-]?\d+)?(?![\w.])")


ERRORS = {
    "brier": "Brier score",
    "ece": "expected calibration error",
    "nll": "negative log-likelihood",
}


def title_of(metric: str) -> str:
    """Return a metric's name without a unit.

    Example:
        >>> title_of("macro_top3"), title_of("few_top5")
        ('macro-average top-3 accuracy', 'few-shot macro-average top-5 accuracy')
        >>> title_of("autkc5"), title_of("average5"), title_of("size95")
        ('mean of top-1 to top-5 accuracy', 'average-5 accuracy', 'mean set size at 95 % coverage')
    """
    if is_reference(metric):
        return metric.partition(":")[2]
    if (result := measure_of(metric)) is not None:
        n = result.number
        return {
            "autkc": f"mean of top-1 to top-{n} accuracy",
            "average": f"average-{n} accuracy",
            "size": f"mean set size at {n} % coverage",
            **ERRORS,
        }[result.kind]
    group, _, k = metric.rpartition("top")
    shots = {f"{name}_": f"{name}-shot macro-average " for name in GROUPS}
    kind = {"": "", "macro_": "macro-average ", **shots}[group]
    return f"{kind}top-{k} accuracy"


def metric_title(metric: str) -> str:
    """Return a metric's name with its unit.

    Example:
        >>> metric_title("macro_top3")
        'macro-average top-3 accuracy, %'
    """
    return f"{title_of(metric)}, {unit_of(metric)}"


def number(estimate: Estimate, signed: bool = False, metric: str = "") -> str:
    """Return a mean with its interval; an asymmetric interval is given by both ends.

    Args:
        estimate: The estimate.
        signed: Whether it is a difference, which has a sign.
        metric: The metric, which decides the unit and the digits. By default they are those of accuracies: percent,
            or points for a difference.
    """
    scale, digits = scale_of(metric), digits_of(metric)
    mean = f"{scale * estimate.mean:{'+' if signed else ''}.{digits}f}"
    if math.isnan(estimate.half_width):
        return mean
    if estimate.is_uneven:
        return f"{mean} [{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"
    return f"{mean} ± {scale * estimate.half_width:.{digits}f}"


def points(size: float) -> str:
    """Return a tolerance in words, such as "1 point" or "0.5 points"."""
    return f"{size:g} point{'' if size == 1 else 's'}"


def in_range(numbers: Sequence[int]) -> str:
    """Return counts in words: a single number if all are equal, or else the smallest and the largest.

    Example:
        >>> in_range([1240, 1240]), in_range([310, 1240])
        ('1,240', '310 to 1,240')
    """
    few, many = (f"{end(numbers):,}" for end in (min, max))
    return few if few == many else f"{few} to {many}"


def command(name: str, study: Study, *arguments: str, given: Mapping[str, str]) -> str:
    """Return a command about a study as a user types it.

    For a smoke run, it has ``--smoke`` and the name of the study without the suffix. If the study has another budget
    than its definition, it has the options that changed it.

    Args:
        name: The name of the command.
        study: The study. The command names it by its reference, or by its name if it has none.
        arguments: The arguments after the study.
        given: Where the results, the data and the cluster are, as the user typed it: ``store``, ``data`` and
            ``address``. The command has those that it takes.
    """
    own = study.name.removesuffix(SMOKE)
    smoke = ["--smoke"] if own != study.name else []
    changed = (option for option in (() if name == "sync" else _BUDGET) if option in study.changed)
    budget = [word for option in changed for word in (f"--{option}", str(getattr(study, option)))]
    taken = ("store", "data", "address") if name == "run" else ("store",)
    locations = {option: given.get(option, "") for option in taken}
    where = [
        word
        for option, location in locations.items()
        if location and (option, location) != ("store", _STORE)
        for word in (f"--{option}", shlex.quote(masked(location)))
    ]
    return " ".join(["topk", name, study.reference or own, *arguments, *budget, *where, *smoke])


def ui_command(*, given: Mapping[str, str]) -> str:
    """Return the command that opens MLflow on the runs of a store; ``given`` is as for :func:`command`."""
    store = given.get("store", "")
    return "topk ui" if store in ("", _STORE) else f"topk ui --store {shlex.quote(masked(store))}"


def only_words(globs: Sequence[str]) -> list[str]:
    """Return the arguments of a command that choose arms.

    Example:
        >>> only_words(["clean/*", "*/svm"])
        ['--only', "'clean/*'", '--only', "'*/svm'"]
    """
    return [word for glob in globs for word in ("--only", shlex.quote(glob))]


def more_searches(study: Study, *, given: Mapping[str, str]) -> str:
    """Return the command that searches a study's arms at least three times.

    Args:
        study: The study.
        given: As for :func:`command`.
    """
    return command("run", study.with_budget(searches=max(_ENOUGH, study.searches)), given=given)


def rounded_in(text: str) -> str:
    """Return a text, such as the ``repr`` of a spec, with its long numbers rounded to three digits.

    Example:
        >>> rounded_in("Recipe(epochs=30, learning_rate=0.04520469449210724, eps=1.0000000000000001e-08)")
        'Recipe(epochs=30, learning_rate=0.0452, eps=1e-08)'
    """
    return _LONG.sub(lambda number: rounded(float(number[0])), text)
