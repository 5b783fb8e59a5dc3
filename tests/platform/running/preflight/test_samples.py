"""The numbers of samples that a run notes: those of the data after their conditions, and read only when they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform import Arm, LongTail, Loss, Model, PairFlip, Recipe, Regime, Study
from topk_platform.data import Dataset, load
from topk_platform.identity import Identity
from topk_platform.records import DamagedError, Store, read_data
from topk_platform.running.preflight import samples as module
from topk_platform.running.preflight.samples import note_samples, samples_of


def a_study(ratio: float) -> Study:
    regimes = [Regime("plain", "digits"), Regime("tail", "digits", (LongTail(ratio),))]
    arms = [Arm(one, Model("linear"), Loss("cross_entropy"), 2, Recipe(1)) for one in regimes]
    return Study("s", arms, topk=(1, 2), seeds=1)


def identities(study: Study) -> dict[str, Identity]:
    return {study.arm_id(arm): Identity("code", load(arm.regime).fingerprint) for arm in study.arms}


def test_a_run_notes_what_training_sees(tmp_path: Path) -> None:
    study, store = a_study(10.0), Store.open(tmp_path)
    note_samples(store, study, identities(study))
    notes = read_data(store)
    assert tuple(note.samples for note in notes.values()) == samples_of(study)
    digits = load(study.arms[0].regime)
    assert notes["plain"].samples.test == len(digits.test) and notes["plain"].names == digits.class_names  # type: ignore[union-attr]
    tail = notes["tail"].samples
    assert tail.train < notes["plain"].samples.train and tail.most == pytest.approx(10 * tail.fewest, rel=0.1)


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = Store.open(tmp_path), []
    kept = module.trained_on

    def noting(study: Study, regime: Regime, **given: bool) -> Dataset:
        read.append(regime.name)
        return kept(study, regime, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "trained_on", noting)
    for ratio in (10.0, 10.0, 20.0):
        note_samples(store, a_study(ratio), identities(a_study(ratio)))
    assert read == ["plain", "tail", "tail"]


def test_a_damaged_note_is_named_with_its_remedy(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    study = a_study(10.0)
    note_samples(store, study, identities(study))
    (tmp_path / "data.json").write_text((tmp_path / "data.json").read_text().replace("1077", "1078"))
    with pytest.raises(DamagedError, match=r"data\.json is damaged; .* sets it aside"):
        read_data(store)


def test_wrong_labels_are_counted_in_the_data() -> None:
    regimes = [
        Regime("flipped", "digits", (PairFlip(1.0), LongTail(5.0))),
        Regime("half", "digits", (LongTail(5.0), PairFlip(0.5))),
        Regime("clean", "digits"),
    ]
    arms = [Arm(one, Model("linear"), Loss("cross_entropy"), 2, Recipe(1)) for one in regimes]
    flipped, half, clean = samples_of(Study("s", arms, topk=(1, 2), seeds=1))
    assert (flipped.wrong, clean.wrong) == (1.0, 0.0) and 0.4 < half.wrong < 0.6
