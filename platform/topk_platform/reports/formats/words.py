"""The words of a table: its numbers, what a cell lacks, and the explanatory lines below it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from topk_platform.identity import counts_in_words
from topk_platform.records import Tally
from topk_platform.reports.cells import Cell
from topk_platform.reports.edges import edges_told
from topk_platform.reports.kinds import unlike_told
from topk_platform.reports.statistics import Covers, Estimate, Ranking
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
    "counted_seeds",
    "covered",
    "detectable",
    "difference",
    "legend",
    "lost",
    "mark",
    "mean",
    "metric_title",
    "missing",
    "notes",
    "number",
    "once",
    "partial",
    "points",
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

_UP, _DOWN, _ALIKE = "▲", "▼", "≈"
_MARKS = {True: {"": "", "better": _UP, "worse": _DOWN}, False: {"": "", "better": "△", "worse": "▽"}}
_UNEVEN = 0.2
_LEVEL = 0.05  # of the marks
_ERRORS = {
    "brier": "Brier score",
    "ece": "expected calibration error",
    "nll": "negative log-likelihood",
}
_ONCE = "one search"


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
    """Return how many seeds a cell's mean is over, whether its arm was searched once, and whether it dropped out."""
    if cell.value is None:
        return ""
    return f"({', '.join(filter(None, (counted_seeds(cell.value), 'dropped out' if cell.stopped else '')))})"


def counted_seeds(found: Estimate) -> str:
    """Return how many seeds an estimate is over, and whether it rests on a single search."""
    return f"n = {found.n}{f', {_ONCE}' if found.once else ''}"


def mark(cell: Cell) -> str:
    """Return a cell's signs: ▲ or ▼, hollow in a secondary metric, and ≈ where it is equivalent to the baseline."""
    return " ".join(filter(None, (_MARKS[cell.primary][cell.mark], _ALIKE if cell.equivalent else "")))


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
    pairs, value = cell.difference, cell.value
    same = value is not None and value.n == pairs.n
    said = ["" if same else f"n = {pairs.n}", _ONCE if pairs.once and value and not value.once else ""]
    behind = f" ({', '.join(filter(None, said))})" if any(said) else ""
    return f"{number(pairs, signed=True, metric=cell.metric)}{behind} {mark(cell)}".rstrip()


def notes(table: Table) -> list[str]:
    """Return the lines that explain the numbers and what they leave out."""
    lines = [
        legend(table),
        partial(table),
        once(table),
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
    "seeds, one search": "fresh seeds alone, not the choice of the test images, and not the luck of the search, "
    "which was made once",
    "seeds and images, one search": "fresh seeds and other test images; not the luck of the search, which was made "
    "once",
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
    if not table.tests and not table.once:
        return f"{text}, which is tested from three seeds on."
    return f"{text}{_marks(table)}{_equivalence(table)}."


def _marks(table: Table) -> str:
    """Return what the marks mean, as far as there are any."""
    if not table.tests:
        return ""
    shown = [cell for place, cell in table.cells.items() if place[2] in table.study.show]
    secondary = any(not cell.primary and cell.p_holm is not None for cell in shown)
    also = "; △▽: the same for all of a metric that no arm was selected by" if secondary else ""
    return (
        f"; {_UP}{_DOWN}: p below 0.05 after Holm's correction for the {counted(table)} in the metric of the "
        f"search, over three seeds or more{also}"
    )


def _less(metric: str) -> str:
    return _ERRORS.get(metric, "sets")


def _equivalence(table: Table) -> str:
    tolerance = table.study.equivalence
    if not tolerance or not table.tests:
        return ""
    return f"; {_ALIKE}: shown to lie within {points(tolerance)}, by two one-sided tests, corrected likewise"


def points(size: float) -> str:
    """Return a tolerance in words, such as "1 point" or "0.5 points"."""
    return f"{size:g} point{'' if size == 1 else 's'}"


def once(table: Table) -> str:
    """Return the line that says what is not tested because an arm was searched once, and how to change that."""
    if not table.once:
        return ""
    return (
        "Not tested: differences between losses of which one was searched once. Another search may choose otherwise, "
        "and no interval of one search covers that. "
        f"`topk run {table.study.name} --searches 3` adds the searches that are missing."
    )


def detectable(table: Table, metric: str) -> str:
    """Return the line that says how large a difference would have been seen, or nothing where none could be tested."""
    cells = [
        cell for place, cell in table.cells.items() if place[2] == metric and cell.detectable is not None
    ]
    sizes = sorted(cell.detectable for cell in cells if cell.detectable is not None)
    if not sizes:
        return ""
    where = f"in half of the {len(sizes)} cells, one of {_size(metric, sizes[-1])} in all"
    text = f"A true difference of {_size(metric, sizes[len(sizes) // 2])} has a chance of 80 % to be marked"
    text += f" {where}" if len(sizes) > 1 else ""
    if all(cell.difference is not None and cell.difference.once for cell in cells):
        text = text.replace("has a chance", "would have a chance")
        return f"{text}, if the search had no luck; as it was made once, none is."
    return f"{text}."


def _size(metric: str, size: float) -> str:
    digits = 1 if unit_of(metric, difference=True) == "points" else 2
    return f"{scale_of(metric) * size:.{digits}f} {unit_of(metric, difference=True)}"


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
    units = set(table.units.values())
    return (first + rest).replace("test images", units.pop() if len(units) == 1 else "test images") + "."


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
    counts: dict[str, list[int]] = {}
    for column, number in table.tested.items():
        counts.setdefault(table.units.get(column, "test images"), []).append(number)
    return ", ".join(f"{_range(numbers)} {what}" for what, numbers in counts.items())


def _range(numbers: Sequence[int]) -> str:
    few, many = (f"{end(numbers):,}" for end in (min, max))
    return few if few == many else f"{few} to {many}"


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
    return (
        f"{sum(table.outdated.values())} recorded trials are not counted: {counts_in_words(table.outdated)}."
    )


def _environments(table: Table) -> str:
    """Return the line that says that trials were made in several environments, or nothing."""
    if not table.environments:
        return ""
    counts = counts_in_words(table.environments)
    return f"Machines or versions differ, and with them the last bits of results: {counts}."


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
        f"apart than {found.critical:.1f} differ (Nemenyi, 0.05 over all pairs). {_first(found)}"
    )


def _first(found: Ranking) -> str:
    """Return what the ranking shows of the row with the best mean rank."""
    best, *others = found.mean_ranks
    level = [name for name in others if found.mean_ranks[name] - found.mean_ranks[best] <= found.critical]
    if not level:
        return f"{best} ranks above all others."
    if len(level) == len(others):
        return f"{best} has the best mean rank, but is not shown to rank above any other."
    return f"{best} has the best mean rank, but is not shown to rank above {', '.join(level)}."


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
    lines = (
        partial(table),
        once(table),
        lost(table),
        without_ranks(table),
        *map(_fruitless, table.fruitless),
    )
    return list(filter(None, lines))
