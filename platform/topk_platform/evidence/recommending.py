"""Recommending a loss from the studies of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from topk_platform.errors import StoreError, UserError
from topk_platform.records import Ledger, Store
from topk_platform.results.comparisons import Compared, Situation, comparisons, searched_pairs
from topk_platform.results.findings import Findings
from topk_platform.results.from_store import Held, read
from topk_platform.results.recommendation import Recommendation, recommended
from topk_platform.results.table import row_and_column
from topk_platform.specs import Arm, LabelNoise, Regime, Study
from topk_platform.specs.fields import check_call
from topk_platform.specs.study.smoke import SMOKE

__all__ = ["recommend", "situation_of", "situations_of"]

_UNKNOWN = "its definition is not known here: name it with --study package.module:attribute"
_SMOKE = "a smoke run, whose numbers say nothing"


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
    evidence: Sequence[Findings] = (),
) -> Recommendation:
    """Return which loss to start with, from the studies in a store; see ``docs/recommend.md`` for the rules.

    The evidence are the paired differences between searched arms and their study's searched baseline, in top-K test
    accuracy at the arms' own K, pooled over the studies that made the same comparison. Regimes are described by their
    data, which must be on disk; findings contain the descriptions.

    Args:
        studies: Studies that may be in the store; those that are not are ignored.
        classes: The number of classes.
        images: Training images, of all classes together.
        imbalance: The largest class's number of images over the smallest's.
        noise: The share of wrong training labels.
        k: K, the number of guesses.
        store: Folder or URI of the results.
        data: The folder of datasets.
        evidence: Findings of studies, such as ``topk_studies.evidence()``; findings of a study with results in the
            store are ignored.

    Raises:
        UserError: if a number is out of range, or the store holds no study and there is no evidence either, or the
            store holds something else.
    """
    check_call(recommend, locals())
    situation = Situation(classes, images, imbalance, noise, k)
    left_out: dict[str, str] = {}
    root = Store.open(store)
    names = list(_studies_in(root))
    if not names and not evidence:
        raise StoreError(f"store {str(store)!r} holds no study")
    known = {study.name: study for study in studies}
    left_out |= {name: _reason(name) for name in names if name not in known}
    stored = _stored([known[name] for name in names if name in known], store, data, left_out)
    return recommended(situation, [*stored, *_added(evidence, stored, left_out)], left_out)


def _reason(unknown: str) -> str:
    return _SMOKE if unknown.endswith(SMOKE) else _UNKNOWN


def _stored(
    studies: Sequence[Study], store: str | Path, data: str | Path | None, left_out: dict[str, str]
) -> list[Compared]:
    """Return the results of the studies that a store holds."""
    if not studies:
        return []
    from topk_platform.data import data_at  # noqa: PLC0415 - torch

    with data_at(data):
        return [one for study in studies for one in _compared(read(study, store), left_out)]


def _added(
    evidence: Sequence[Findings], stored: Sequence[Compared], left_out: dict[str, str]
) -> Iterator[Compared]:
    """Yield the findings of studies that have no results in the store."""
    names = {one.study for one in stored}
    for one in evidence:
        name = one.study.name
        if name in names:
            left_out[f"{name}, its findings"] = "the store has the study's own results"
            continue
        left_out.pop(name, None)
        yield from one.compared()


def _studies_in(root: Store) -> Iterator[str]:
    for name in root.folders():
        try:
            exists = Ledger.open(root, name).exists
        except StoreError:  # a folder of something else, such as MLflow's artifacts
            if Ledger(root.at(name), name).exists:
                raise
            continue
        if exists:
            yield name


def _compared(held: Held, left_out: dict[str, str]) -> list[Compared]:
    """Return a study's comparisons; add the results that cannot be used to ``left_out``, with the reason."""
    study = held.study
    if study.baseline is None:
        left_out[study.name] = "it has no baseline, so no difference was tested"
        return []
    if not (pairs := searched_pairs(study)):
        left_out[study.name] = "no loss was searched together with its baseline"
        return []
    table = held.table
    places = {key[:2] for key, cell in table.cells.items() if cell.difference is not None}
    arms = [arm for arm, _ in pairs if row_and_column(study, table.across, arm) in places]
    if not arms:
        outdated = sum(table.outdated.values())
        more = f"; {outdated} recorded trials do not count, because they are of other code, data, arms or machines"
        left_out[study.name] = f"no pair of confirmations has ended{more if outdated else ''}"
    return list(comparisons(table, situations_of(study.name, arms, left_out)))


def situations_of(
    study: str, arms: Sequence[Arm], left_out: dict[str, str]
) -> dict[tuple[str, int], Situation]:
    """Return the description of each regime at each K, by the regime's name and K.

    Args:
        study: The study's name.
        arms: Its arms.
        left_out: Regimes whose data are not on disk are added here, with the reason.
    """
    situations: dict[tuple[str, int], Situation] = {}
    for arm in arms:
        if (arm.regime.name, arm.k) not in situations:
            try:
                situations[arm.regime.name, arm.k] = situation_of(arm.regime, arm.k)
            except UserError as error:
                left_out[f"{study}, {arm.regime.name}"] = f"its data cannot be read: {error}"
    return situations


def situation_of(regime: Regime, k: int) -> Situation:
    """Return a regime's description: its classes, and their training images after its conditions.

    Args:
        regime: The regime.
        k: K, the number of guesses.

    Raises:
        UserError: if its data are not on disk.

    Example:
        >>> from topk_platform import LongTail
        >>> tail = situation_of(Regime("tail", "digits", (LongTail(10), LabelNoise(0.2))), 3)
        >>> tail.classes, tail.images < 600, 9 < tail.imbalance < 11, tail.noise, tail.k
        (10, True, True, 0.2, 3)
    """
    import torch  # noqa: PLC0415 - takes a second to import; errors in options are reported without it

    from topk_platform.data import Population, apply_conditions, load  # noqa: PLC0415 - as above
    from topk_platform.data.noise import Tracked, wrong_share  # noqa: PLC0415 - as above

    others = [condition for condition in regime.conditions if not isinstance(condition, LabelNoise)]
    source = load(regime)
    source = source.example if isinstance(source, Population) else source
    source = source.with_train(Tracked.of(source.train))
    dataset = apply_conditions(source, others, lambda _role: torch.Generator().manual_seed(0))
    counts = [count for count in dataset.class_counts.tolist() if count]
    kept = 1.0 - wrong_share(dataset.train)  # the share of labels that no condition replaces
    for condition in regime.conditions:
        kept *= 1 - condition.probability if isinstance(condition, LabelNoise) else 1
    imbalance = max(counts) / min(counts)
    return Situation(dataset.classes, sum(counts), imbalance, round(1 - kept, 12), k)
