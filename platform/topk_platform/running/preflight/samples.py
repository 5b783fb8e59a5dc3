"""The numbers of samples with which each regime trains, validates and tests."""

from __future__ import annotations

from collections.abc import Mapping

from topk_platform.data import Dataset, apply_conditions, shot_words
from topk_platform.data.noise import Tracked, wrong_share
from topk_platform.identity import Identity
from topk_platform.records import DataNote, Samples, Store, note_data, read_data
from topk_platform.running.preflight.training_splits import streams, trained_on
from topk_platform.specs import Arm, Regime, Study, digest

__all__ = ["Samples", "note_samples", "samples_of"]


def samples_of(study: Study) -> tuple[Samples, ...]:
    """Return the numbers of samples of each regime of a study, in its order.

    If data are drawn, or label noise moves samples between classes, the numbers are those of the first search.

    Args:
        study: The study, whose data are read unless this process has read them.

    Example:
        >>> from topk_studies import letters_quick
        >>> data = samples_of(letters_quick())[0]
        >>> data.train, data.validation, data.test, data.groups
        (1240, 3100, 9920, '160 typefaces')
    """
    regimes = {arm.regime.name: arm.regime for arm in study.arms}
    return tuple(_samples(study, regime)[0] for regime in regimes.values())


def note_samples(store: Store, study: Study, identities: Mapping[str, Identity]) -> None:
    """Note the numbers of samples of a study's regimes and the names of their classes in its folder.

    Regimes whose data and conditions are those of the last note are not read again.

    Args:
        store: The study's folder.
        study: The study.
        identities: The arms' data, by arm identity.
    """
    noted, notes = read_data(store), {}
    for name, arm in {arm.regime.name: arm for arm in study.arms}.items():
        source = _hash(study, arm, identities)
        if name not in noted or noted[name].of != source:
            notes[name] = DataNote(source, *_samples(study, arm.regime))
    note_data(store, notes)


def _hash(study: Study, arm: Arm, identities: Mapping[str, Identity]) -> str:
    data = identities[study.arm_id(arm)].dataset_fingerprint
    return digest((data, arm.regime.conditions, study.seed))


def _samples(study: Study, regime: Regime) -> tuple[Samples, tuple[str, ...], tuple[str, ...]]:
    data = trained_on(study, regime, conditions=False)
    data = data.with_train(Tracked.of(data.train))
    data = apply_conditions(data, regime.conditions, streams(study))
    samples = Samples(
        regime.name,
        len(data.train),
        len(data.validation),
        len(data.test),
        data.classes,
        fewest=int(data.class_counts.min()),
        most=int(data.class_counts.max()),
        groups=_groups(data),
        shots=shot_words(data.class_counts),
        wrong=wrong_share(data.train),
    )
    return samples, data.class_names, data.notes


def _groups(data: Dataset) -> str:
    numbers = data.test.groups
    return "" if numbers is None else f"{len(set(numbers.tolist()))} {data.groups}"
