"""The questions of the checklist, and the functions that answer them from a study's definition and its ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

from topk_platform.records import Row, Tally
from topk_platform.reports.plain_text import markdown_table
from topk_platform.reports.tables.legend import counted, covered
from topk_platform.reports.tables.markdown import configurations
from topk_platform.reports.tables.notes import once, without_ranks
from topk_platform.reports.words import rounded, rounded_in
from topk_platform.results.from_store import Held
from topk_platform.specs import Choice, Dimension, Study
from topk_platform.specs.checks import plural

__all__ = ["ANSWERS"]


def _counting(held: Held) -> list[Row]:
    """Return the rows of all trials that count."""
    return [row for arm in held.results.values() for row in arm.counting()]


def _data(held: Held) -> str:
    prints = {
        history.arm.regime.name: row["dataset_fingerprint"]
        for history in held.histories.values()
        for row in history.rows()
    }
    seen = {arm.regime.name: arm.regime for arm in held.study.arms}
    return markdown_table(
        ("regime", "dataset", "conditions on the training split", *_SPLITS, "fingerprint"),
        [
            (
                name,
                " ".join([regime.dataset, *(f"{k}={v}" for k, v in regime.options.items())]),
                ", ".join(rounded_in(repr(condition)) for condition in regime.conditions) or "none",
                *_sizes(held, name),
                prints.get(name, ""),
            )
            for name, regime in seen.items()
        ],
    )


_SPLITS = (
    *("classes", "training samples", "of these in a class", "wrong training labels"),
    *("validation samples", "test samples"),
)


def _sizes(held: Held, regime: str) -> Sequence[str]:
    """Return the numbers of samples of a regime, if a run has recorded them."""
    note = held.data.get(regime)
    if note is None:
        return ["–"] * len(_SPLITS)
    one = note.samples
    groups = f" of {one.groups}" if one.groups else ""
    aside = f" and {one.calibration:,} for calibration" if one.calibration else ""
    return (
        f"{one.classes:,}",
        f"{one.train:,}",
        one.each,
        f"{one.wrong:.1%}",
        f"{one.validation:,}{aside}",
        f"{one.test:,}{groups}",
    )


def _models(held: Held) -> str:
    models = {arm.model.label: arm.model for arm in held.study.arms}
    return "\n".join(
        rounded_in(f"- {label}: {model.name} {dict(model.options) or ''}".rstrip())
        for label, model in models.items()
    )


def _recipes(held: Held) -> str:
    lines = Counter(rounded_in(repr(arm.recipe)) for arm in held.study.arms)
    return "\n".join(f"- {text} ({plural(count, 'arm')})" for text, count in lines.items())


def _range(dimension: Dimension) -> str:
    if isinstance(dimension, Choice):
        return f"one of {', '.join(map(rounded, dimension.options))}"
    return f"{rounded(dimension.low)} to {rounded(dimension.high)}{', logarithmic' if dimension.log else ''}"


def _spaces(held: Held) -> str:
    rows = dict.fromkeys(
        (arm.loss.label, name, _range(dimension), rounded(arm.loss.first[name]))
        for arm in held.study.arms
        for name, dimension in arm.loss.space.items()
    )
    fixed = dict.fromkeys(
        (arm.loss.label, name, "fixed", rounded(value))
        for arm in held.study.arms
        for name, value in arm.loss.fixed.items()
    )
    if not rows and not fixed:
        return "No parameter of a loss is searched or set. The recipe has all values."
    return markdown_table(("loss", "parameter", "range", "first value"), [*rows, *fixed])


def _search(held: Held) -> str:
    arms = [arm for arm in held.study.arms if arm.is_searched]
    if not arms:
        return "Nothing was searched: the study gives every arm one configuration."
    parts = Counter(rounded_in(repr(arm.protocol)) for arm in arms)
    ended = Tally.of(row["status"] for row in _counting(held) if row["phase"] == "search")
    searches = held.study.searches
    times = (
        "once"
        if searches == 1
        else f"{searches} times, with {plural(held.study.trials // searches, 'trial')} each"
    )
    lines = [
        f"Every arm that searches has the same budget of {plural(held.study.trials, 'trial')}; each was searched "
        f"{times}.",
        f"{ended.ended} search trials have ended: {ended.completed} completed, {ended.pruned} stopped early, "
        f"{ended.diverged} diverged, {ended.failed} failed.",
        *(f"{text} ({plural(count, 'arm')})." for text, count in parts.items()),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _selection(held: Held) -> str:
    metrics = sorted({arm.metric for arm in held.study.arms})
    kept = sorted({metric for arm in held.study.arms for metric in arm.recipe.keep})
    weights = [f"those of the epoch with the best validation {', '.join(kept)}"] if kept else []
    if not all(arm.recipe.keep for arm in held.study.arms):
        weights.append(f"{'where a recipe keeps none of these, ' if kept else ''}those of the last epoch")
    return (
        f"By {', '.join(metrics)} on the validation split alone. The chosen configuration is trained again with fresh "
        "seeds. Each of them scores the test split once; search trials never do. The tested weights are "
        f"{'; '.join(weights)}."
    )


def _best(held: Held) -> str:
    return configurations(held.table) if held.table.choices else "Nothing was searched."


def _seeds(held: Held) -> str:
    result = Tally.of(row["status"] for row in _counting(held) if row["phase"] == "confirm")
    return (
        f"{plural(held.study.seeds, 'fresh seed')} per arm, the same in all arms; root of all random streams: "
        f"{held.study.seed}. {result.ended} confirmations have ended, {result.completed} completed, {result.diverged} "
        f"diverged, {result.failed} failed. A seed decides label noise, initial weights, batches, augmentation and the "
        "loss's noise."
    )


def _bars(held: Held) -> str:
    parts = ("95 % intervals.", covered(held.table), without_ranks(held.table), _tests(held))
    return " ".join(filter(None, parts))


def _tests(held: Held) -> str:
    if held.study.baseline is None:
        return "No differences are tested."
    paired = f"Differences to {held.study.baseline} are paired by seed, and by image where the interval covers images"
    if not held.table.tests:
        return f"{paired}. {once(held.table) or 'None is tested yet.'}"
    marks = (
        f"{paired}; marks are Holm-corrected over the {counted(held.table)} in the metric of the search (every other "
        "metric is a secondary family), two-sided, at 0.05."
    )
    return " ".join(filter(None, (marks, once(held.table))))


def _compute(held: Held) -> str:
    counted = {row["key"] for row in _counting(held)}
    seconds: dict[str, list[float]] = {}
    besides = 0.0
    for history in held.histories.values():
        for row in history.rows():
            # A member's time is that of its ensemble.
            share = row["train_seconds"] / history.arm.protocol.ensemble
            seconds.setdefault(row["phase"], []).append(share)
            besides += share * (row["key"] not in counted)
    rows = [
        (phase, str(len(result)), f"{sum(result) / 3600:.2f}", f"{sum(result) / len(result):.1f}")
        for phase, result in sorted(seconds.items(), reverse=True)
    ]
    if not rows:
        return "No training has ended."
    part = f", each on {_part(held.study)}" if held.study.device == "cuda" else ""
    return (
        f"{markdown_table(('phase', 'trainings', 'hours in all', 'seconds each'), rows)}\n\n"
        f"Hours of training on {held.study.device}{part}, with {plural(held.study.threads, 'thread')}; of these, "
        f"{besides / 3600:.2f} hours went into trainings that the tables do not count. "
        f"{sum(held.table.outdated.values())} recorded trials were made with other code, data or definitions, or on "
        "other machines."
    )


def _part(study: Study) -> str:
    if study.gpus == "auto":
        return "a GPU, shared by as many trials as fit into its memory"
    return f"{study.gpu_share:g} of a GPU"


def _versions(held: Held) -> str:
    noted = [json.loads(row["versions"] or "{}") for row in _counting(held)]
    names = sorted({name for versions in noted for name in versions})
    lines = []
    for name in names:
        counts = Counter(str(versions[name]) for versions in noted if name in versions)
        lines.append(
            f"- {name}: {', '.join(f'{value} ({count} trials)' for value, count in counts.most_common())}"
        )
    codes = Counter(row["code_version"] for row in _counting(held))
    lines += [f"- code version: {', '.join(codes)}"] if codes else []
    return "\n".join(lines)


def _failures(held: Held) -> str:
    ended = Counter(
        (arm.arm.name, row["status"])
        for arm in held.results.values()
        for row in arm.counting()
        if row["status"] in ("diverged", "failed")
    )
    if not ended:
        return "No trial that counts diverged or failed."
    return markdown_table(
        ("arm", "how", "trials"), [(arm, status, str(n)) for (arm, status), n in sorted(ended.items())]
    )


def _published(held: Held) -> str:
    sources = dict.fromkeys(number.source for number in held.study.published)
    return f"Numbers from {'; '.join(sources)} are shown beside ours." if sources else "None."


def _nothing(_held: Held) -> str:
    return ""


ANSWERS: dict[str, Callable[[Held], str]] = {
    "Which data were used, and how were they changed?": _data,
    "Which models were trained?": _models,
    "How were they trained?": _recipes,
    "Which hyperparameters were searched, within which bounds?": _spaces,
    "How were hyperparameters searched, and with which budget?": _search,
    "How were the reported configurations selected?": _selection,
    "Which values were selected?": _best,
    "How many runs were made, and with which seeds?": _seeds,
    "What do error bars and significance marks cover?": _bars,
    "How much compute was used, preliminary and failed runs included?": _compute,
    "Which hardware and which software versions were used?": _versions,
    "Which trials failed?": _failures,
    "Which published numbers are shown?": _published,
    "Which licences do the data and the models have, and did the people in the images consent?": _nothing,
    "What are the limitations, and what should the results not be used for?": _nothing,
}
"""The function that answers each question, in Markdown, by the question."""
