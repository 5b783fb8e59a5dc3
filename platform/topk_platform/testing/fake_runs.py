"""Whole studies within seconds: a function scores each trial in place of its training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.protocol.search_progress import Ended
from topk_platform.records.history import progress_of, read_history
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import save_guesses, save_ranks
from topk_platform.records.recorded import as_recorded, note_plan
from topk_platform.records.storage.store import Store
from topk_platform.specs import EpochRecord, Study, Trial, TrialRecord
from topk_platform.specs.metric_names import accuracy_k
from topk_platform.versions import versions_of

__all__ = ["FAKE_DATA", "Ranks", "Score", "fake_record", "fake_run"]

Score = Callable[[Trial], float | Mapping[str, float] | TrialRecord]
"""A function that returns a trial's accuracy, its metrics by name, or its whole record."""

Ranks = Callable[[Trial], Tensor]
"""A function that returns a confirmation's ranks, ``(4, N)``, or its guesses, ``(N, K)``."""

FAKE_DATA = "fake"
"""The data fingerprint of fake results, because of which no real run counts them."""

_IMAGES = 100  # the test images of a fake confirmation, ten of each of ten classes
_CLASSES = 10


def fake_run(
    study: Study,
    store: str | Path,
    score: Score,
    *,
    ranks: Ranks | None = None,
    guesses: Ranks | None = None,
    identities: Mapping[str, Identity] | None = None,
    stop_after: int | None = None,
) -> Ledger:
    """Run a study's whole protocol, with a function that scores each trial in place of its training.

    The sampler chooses the values, the pruner stops trials by their curves, the best configuration is confirmed with
    fresh seeds, and all of it is written to a real ledger with ranks and guesses. In this way, you can try tables,
    reports, plots, samplers and pruners without Ray, a GPU or the data. Trials that the store already holds count and
    are not run again.

    Args:
        study: The study.
        store: The folder or URI of the store.
        score: Returns a trial's result; for a number or metrics, see :func:`fake_record`. If the result depends on the
            trial alone, the run is repeatable.
        ranks: Returns the ranks of a confirmation, see :class:`~topk_platform.records.per_image.Ranks`; by default
            ranks of 100 images that agree with its test metrics.
        guesses: Returns the K guesses of a confirmation, see :class:`~topk_platform.records.per_image.Guesses`; by
            default guesses that agree with its ranks.
        identities: Code, data and machine by arm ID, for tests of which trials count. By default the present code
            and ``FAKE_DATA``, so that a real run in the same store trains everything again.
        stop_after: How many trials end before the run stops; by default all.

    Returns:
        The study's ledger, whose rows and files are on disk.

    Raises:
        UserError: if ``score`` returns a metric outside its range.

    Example:
        >>> import tempfile
        >>> from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study, table
        >>> rate = {"learning_rate": Float(0.01, 1, log=True)}
        >>> loss = Loss("cross_entropy", rate, first={"learning_rate": 0.1})
        >>> arm = Arm(Regime("balanced", "digits"), Model("mlp"), loss, 3, Recipe(epochs=4))
        >>> study = Study("pretended", [arm], topk=(1, 3), trials=8, seeds=3)
        >>> def score(trial):
        ...     return 0.9 - (trial.values["learning_rate"] - 0.3) ** 2
        >>> with tempfile.TemporaryDirectory() as store:
        ...     rows = fake_run(study, store, score).rows()
        ...     best = table(study, store=store).cells["cross_entropy", "balanced", "top3"].value
        >>> len(rows), best.n, best.mean > 0.87
        (11, 3, True)
    """
    ledger = Ledger.open(Store.open(store), study.name)
    study = as_recorded(study, ledger)
    codes = versions_of(study)
    counted = identities or {i: Identity(code, FAKE_DATA) for i, code in codes.items()}
    with ledger.writing(study) as writer:
        ledger.identify(counted)
        note_plan(ledger.store, study)
        progress = progress_of(study, counted, read_history(ledger, study, counted))
        ended = 0
        while (stop_after is None or ended < stop_after) and (trials := progress.next_trials()):
            for trial in trials:
                scored = score(trial)
                record = scored if isinstance(scored, TrialRecord) else fake_record(study, trial, scored)
                if trial.phase == "confirm" and record.status == "completed" and not record.artifacts:
                    record = dataclasses.replace(
                        record, artifacts=_keep(ledger.store, record, ranks, guesses)
                    )
                writer.put(record.replace_versions(**trial.environment))
                progress.end(trial, Ended.from_record(record))
                ended += 1
    return ledger


def fake_record(study: Study, trial: Trial, score: float | Mapping[str, float]) -> TrialRecord:
    """Return a trial's record without training it, as if its training had ended with a score.

    A score s of the arm's metric, top-k accuracy, gives all accuracies: top-j is 1 - (1 - s)^(j/k), as if every guess
    were right with the same probability. Other metrics are s. The curve rises to the score with the square root of the
    epoch, and the trial is pruned at the epoch at which a training would be. If the score is not finite, the trial
    diverges.

    Args:
        study: The study, which names the metrics.
        trial: The trial.
        score: The value of the arm's metric, or metrics by name; missing metrics follow from the arm's.

    Raises:
        UserError: if an accuracy is not between 0 and 1, or the metrics lack the arm's.
    """
    given = score if isinstance(score, Mapping) else {trial.arm.metric: score}
    if trial.arm.metric not in given:
        raise UserError(
            f"score must return {trial.arm.metric}, which selects in arm {trial.arm.name}, got {dict(given)}"
        )
    if not all(math.isfinite(value) for value in given.values()):
        return TrialRecord(trial, "diverged", "the score is not finite")
    wrong = {name: value for name, value in given.items() if accuracy_k(name) and not 0 <= value <= 1}
    if wrong:
        raise UserError(f"score must return accuracies between 0 and 1, got {wrong}")
    final = {name: given.get(name, _implied(trial, name, given[trial.arm.metric])) for name in study.metrics}
    epochs = _curve(trial, final)
    times = (0.1 * len(epochs), 1000.0, 1000.0 + 0.1 * len(epochs))
    last = epochs[-1].epoch
    if last < trial.arm.recipe.epochs:
        reason = f"{trial.arm.metric} below {dict(trial.stop_below)[last]:.6g} after epoch {last}"
        return TrialRecord(trial, "pruned", reason, epochs[-1].validation, None, epochs, *times)
    test = final if trial.phase == "confirm" else None
    return TrialRecord(trial, "completed", "", final, test, epochs, *times)


def _implied(trial: Trial, name: str, score: float) -> float:
    """Return a metric that follows from the score of the arm's metric."""
    asked, selected = accuracy_k(name), accuracy_k(trial.arm.metric)
    return score if asked is None or selected is None else 1 - (1 - score) ** (asked / selected)


def _curve(trial: Trial, final: Mapping[str, float]) -> tuple[EpochRecord, ...]:
    """Return the validated epochs, up to the epoch after which the trial is stopped."""
    recipe, metric, below = trial.arm.recipe, trial.arm.metric, dict(trial.stop_below)
    epochs: list[EpochRecord] = []
    for epoch in filter(recipe.evaluates, range(1, recipe.epochs + 1)):
        part = math.sqrt(epoch / recipe.epochs)
        validation = {name: value * part for name, value in final.items()}
        epochs.append(EpochRecord(epoch, 1 - part * final[metric], validation, 0.1, 0.1))
        if validation[metric] < below.get(epoch, -math.inf):
            break
    return tuple(epochs)


def _keep(store: Store, record: TrialRecord, ranks: Ranks | None, guesses: Ranks | None) -> dict[str, str]:
    """Store a confirmation's ranks and guesses; return their SHA-256."""
    trial = record.trial
    kept = ranks(trial) if ranks is not None else _fake_ranks(record)
    guessed = guesses(trial) if guesses is not None else _fake_guesses(trial, kept)
    return {
        "ranks": save_ranks(store, trial, kept, trial.dataset_fingerprint),
        "guesses": save_guesses(store, trial, guessed, trial.dataset_fingerprint),
    }


def _fake_ranks(record: TrialRecord) -> Tensor:
    """Return ranks whose top-k accuracies are the test metrics, rounded to whole images."""
    topk = sorted(record.trial.topk)
    greater = torch.full((_IMAGES,), topk[-1])
    for k in reversed(topk):
        greater[: round(_IMAGES * (record.test or {}).get(f"top{k}", 0.0))] = k - 1
    label = torch.arange(_IMAGES) % _CLASSES
    group = 1 + 3 * label // _CLASSES  # many-, medium- and few-shot
    shift = 7 * record.trial.seed  # seeds differ in which images are right
    return torch.stack([greater.roll(shift), torch.zeros_like(greater), label, group])


def _fake_guesses(trial: Trial, ranks: Tensor) -> Tensor:
    """Return K guesses of each image: the true class at its rank, and the next classes at the other ranks."""
    greater, _, label, _ = ranks
    k = trial.arm.k
    guesses: Tensor = (label[:, None] + torch.arange(1, k + 1)) % max(int(label.max()) + 1, k + 1)
    right = greater < k
    guesses[right, greater[right]] = label[right]
    return guesses
