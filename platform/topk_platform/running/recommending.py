"""What the studies of a store say of a situation of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from topk_platform.errors import StoreError, UserError
from topk_platform.records import Ledger, Store
from topk_platform.reports.reading import Held, read
from topk_platform.reports.recommending import Compared, Recommendation, Situation, recommended
from topk_platform.reports.table import Table, build_table, row_and_column
from topk_platform.specs import Arm, LabelNoise, Parameter, Regime, Study

__all__ = ["recommend", "situation_of"]


def recommend(
    studies: Sequence[Study],
    *,
    classes: int,
    images: int,
    imbalance: float = 1.0,
    noise: float = 0.0,
    k: int = 5,
    store: str | Path = "runs",
    data: str | Path | None = None,
) -> Recommendation:
    """Return which loss to start with, by what a store holds of studies; see ``docs/recommend.md`` for the rules.

    Compared are the paired differences to each study's baseline, by top-K test accuracy at the arms' own K, as its
    table has them. Regimes are described by their data, which have to be at hand.

    Args:
        studies: Those that may be in the store; one that is not adds nothing.
        classes: How many there are.
        images: Training images, of all classes together.
        imbalance: The largest class's number of images over the smallest's.
        noise: The share of training labels that are wrong.
        k: How many guesses count.
        store: Folder or URI of the results.
        data: The folder of datasets.

    Raises:
        UserError: if a number is out of range, or the store holds no study, or something else.
    """
    asked = Situation(classes, images, imbalance, noise, k)
    left_out: dict[str, str] = {}
    place = Store.open(store)
    if not (names := list(_studies_in(place))):
        raise StoreError(f"store {str(store)!r} holds no study")
    known = {study.name: study for study in studies}
    found: list[Compared] = []
    from topk_platform.data import data_at  # noqa: PLC0415 - torch

    with data_at(data):
        for name in names:
            if name not in known:
                left_out[name] = (
                    "its definition is not known here: name it with --study package.module:attribute"
                )
                continue
            held = read(known[name], store)
            found += _compared(held, left_out)
    return recommended(asked, found, left_out)


def _studies_in(place: Store) -> Iterator[str]:
    for name in place.folders():
        try:
            there = Ledger.open(place, name).exists
        except StoreError:  # a folder of something else, such as MLflow's artifacts
            if Ledger(place.at(name), name).exists:
                raise
            continue
        if there:
            yield name


def _compared(held: Held, left_out: dict[str, str]) -> list[Compared]:
    """Return a study's comparisons; what cannot be used is put into ``left_out``."""
    study = held.study
    if study.baseline is None:
        left_out[study.name] = "it has no baseline, so no difference was tested"
        return []
    table = build_table(study, held.histories, ranks=held.ranks)
    found = [(arm, one) for arm in study.arms if (one := _place(study, table, arm)) is not None]
    if not found:
        outdated = sum(table.outdated.values())
        more = f"; {outdated} recorded trials do not count, for they are of other code, data or machines"
        left_out[study.name] = f"no pair of confirmations has ended{more if outdated else ''}"
    situations = _situations(study.name, [arm for arm, _ in found], left_out)
    return [
        Compared(
            study=study.name,
            regime=arm.regime.name,
            model=arm.model.label,
            loss=arm.loss.label,
            baseline=study.baseline,
            metric=f"top{arm.k}",
            situation=situations[arm.regime.name, arm.k],
            cell=table.cells[(*place, f"top{arm.k}")],
            theirs=table.cells[(*_beside(study, table, arm), f"top{arm.k}")].confirmed,
            values=_values(table, arm, place),
        )
        for arm, place in found
        if (arm.regime.name, arm.k) in situations
    ]


def _place(study: Study, table: Table, arm: Arm) -> tuple[str, str] | None:
    """Return an arm's row and column, None where its top-K accuracy has no difference to the baseline."""
    place = row_and_column(study, table.across, arm)
    cell = table.cells.get((*place, f"top{arm.k}"))
    return place if cell is not None and cell.difference is not None else None


def _beside(study: Study, table: Table, arm: Arm) -> tuple[str, str]:
    """Return the place of the baseline that an arm is compared with."""
    same = (arm.regime.name, arm.model.label, study.baseline)
    other = next(a for a in study.arms if (a.regime.name, a.model.label, a.loss.label) == same)
    return row_and_column(study, table.across, other)


def _values(table: Table, arm: Arm, place: tuple[str, str]) -> tuple[Mapping[str, Parameter], ...]:
    choices = sorted(table.choices.get(place, ()), key=lambda choice: -choice.validation)
    found = [arm.loss.parameters(choice.values) for choice in choices]
    return tuple(found or [arm.loss.parameters({})])


def _situations(
    study: str, arms: Sequence[Arm], left_out: dict[str, str]
) -> dict[tuple[str, int], Situation]:
    """Return what each regime is at each K; one whose data are not at hand is put into ``left_out``."""
    found: dict[tuple[str, int], Situation] = {}
    for arm in arms:
        if (arm.regime.name, arm.k) not in found:
            try:
                found[arm.regime.name, arm.k] = situation_of(arm.regime, arm.k)
            except UserError as error:
                left_out[f"{study}, {arm.regime.name}"] = f"its data cannot be read: {error}"
    return found


def situation_of(regime: Regime, k: int) -> Situation:
    """Return what a regime is, by its data: its classes, and their training images after its conditions.

    Args:
        regime: The regime.
        k: How many guesses count.

    Raises:
        UserError: if its data are not at hand.

    Example:
        >>> from topk_platform import LongTail
        >>> found = situation_of(Regime("tail", "digits", (LongTail(10), LabelNoise(0.2))), 3)
        >>> found.classes, found.images < 600, 9 < found.imbalance < 11, found.noise, found.k
        (10, True, True, 0.2, 3)
    """
    import torch  # noqa: PLC0415 - a second that an unknown option need not wait for

    from topk_platform.data import apply_conditions, load  # noqa: PLC0415 - as above

    others = [condition for condition in regime.conditions if not isinstance(condition, LabelNoise)]
    dataset = apply_conditions(load(regime), others, lambda _role: torch.Generator().manual_seed(0))
    counts = [count for count in dataset.class_counts.tolist() if count]
    kept = 1.0  # the share of labels that no condition replaces
    for condition in regime.conditions:
        kept *= 1 - condition.probability if isinstance(condition, LabelNoise) else 1
    imbalance = max(counts) / min(counts)
    return Situation(dataset.classes, sum(counts), imbalance, round(1 - kept, 12), k)
