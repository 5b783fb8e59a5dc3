"""Export of an arm's best confirmed network, with everything that its use needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from topk_platform.data import data_at
from topk_platform.errors import StoreError, UserError, unknown_name
from topk_platform.records.history import ArmHistory
from topk_platform.records.networks import SavedModel, read_model
from topk_platform.records.rows import Row
from topk_platform.records.storage.checked_json import command_of
from topk_platform.results.contrasts import combined
from topk_platform.results.from_store import Held, read
from topk_platform.results.intervals import Estimate
from topk_platform.results.runs import Runs, runs_of_all
from topk_platform.serving.calibrating import calibrated_on_validation, keep_calibration
from topk_platform.serving.card import model_card
from topk_platform.serving.frozen import with_backbone
from topk_platform.serving.loader import write_onnx
from topk_platform.serving.package import BACKBONE, CALIBRATION, CARD, CONFIG, ONNX, WEIGHTS, Config
from topk_platform.specs import FEATURES, Study
from topk_platform.specs.fields import check_call
from topk_platform.trust import Trust

__all__ = ["Exported", "export_model"]


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Args:
        folder: Its folder.
        config: The network's configuration.
        seed: The seed of the network's confirmation.
        files: The names of the files.
    """

    folder: Path
    config: Config
    seed: int
    files: tuple[str, ...]


def export_model(
    study: Study,
    arm: str,
    to: str | Path,
    *,
    store: str | Path = "runs",
    seed: int | None = None,
    onnx: bool = False,
    calibrate: bool = False,
    data: str | Path | None = None,
) -> Exported:
    """Write an arm's confirmed network to a folder: tensors, configuration, model card and, if requested, more.

    By default, the network of the seed with the best validation is exported. The test set is not used to choose it. The
    test metrics on the card are those of the arm, over all its seeds.

    Args:
        study: The study.
        arm: The arm's name, ``regime/model/loss``.
        to: The folder; files of an earlier export in it are replaced.
        store: Folder or URI of the results.
        seed: The seed whose network is exported; by default the one with the best validation.
        onnx: Whether to write ``model.onnx`` too; it needs the extra ``onnx``.
        calibrate: Whether the network is calibrated on the study's validation split, for sets with a coverage. The
            split has selected the network, so that only samples of your own guarantee a coverage, see
            ``topk_platform.serving.calibrate_export``.
        data: The folder of datasets.

    Raises:
        UserError: if there is no such arm, it has no network, the folder contains something else, or the data that
            are to calibrate the network are missing or have changed.
    """
    check_call(export_model, locals())
    folder = Path(to).expanduser()
    held = read(study, store, needed=True)
    study, data = held.study, held.data_folder(data)
    history = _history(held, arm)
    runs = runs_of_all(study, held.results)[study.arm_id(history.arm)]
    chosen = _chosen(held, history, runs.confirmations, seed)
    saved = read_model(held.ledger.store, chosen)
    if saved is None:
        again = command_of(held.ledger.store, "run", "--networks", reference=study.reference)
        raise StoreError(
            f"store {str(store)!r} holds no network of arm {arm!r}, seed {chosen['seed']}; `{again}` trains that "
            "confirmation again"
        )
    estimates = _estimates(study, runs.with_ranks(held.ranks if study.interval == "crossed" else None))
    trust = Trust.of_study(study)
    _check_folder(folder)
    config, more = _configured(saved, data)
    card = model_card(study, saved, config, chosen, estimates)
    files = tuple(_write(folder, saved, config, {**more, CARD: card.encode()}))
    if calibrate:
        with data_at(data):
            calibration, text = calibrated_on_validation(saved, trust)
        with _writing(folder):
            keep_calibration(folder, calibration, text)
        files = (*files, CALIBRATION)
    if onnx:
        with _writing(folder):
            write_onnx(folder, trust)
        files = (*files, ONNX)
    return Exported(folder, config, chosen["seed"], files)


def _history(held: Held, arm: str) -> ArmHistory:
    named = {history.arm.name: history for history in held.histories.values()}
    if arm not in named:
        raise unknown_name(f"arm: study {held.study.name} has no", arm, named)
    return named[arm]


def _chosen(held: Held, history: ArmHistory, confirmations: Mapping[int, Row], seed: int | None) -> Row:
    completed = {s: row for s, row in confirmations.items() if row["status"] == "completed"}
    if not completed:
        plan = command_of(held.ledger.store, "plan", reference=held.study.reference)
        raise UserError(
            f"arm {history.arm.name} has no completed confirmation that counts: run the study first; `{plan}` says "
            "which recorded trials do not count, and why"
        )
    if seed is not None and seed not in completed:
        raise UserError(f"seed must be one of the confirmed seeds {sorted(completed)}, got {seed}")
    best = max(completed.values(), key=lambda row: history.ended_of(row).score)
    return best if seed is None else completed[seed]


def _estimates(study: Study, runs: Runs) -> dict[str, Estimate]:
    estimates = {metric: combined([(1, runs)], metric, difference=False) for metric in study.tabled}
    return {metric: estimate for metric, estimate in estimates.items() if estimate is not None}


def _configured(saved: SavedModel, data: str | Path | None) -> tuple[Config, dict[str, bytes]]:
    """Return a network's configuration, and the file of the backbone that made its features, if it takes features."""
    config, regime = Config.of(saved), saved.trial.arm.regime
    if regime.dataset != FEATURES:
        return config, {}
    with data_at(data):  # a file of weights may be there
        config, content = with_backbone(config, regime.options, saved.backbone)
    return config, {BACKBONE: content}


def _check_folder(to: Path) -> None:
    """Raise ``UserError`` if a folder holds anything other than an earlier export.

    Other programs also keep networks in a ``config.json`` and a ``model.safetensors``, such as Hugging Face's.
    """
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return
    try:
        Config.read(to)
    except UserError as error:
        raise UserError(
            f"--to must be a new or empty folder, or the folder of an earlier export, got {str(to)!r}"
        ) from error


def _write(to: Path, saved: SavedModel, config: Config, more: Mapping[str, bytes]) -> Iterable[str]:
    files = {
        WEIGHTS: saved.content,
        CONFIG: config.to_json().encode(),
        "trial.json": (json.dumps(json.loads(saved.trial.to_json()), indent=1) + "\n").encode(),
        **more,
    }
    with _writing(to):
        to.mkdir(parents=True, exist_ok=True)
        # Files of an earlier export belong to another network.
        for name in (BACKBONE, ONNX, CALIBRATION):
            (to / name).unlink(missing_ok=True)
        for name, content in files.items():
            (to / name).write_bytes(content)
    return files


@contextmanager
def _writing(to: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"--to {str(to)!r} cannot be written: {error}") from error
