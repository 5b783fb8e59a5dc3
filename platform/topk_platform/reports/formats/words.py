"""The words of a table: its numbers, what a cell lacks, and the explanatory lines below it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from topk_platform.identity import told
from topk_platform.records import Tally
from topk_platform.reports.cells import Cell
from topk_platform.reports.edges import edges_told
from topk_platform.reports.kinds import unlike_told
from topk_platform.reports.statistics import Covers, Estimate
from topk_platform.reports.table import Fruitless, Table
from topk_platform.specs import Published, Scalar, Study
from topk_platform.specs.checks import first_few
from topk_platform.specs.metric_names import (
    GROUPS,
    digits_of,
    less_is_better,
    measure_of,
    scale_of,
    unit_of,
)

__all__ = [
    "count",
    "counted",
    "covered",
    "difference",
    "legend",
    "lost",
    "mean",
    "metric_title",
    "missing",
    "notes",
    "number",
    "partial",
    "probability",
    "published",
    "ranked",
    "setting",
    "settings",
    "striking",
    "tested",
    "title_of",
    "without_ranks",
]

_UP, _DOWN = "▲", "▼"
_UNEVEN = 0.2
_LEVEL = 0.05  # of the marks
_ERRORS = {
    "brier": "Brier score",
    "ece": "expected calibration error",
    "nll": "negative log-likelihood",
}
_MARKS = {"": "", "better": _UP, "worse": _DOWN}


def title_of(metric: str) -> str:
    """Return a metric's name without a unit.

    Example:
        >>> title_of("macro_top3"), title_of("few_top5")
        ('macro-average top-3 accuracy', 'few-shot macro-average top-5 accuracy')
        >>> title_of("autkc5"), title_of("average5"), title_of("size95")
        ('mean of top-1 to top-5 accuracy', 'average-5 accuracy', 'mean set size at 95 % coverage')
    """
    if (found := measure_of(metric)) is not None:
        n = found.number
        return {
            "autkc": f"mean of top-1 to top-{n} accuracy",
            "average": f"average-{n} accuracy",
            "size": f"mean set size at {n} % coverage",
            **_ERRORS,
        }[found.kind]
    group, _, k = metric.rpartition("top")
    shots = {f"{name}_": f"{name}-shot macro-average " for name in GROUPS}
    kind = {"": "", "macro_": "macro-average ", **shots}[group]
    return f"{kind}top-{k} accuracy"


def metric_title(metric: str) -> str:
    """Return a metric's heading.

    Example:
        >>> metric_title("macro_top3")
        'macro-average top-3 accuracy, %'
    """
    return f"{title_of(metric)}, {unit_of(metric)}"


def number(found: Estimate, signed: bool = False, metric: str = "") -> str:
    """Return a mean with its interval; as both ends if the interval is asymmetric.

    Args:
        found: The estimate.
        signed: Whether it is a difference.
        metric: Decides the unit: by default, as for accuracies, percent or points.
    """
    scale, digits = scale_of(metric), digits_of(metric)
    mean = f"{scale * found.mean:{'+' if signed else ''}.{digits}f}"
    if math.isnan(found.half_width):
        return mean
    if abs(found.skew) > _UNEVEN * found.half_width:
        return f"{mean} [{scale * found.low:.{digits}f}, {scale * found.high:.{digits}f}]"
    return f"{mean} ± {scale * found.half_width:.{digits}f}"


def mean(cell: Cell) -> str:
    """Return a cell's mean with its interval."""
    return "–" if cell.value is None else number(cell.value, metric=cell.metric)


def count(cell: Cell) -> str:
    """Return how many seeds a cell's mean is over, and whether its arm dropped out of a race."""
    stopped = ", dropped out" if cell.stopped else ""
    return "" if cell.value is None else f"(n = {cell.value.n}{stopped})"


def missing(cell: Cell) -> str:
    """Return which runs a cell lacks because they diverged or failed; empty if none."""
    if cell.confirmed.lost:
        return f"({_ends(cell.confirmed, 'seeds')}{', dropped out' if cell.stopped else ''})"
    fruitless = cell.searched.ended and not cell.searched.completed
    return f"({_ends(cell.searched, 'search trials')})" if fruitless else ""


def _ends(tally: Tally, what: str) -> str:
    counts = {"pruned": tally.pruned, "diverged": tally.diverged, "failed": tally.failed}
    parts = [f"{tally.completed} of {tally.ended} {what}"]
    return ", ".join(parts + [f"{count} {name}" for name, count in counts.items() if count])


def published(number: Published) -> str:
    """Return a paper's number, with its standard deviation labelled "sd", not to be taken for an interval."""
    told = [
        number.split if number.split != "test" else "",
        "" if number.spread is None else f"sd {number.spread:.1f}",
        "" if number.runs is None else f"n = {number.runs}",
    ]
    details = ", ".join(filter(None, told))
    return f"published {number.value:.1f}" + (f" ({details})" if details else "")


def difference(cell: Cell) -> str:
    """Return a cell's difference to the baseline with its mark, or nothing."""
    if cell.difference is None:
        return ""
    pairs = cell.difference.n
    count = "" if cell.value is not None and cell.value.n == pairs else f" (n = {pairs})"
    return f"{number(cell.difference, signed=True, metric=cell.metric)}{count} {_MARKS[cell.mark]}".rstrip()


def notes(table: Table) -> list[str]:
    """Return the lines that explain the numbers and what they leave out."""
    lines = [
        legend(table),
        partial(table),
        _raced(table),
        lost(table),
        without_ranks(table),
        *map(_fruitless, table.fruitless),
        edges_told(table.edges),
        _uncounted(table),
        _environments(table),
        _adopted(table),
        _choosers(table),
        unlike_told(table.unlike, table.study.baseline),
        _sources(table),
    ]
    return [line for line in lines if line]


_COVERED: dict[Covers, str] = {
    "seeds": "fresh seeds alone, not the choice of the test images",
    "seeds and images": "fresh seeds and other test images",
    "searches and seeds": "repeated searches and fresh seeds, not the choice of the test images",
    "searches, seeds and images": "repeated searches, fresh seeds and other test images",
}


def legend(table: Table) -> str:
    """Return the line that explains ± and the marks."""
    text = (
        "Test accuracy: the mean over seeds ± half the width of its 95 % interval; the best mean of a column is "
        f"marked. {covered(table)}"
    )
    if any(map(less_is_better, table.study.show)):
        fewer = ", ".join(dict.fromkeys(map(_less, filter(less_is_better, table.study.show))))
        text += f" Of {fewer} less is better: the smallest mean is marked, and {_UP} marks smaller ones."
    if table.study.baseline is None:
        return text
    text = f"{text} Below a mean, its difference to {table.study.baseline} over the same seeds"
    if not table.tests:
        return f"{text}, which is tested from three seeds on."
    return (
        f"{text}; {_UP}{_DOWN}: p below 0.05 after Holm's correction for the {counted(table)} of a metric "
        "over three seeds or more."
    )


def _less(metric: str) -> str:
    return _ERRORS.get(metric, "sets")


def partial(table: Table) -> str:
    """Return the line that says that some trials have not ended, where others have, or nothing."""
    if not table.left or not (table.choices or table.confirmed.ended):
        return ""
    return f"Partial: {table.left} trials have not ended yet."


def _raced(table: Table) -> str:
    """Return the line that says by which rule arms dropped out, or nothing if none did."""
    racing = table.study.racing
    if racing is None or not any(cell.stopped for cell in table.cells.values()):
        return ""
    return (
        f"Dropped out: from seed {racing.first} on, an arm is confirmed no further that is behind the leader of its "
        f"regime and model by validation over the same seeds, Wilcoxon, one-sided, p ≤ {racing.level:g}, tested again "
        "at every round of seeds. It is not marked best."
    )


def covered(table: Table) -> str:
    """Return what the intervals cover, the most frequent first, and what they leave out."""
    counts = Counter(
        cell.value.covers
        for (_, _, metric), cell in table.cells.items()
        if cell.value is not None and cell.value.n > 1 and metric in table.study.show
    )
    said = [_COVERED[covers] for covers, _ in counts.most_common()]
    if not said:
        return "An interval needs two seeds or more."
    first = f"Intervals cover {said[0]}"
    rest = "".join(f"; those of {n} cells {_COVERED[covers]}" for covers, n in counts.most_common()[1:])
    once = any(arm.is_searched and arm.repeats.count == 1 for arm in table.study.arms)
    return first + rest + ("; not the luck of the search, which was made once." if once else ".")


def lost(table: Table) -> str:
    """Return the line that says how many confirmations have no result, or nothing."""
    found = table.confirmed
    if not found.ended:
        coming = len(table.fruitless) < len(table.confirmations)
        return "No confirmation has ended yet: there are no numbers of ours." if coming else ""
    if not found.lost:
        return ""
    counts = {"diverged": found.diverged, "failed": found.failed}
    told = " and ".join(f"{count} {name}" for name, count in counts.items() if count)
    return (
        f"Of {found.ended} confirmations, {told}. A mean is that of the seeds that were completed; where others were "
        f"not, it is marked neither best nor {_UP}, nor is a difference to it {_DOWN}."
    )


def without_ranks(table: Table) -> str:
    """Return the line that says how many confirmations lack the ranks that intervals need, or nothing."""
    if not table.without_ranks:
        return ""
    return (
        f"Of {table.confirmed.completed} confirmations, {table.without_ranks} lack the ranks of their test images: "
        "intervals over those leave out the choice of the test images, and may be too narrow. `topk run` trains these "
        "confirmations again."
    )


def _selected(study: Study) -> str:
    """Return the words for how configurations were selected."""
    whose = "each loss" if all(arm.is_searched for arm in study.arms) else "each loss that is searched"
    if study.searches == 1:
        return f"the configuration of {whose} is the best of {study.trials} trials on validation data"
    each = study.trials // study.searches
    best = f"the best of {each} trials on validation data"
    return f"{whose} is searched {study.searches} times, and each time {best} is chosen"


def setting(table: Table) -> str:
    """Return the sentence that says under which conditions the numbers came about: K, trials, seeds, test images.

    The number of test images is told where it is known.
    """
    study = table.study
    ks = sorted({arm.k for arm in study.arms})
    searched = [arm for arm in study.arms if arm.is_searched]
    parts = [
        f"K = {', '.join(map(str, ks))}",
        _selected(study) if searched else "",
        f"{'up to ' if study.racing else ''}{study.seeds} fresh seeds for each mean",
        _tested_on(table),
    ]
    return f"{'; '.join(filter(None, parts))}."


def _tested_on(table: Table) -> str:
    if not table.tested:
        return ""
    few, many = (f"{end(table.tested.values()):,}" for end in (min, max))
    return f"{few if few == many else f'{few} to {many}'} test images"


def _fruitless(found: Fruitless) -> str:
    """Return the line about an arm that will have no result, however often it is run."""
    searched = found.phase == "search"
    told = _ends(found.ends, "search trials" if searched else "confirmations")
    more = ", so there is no configuration to confirm" if searched else ""
    retry = ", but with --retry-failed" if found.ends.failed else ""
    return (
        f"No result of {found.arm}: {told}{more}. Running it again changes nothing{retry}. "
        f"The first of them, {found.key}: {found.reason}."
    )


def _uncounted(table: Table) -> str:
    if not table.outdated:
        return ""
    return f"{sum(table.outdated.values())} recorded trials are not counted: {told(table.outdated)}."


def _environments(table: Table) -> str:
    """Return the line that says that trials were made in several environments, or nothing."""
    if not table.environments:
        return ""
    return f"Machines or versions differ, and with them the last bits of results: {told(table.environments)}."


def _adopted(table: Table) -> str:
    """Return the line that says how many trials were made by other code or elsewhere and why they count."""
    if not table.adopted:
        return ""
    why = "; ".join(f"{count}: {evidence}" for evidence, count in table.adopted.items())
    return f"Adopted, from other code or another machine, are {sum(table.adopted.values())} trials. {why}."


def _choosers(table: Table) -> str:
    """Return the line that says which versions of a package chose the trials of a search, or nothing."""
    if not table.choosers:
        return ""
    told = {
        f"{row}, {column}": ", ".join(
            f"from trial {number} on {version}" for number, version in found.items()
        )
        for (row, column), found in table.choosers.items()
    }
    alike: dict[str, list[str]] = {}
    for place, versions in told.items():
        alike.setdefault(versions, []).append(place)
    said = "; ".join(f"{first_few(places, 3)}: {versions}" for versions, places in alike.items())
    return f"Searches that several versions chose for, which one version would not repeat: {said}."


def _sources(table: Table) -> str:
    """Return the line that says where the published numbers stand, or nothing if there are none."""
    numbers = [cell.published for cell in table.cells.values() if cell.published is not None]
    if not numbers:
        return ""
    line = f"Published: {'; '.join(dict.fromkeys(number.source for number in numbers))}."
    if any(number.spread is not None for number in numbers):
        line += " sd is the standard deviation over its n runs, not an interval."
    if any(number.split == "validation" for number in numbers):
        line += " Where it says validation, the paper scored that split, and not the test split as here."
    return line


def probability(value: float) -> str:
    """Return a p-value with two digits, or with as many as show on which side of 0.05 it lies; it is never 0.

    Example:
        >>> probability(0.0123), probability(0.0497), probability(0.0)
        ('p = 0.012', 'p = 0.0497', 'p < 0.001')
    """
    if value < 0.001:
        return "p < 0.001"
    rounded = (f"{value:.{digits}g}" for digits in range(2, 18))
    return f"p = {next(text for text in rounded if (float(text) < _LEVEL) == (value < _LEVEL))}"


def ranked(table: Table, metric: str) -> str:
    """Return the line that says how the rows rank over the columns, or nothing where these are too few."""
    found = table.ranking(metric)
    if found is None:
        return ""
    ranks = ", ".join(f"{name} {rank:.1f}" for name, rank in found.mean_ranks.items())
    return (
        f"Mean ranks in {found.regimes} {table.across}s: {ranks}. Friedman's {probability(found.p)}; ranks further "
        f"apart than {found.critical:.1f} differ (Nemenyi, 0.05 over all pairs)."
    )


def settings(values: Mapping[str, Scalar]) -> str:
    """Return a configuration in a line."""
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def tested(found: Estimate | None) -> str:
    """Return an estimate with its n."""
    return "–" if found is None else f"{number(found)} (n = {found.n})"


def counted(table: Table) -> str:
    """Return in words how many differences of a metric a table tests, such as "1 difference" or "6 differences"."""
    return f"{table.tests} difference{'' if table.tests == 1 else 's'}"


def striking(table: Table) -> list[str]:
    """Return the notes that nobody should overlook: results missing so far, and results that will stay missing."""
    lines = (partial(table), lost(table), without_ranks(table), *map(_fruitless, table.fruitless))
    return list(filter(None, lines))
