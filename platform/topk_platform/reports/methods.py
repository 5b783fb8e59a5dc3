"""How a study was done, from its definition and its ledger: as tables of texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from topk_platform.protocol import Tally
from topk_platform.records.rows import Row
from topk_platform.reports.text_tables import TextTable
from topk_platform.reports.words import rounded_in
from topk_platform.results.from_store import Held
from topk_platform.specs import Choice, Dimension, Loss, Study
from topk_platform.specs.checks import plural, rounded

__all__ = ["methods"]

_DATA = (
    *("regime", "dataset", "conditions on the training split", "classes", "training samples"),
    *("of these in a class", "labels made wrong", "validation samples", "test samples", "fingerprint"),
)
_LABELS = (
    "Labels made wrong are those that conditions of the study changed. Labels that are wrong in the data themselves "
    "count as right everywhere: where all splits come from one source, those of validation and test are as wrong as "
    "those of training."
)


def methods(held: Held) -> list[TextTable]:
    """Return a study's methods: data, search spaces, training, selection, seeds, machines, versions, code.

    Args:
        held: The study's results in its store.
    """
    counting = [row for arm in held.results.values() for row in arm.counting()]
    facts = [*_training(held.study), *_search(held.study, counting), *_computation(held, counting)]
    spaces = _spaces(held.study)
    return [_data(held), *([spaces] if spaces.rows else []), TextTable("Protocol", ("what", "how"), facts)]


def _data(held: Held) -> TextTable:
    histories = held.histories.values()
    prints = {h.arm.regime.name: row["dataset_fingerprint"] for h in histories for row in h.rows()}
    rows = []
    for name, regime in {arm.regime.name: arm.regime for arm in held.study.arms}.items():
        dataset = " ".join([regime.dataset, *(f"{k}={v}" for k, v in regime.options.items())])
        conditions = ", ".join(rounded_in(repr(condition)) for condition in regime.conditions) or "none"
        sizes = ["–"] * 6
        if note := held.data.get(name):
            samples = note.samples
            wrong = f"{samples.wrong:.1%}" if samples.wrong else "none added"
            tested = f"{samples.test:,}{f' of {samples.groups}' if samples.groups else ''}"
            sizes = [
                f"{samples.classes:,}",
                f"{samples.train:,}",
                samples.each,
                wrong,
                f"{samples.validation:,}",
                tested,
            ]
        rows.append((name, dataset, conditions, *sizes, prints.get(name, "")))
    notes = [f"{name}: {note}." for name, data in held.data.items() for note in data.notes]
    return TextTable("Data", _DATA, rows, " ".join([_LABELS, *notes]), numbers=_DATA[3:9])


def _range(dimension: Dimension) -> str:
    if isinstance(dimension, Choice):
        return f"one of {', '.join(map(rounded, dimension.options))}"
    return f"{rounded(dimension.low)} to {rounded(dimension.high)}{', logarithmic' if dimension.log else ''}"


def _given(loss: Loss, name: str) -> str:
    """Return the values of a dimension in the trials whose values the study gives."""
    points = (loss.first, *loss.then)
    return ", ".join(rounded(point[name]) if name in point else "not active" for point in points)


def _spaces(study: Study) -> TextTable:
    losses = [arm.loss for arm in study.arms]
    rows = [(o.label, n, _range(d), _given(o, n)) for o in losses for n, d in o.space.items()]
    rows += [(o.label, n, "fixed", rounded(value)) for o in losses for n, value in o.fixed.items()]
    return TextTable(
        "Search spaces", ("loss", "parameter", "range", "first value"), list(dict.fromkeys(rows))
    )


_Facts = Iterator[tuple[str, str]]


def _training(study: Study) -> _Facts:
    for label, model in {arm.model.label: arm.model for arm in study.arms}.items():
        yield f"model {label}", rounded_in(f"{model.name} {dict(model.options) or ''}".rstrip())
    for text, count in Counter(rounded_in(repr(arm.recipe)) for arm in study.arms).items():
        yield f"recipe of {plural(count, 'arm')}", text
    yield (
        "tested weights",
        "of the last epoch; where a recipe keeps metrics, of the epoch with the best validation",
    )


def _search(study: Study, counting: Sequence[Row]) -> _Facts:
    searched = [arm for arm in study.arms if arm.is_searched]
    for text, count in Counter(rounded_in(repr(arm.protocol)) for arm in searched).items():
        yield f"search of {plural(count, 'arm')}", text
    if searched:
        each = plural(study.trials // study.searches, "trial")
        each += ", each with another seed, the same in all arms" if study.searches > 1 else ""
        times = "1 search" if study.searches == 1 else f"{study.searches} searches"
        yield "budget", f"{times} of {each}; in all: {_ends(counting, 'search')}"
        metrics = ", ".join(sorted({arm.metric for arm in searched}))
        yield (
            "selection",
            f"by {metrics} on the validation split alone; search trials never see the test split",
        )
    yield (
        "test",
        f"{plural(study.seeds, 'fresh seed')} per arm, the same in all arms: {_ends(counting, 'confirm')}",
    )
    yield "a seed decides", "label noise, initial weights, batches, augmentation and the loss's noise"
    yield "root of all random streams", str(study.seed)


def _ends(counting: Sequence[Row], phase: str) -> str:
    ends = Tally.of(row["status"] for row in counting if row["phase"] == phase)
    stopped = f", {ends.pruned} stopped early" if phase == "search" else ""
    return (
        f"{ends.completed} of {ends.ended} completed{stopped}, {ends.diverged} diverged, {ends.failed} failed"
    )


def _computation(held: Held, counting: Sequence[Row]) -> _Facts:
    keys, study, uncounted = {row["key"] for row in counting}, held.study, 0.0
    seconds: dict[str, list[float]] = {}
    for history in held.histories.values():
        for row in history.rows():
            # A member's time is that of its ensemble.
            spent = row["train_seconds"] / history.arm.protocol.ensemble
            seconds.setdefault(row["phase"], []).append(spent)
            uncounted += spent * (row["key"] not in keys)
    device = f"{study.gpus:g} of a GPU" if study.device == "cuda" else study.device
    for phase, each in sorted(seconds.items(), reverse=True):
        count, mean = plural(len(each), "training"), sum(each) / len(each)
        threads = plural(study.threads, "thread")
        yield (
            f"time of {phase}",
            f"{count} of {mean:.1f} s, {sum(each) / 3600:.2f} hours, on {device} with {threads}",
        )
    yield "of this not in the tables", f"{uncounted / 3600:.2f} hours"
    noted = [
        *(json.loads(row["versions"] or "{}") for row in counting),
        *({"code": part} for row in counting for part in row["code_version"].split(", ")),
    ]
    for name in sorted({name for versions in noted for name in versions}):
        counts = Counter(str(versions[name]) for versions in noted if name in versions).most_common()
        yield name, ", ".join(f"{value} ({count} trials)" for value, count in counts)
