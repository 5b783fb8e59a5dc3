"""Hundreds of classes of three to six images each: what label noise leaves of them, and what that means for losses."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from in_process import topk
from made_studies import searched, small_study

from topk_platform import LabelNoise, LongTail, Protocol, Regime, Study, TrainFraction, UserError, run
from topk_platform.data import Dataset, load
from topk_platform.records.history import progress_of, read_history
from topk_platform.records.ledger import Ledger
from topk_platform.records.run_notes import note_data, read_data
from topk_platform.records.storage.store import Store
from topk_platform.running.preflight import training_splits
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.running.preflight.training_splits import Draws, data_notes, trained_on
from topk_platform.specs import Trial
from topk_platform.training import finish, run_trials
from topk_platform.training.setup import dataset_of

COUNTING = ("balanced_softmax", "ldam", "logit_adjusted", "noised_imbalanced_topk_hinge", "vector_scaling")
EMOJI = """
import torch
from topk_platform.data import from_tensors
import topk_losses

def data(classes=900, lacking=0):
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, 12, generator=draw)
    def part(labels):
        return centres[labels] + 0.3 * torch.randn(len(labels), 12, generator=draw), labels
    train = torch.cat([torch.full((3 + label % 4,), label) for label in range(classes)])
    names = [f"emoji {label}" for label in range(classes)]
    return from_tensors(part(train), part(torch.arange(lacking, classes)), part(torch.arange(classes)), names=names)

def families():  # each tenth family alone has samples of class 0
    family = torch.arange(40)
    label = torch.where(family % 10 == 0, 0, 1 + family % 2)
    part = lambda groups: (torch.zeros(40, 12), label, groups)
    return from_tensors(part(family), part(family), part(family), whole_groups=False)

def drawn(generator):  # for each seed another number of validation samples of class 0
    few = int(torch.randint(1, 12, (1,), generator=generator))
    validation = torch.cat([torch.zeros(few), torch.arange(8) % 2 + 1]).long()
    whole = torch.arange(12) % 3
    return from_tensors(*((torch.zeros(len(labels), 12), labels) for labels in (whole, validation, whole)))

def picky(class_counts): return topk_losses.BalancedSoftmax(class_counts)
def patient(class_counts): return topk_losses.BalancedSoftmax(class_counts.clamp(min=1))

from made_studies import small_study
from topk_platform import LabelNoise, Regime
def noisy():
    regime = Regime("noisy", "emoji_lab:data", (LabelNoise(0.8),))
    return small_study("balanced_softmax", name="emoji", regimes=[regime], models=["linear"], k=5, seeds=2)
"""


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "emoji_lab.py").write_text(EMOJI)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "emoji_lab", raising=False)


def emoji(*losses: str, noise: float = 0.8, metric: str = "", **options: int) -> Study:
    conditions = (LabelNoise(noise),) if noise else ()
    regime = Regime("noisy", "emoji_lab:data", conditions, options)
    how = {"regimes": [regime], "models": ["linear"], "k": 5, "metric": metric}
    return small_study(*losses, name="emoji", seeds=2, **how)


def next_trials(study: Study, store: Path) -> list[Trial]:
    identities = check_study(study)
    ledger = Ledger.open(Store.open(store), study.name)
    histories = read_history(ledger, study, identities)
    arms = progress_of(study, identities, histories).arms.values()
    return [progress.trial(slot) for progress in arms if (slot := progress.next_slot()) is not None]


def test_losses_with_class_counts_train_where_noise_empties_classes(tmp_path: Path) -> None:
    trials = next_trials(emoji(*COUNTING), tmp_path)
    assert len(trials) == len(COUNTING)
    for trial in trials:
        assert (dataset_of(trial).class_counts == 0).any()
        (record,) = finish(run_trials([trial]))
        assert record.status == "completed", record.reason


def test_the_counts_are_those_of_the_trials_themselves(tmp_path: Path) -> None:
    study = emoji()
    (trial,) = next_trials(study, tmp_path)  # nothing is searched: the first confirmation
    assert trial.seed == 1
    data = trained_on(study, study.arms[0].regime, seed=1)
    assert torch.equal(data.train.labels, dataset_of(trial).train.labels)
    assert not torch.equal(data.train.labels, trained_on(study, study.arms[0].regime).train.labels)


def test_plan_and_run_name_the_classes_that_noise_empties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = emoji("balanced_softmax")
    counts = trained_on(study, study.arms[0].regime).class_counts
    empty = (counts == 0).nonzero()[:, 0].tolist()
    assert len(empty) > 5
    (note,) = data_notes(study)["noisy"].notes
    begins = f"the training split lacks {len(empty)} of 900 classes: "
    assert note.startswith(begins) and all(f"emoji {label}" in note for label in empty[:5])
    code, out, _ = topk("plan", "emoji_lab:noisy", "--store", str(tmp_path / "runs"))
    assert code == 0 and f"Note: noisy: {begins}" in out.replace("\n", " ")
    notes: list[str] = []
    monkeypatch.setattr("topk_platform.running.loop._Run.run", lambda _: None)  # Ray's part
    run(study, store=tmp_path / "runs", mlflow="none", progress=False, waiting=notes.append)
    assert notes == [f"Note: noisy: {note}"]
    with pytest.warns(UserWarning, match="Note: noisy: the training split lacks"):
        run(study, store=tmp_path / "runs", mlflow="none", progress=False)


def test_a_users_loss_that_takes_no_count_of_zero_is_refused_with_the_remedy() -> None:
    with pytest.raises(UserError, match=r"arm noisy/linear/picky: .* above 0 .* class_counts.clamp\(min=1\)"):
        check_study(emoji("emoji_lab:picky"))
    check_study(emoji("emoji_lab:patient"))
    check_study(emoji("emoji_lab:picky", noise=0.0))


def test_the_group_accuracy_of_no_group_is_refused_with_thresholds_and_counts() -> None:
    with pytest.raises(
        UserError, match=r"noisy/linear/cross_entropy: metric few_top5 .* 3 to 6 .* Take macro_top5"
    ):
        check_study(emoji(noise=0.0, metric="few_top5"))


def test_a_plan_says_why_group_accuracies_are_empty() -> None:
    (data,) = data_notes(emoji(noise=0.0)).values()
    assert "900 classes of 3 to 6 training samples; classes: 900 few-shot" in str(data.samples)
    assert data.notes == ()


def test_the_classes_that_validation_lacks_are_named_and_trained(tmp_path: Path) -> None:
    study = emoji("cross_entropy", noise=0.0, classes=40, lacking=39)
    (note,) = data_notes(study)["noisy"].notes
    assert note.startswith("the validation split lacks 39 of 40 classes: emoji 0, ")
    (trial,) = next_trials(study, tmp_path)
    (record,) = finish(run_trials([trial]))
    assert record.status == "completed", record.reason
    assert record.validation["macro_top1"] == record.validation["top1"]  # of the only class in validation


def sampled(regime: Regime, seeds: int, metric: str = "") -> Study:
    how = {"regimes": [regime], "models": ["linear"], "k": 1, "metric": metric}
    return small_study("cross_entropy", "focal", seeds=seeds, **how)


def first_failing(study: Study) -> int:
    """Return the first seed whose trials cannot draw their data, as the trials themselves draw it."""

    def fails(seed: int) -> bool:
        try:
            trained_on(study, study.arms[0].regime, seed)
        except UserError:
            return True
        return False

    return next(seed for seed in range(100) if fails(seed))


def test_a_confirmation_whose_data_cannot_be_drawn_is_refused_before_the_start() -> None:
    regime = Regime("r", "emoji_lab:families", (TrainFraction(0.5, whole_groups=True),))
    seed = first_failing(sampled(regime, 1))
    assert seed > 1
    check_study(sampled(regime, seed - 1))
    why = "leaves 1 classes without a training image"
    with pytest.raises(UserError, match=rf"arm r/linear/cross_entropy: with seed {seed}: .*{why}"):
        check_study(sampled(regime, seed))


@pytest.mark.parametrize(
    ("regime", "metric", "draws"),
    [
        (Regime("r", "emoji_lab:data"), "", [0]),
        (Regime("r", "emoji_lab:data", (LabelNoise(0.5),)), "", [0]),
        (Regime("r", "emoji_lab:families", (TrainFraction(0.9, whole_groups=True),)), "", [0, 1, 2]),
        (Regime("r", "emoji_lab:drawn"), "", [0]),
        (Regime("r", "digits"), "many_top1", [0, 1, 2]),
        (None, "few_top1", [0, 1_000_000, 1, 1_000_001, 2, 1_000_002]),
    ],
)
def test_arms_share_the_draws_of_their_regime_and_draw_no_more_than_they_need(
    regime: Regime | None, metric: str, draws: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: by two searches, each with its confirmations."""
    seeds: list[int] = []

    def counted(study: Study, of: Regime, seed: int = 0) -> Dataset:
        seeds.append(seed)
        return trained_on(study, of, seed)

    monkeypatch.setattr(training_splits, "trained_on", counted)
    study = sampled(regime, 2, metric) if regime is not None else twice_searched(metric)
    checked = Draws(study)
    for arm in study.arms:
        checked.class_counts(arm)
        with suppress(UserError):
            checked.check_group_metrics(arm)
    assert seeds == draws


def twice_searched(metric: str) -> Study:
    how = {"k": 5, "metric": metric, "protocol": Protocol(searches=2)}
    return small_study(searched(), trials=2, seeds=4, **how)


def test_a_run_notes_what_training_sees(tmp_path: Path) -> None:
    regimes = ["plain", Regime("tail", "digits", (LongTail(10.0),))]
    study, store = small_study(regimes=regimes, models=["linear"], k=2, seeds=1), Store.open(tmp_path)
    for part in (study, study.only("tail/*")):
        note_data(store, data_notes(part))
    notes = read_data(store)
    assert notes == data_notes(study)
    digits = load(study.arms[0].regime)
    assert notes["plain"].samples.test == len(digits.test) and notes["plain"].names == digits.class_names  # type: ignore[union-attr]
    tail = notes["tail"].samples
    assert tail.train < notes["plain"].samples.train and tail.most == pytest.approx(10 * tail.fewest, rel=0.1)


def test_wrong_labels_are_counted_in_the_data() -> None:
    regimes = [
        Regime("all", "digits", (LabelNoise(1.0), LongTail(5.0))),
        Regime("half", "digits", (LongTail(5.0), LabelNoise(0.5))),
        "clean",
    ]
    notes = data_notes(small_study(regimes=regimes, k=2))
    whole, half, clean = (notes[name].samples.wrong for name in ("all", "half", "clean"))
    assert clean == 0.0  # of five classes a label is drawn, and one of them is right
    assert 0.75 < whole < 0.85 and 0.35 < half < 0.45
