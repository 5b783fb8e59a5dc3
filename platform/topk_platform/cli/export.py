"""Commands that export networks, trials and findings, and the command that uses an exported network."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from topk_platform import serving
from topk_platform.cli import options
from topk_platform.cli.consoles import Exit, check_suffix, print_json, say, write_file
from topk_platform.cli.options import check_format, nonblank
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.reports.exports import trials_csv
from topk_platform.reports.text_tables import rows_to_csv
from topk_platform.serving.package import Config
from topk_platform.serving.set_calibration import METHODS
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few, plural
from topk_platform.terminal import printable

__all__ = ["export", "predict"]

_ENDINGS = {"csv": ".csv", "findings": ".json.gz"}


def export(
    study: options.Study,
    to: options.To,
    arm: Annotated[
        str | None, typer.Option("--arm", help="The arm whose network is exported, regime/model/loss.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="The confirmation's seed; by default the one with the best validation."),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx as well.")] = False,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            help="model: an arm's network; optuna: a journal file; csv: all trials, "
            "with a codebook; findings.",
        ),
    ] = "model",
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Calibrate it on the validation split, for `topk predict --coverage`."
        ),
    ] = False,
    note: Annotated[
        str, typer.Option("--note", help="A note kept in the findings, such as the commit.")
    ] = "",
    data: options.Data = None,
    store: options.Store = "runs",
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    smoke: options.Smoke = False,
) -> None:
    """Write an arm's confirmed network for `topk predict`, a study's trials for other tools, or its findings.

    Findings are the study's table in a small file, for `topk table` on machines without the store.

    Example: topk export letters_quick --arm noise-0.8/mlp/smooth_topk_svm --to winner
    """
    _check_export(output, arm, seed, onnx or calibrate)
    if output in _ENDINGS:
        check_suffix(Path(to), [_ENDINGS[output]], f"with --format {output}")
    if output != "findings" and note:
        raise UserError(f"--note is for --format findings, got --format {output}")
    if output not in ("findings", "model") and data is not None:
        raise UserError(f"--data is for a network and for --format findings, got --format {output}")
    requested = requested_study(study, smoke, store, searches, trials, seeds)
    if output == "model":
        if arm is None:
            names = first_few([arm.name for arm in requested.arms])
            raise UserError(f"--format model needs --arm, the arm whose network is exported, of {names}")
        exported = serving.export_model(
            requested,
            arm,
            to,
            store=store,
            seed=seed,
            onnx=onnx,
            calibrate=calibrate,
            data=data,
        )
        say(f"{exported.config.arm}, seed {exported.seed}: {', '.join(exported.files)} in {to}")
        return
    files = _files_for_others(requested, Path(to).expanduser(), output, store=store, data=data, note=note)
    for file, content in files.items():
        write_file(file, content)
        say(f"wrote {file}, {len(content):,} bytes")


def _files_for_others(
    study: Study, path: Path, output: str, *, store: str, data: str | None, note: str
) -> dict[Path, bytes]:
    """Return the files of an export without a network."""
    if output == "csv":
        trials, codebook = trials_csv(study, store=store)
        return {path: trials.encode(), path.with_suffix(".codebook.csv"): codebook.encode()}
    if output == "findings":
        from topk_platform.reports.findings_export import findings  # noqa: PLC0415 - torch

        return {path: findings(study, store=store, data=data, note=note).to_bytes()}
    if os.path.lexists(path):  # a journal that is used with Optuna holds more than was exported
        raise UserError(f"--to must be a new file, got {str(path)!r}")
    from topk_platform.reports.optuna_journal import optuna_journal  # noqa: PLC0415 - Optuna

    return {path: optuna_journal(study, store=store)}


def _check_export(output: str, arm: str | None, seed: int | None, more: bool) -> None:
    """Raise ``UserError`` for options that do not go together."""
    if output not in ("model", "optuna", "csv", "findings"):
        raise UserError(f"--format must be model, optuna, csv or findings, got {output!r}")
    if output != "model" and arm is not None:
        raise UserError(f"--format {output} exports all arms: leave --arm out")
    if output != "model" and (more or seed is not None):
        raise UserError(f"--onnx, --calibrate and --seed are for a network, not for --format {output}")


def predict(
    folder: Annotated[
        str, typer.Argument(help="A folder that `topk export --arm` wrote.", callback=nonblank)
    ],
    images: Annotated[
        list[str],
        typer.Argument(help="Image files and folders of them; .npy files for a network that takes numbers."),
    ],
    k: Annotated[
        int | None,
        typer.Option("-k", "--k", help="How many candidates; by default the K that it was trained for."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            help="Print sets of as many classes as it takes to hold the true one for so many percent of images.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help=f"How sets are formed: {', '.join(METHODS)}; by default {METHODS[0]}."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Calibrate the network on a folder of labelled inputs, CLASS/INPUT, and keep that in its folder.",
        ),
    ] = False,
    output: Annotated[str, typer.Option("--format", help="text or csv.")] = "text",
    trust: options.Trust = None,
    json: options.Json = False,
) -> None:
    """Print the K candidates for each image, with the probability of being among the K best.

    The probabilities of all classes add up to K; for K = 1 they are the softmax of the scores. They are not
    calibrated.

    With --coverage, print a set for each image instead, with the calibrated probability of each class. The network must
    have been calibrated; its README.md says on how many samples, and what is guaranteed.

    Only code of this package is run, unless --trust names a module.

    Exit code 1: some inputs cannot be read; they are named at the end, after the candidates of all others.

    Example: topk predict winner photo.png -k 3
    """
    check_format(output, *_FORMATS, json=json)
    _check_sets(k, coverage, method)
    if calibrate:
        _calibrate_export(folder, images, trust or ())
        return
    inputs = Config.read(Path(folder)).inputs  # before torch is loaded, which takes a second
    model = serving.load_model(folder, trust=trust or ())
    listed_files = [str(file) for file in serving.listed(images, inputs)]
    broken: dict[str, str] = {}
    if coverage is None:
        predicted = model.predict(listed_files, k, broken)
    else:
        predicted = model.predict_sets(listed_files, coverage / 100, method or METHODS[0], broken)
    files = [file for file in listed_files if file not in broken]
    if json:
        print_json(_data(files, predicted, "candidates" if coverage is None else "set"))
    else:
        say(_FORMATS[output](files, predicted), nl=False)
        if output == "text" and coverage is None and predicted:
            say(_meaning(len(predicted[0])))
    _report_unread(images, listed_files, broken)


def _calibrate_export(folder: str, samples: Sequence[str], trust: Sequence[str]) -> None:
    """Calibrate an exported network on labelled inputs, and say what it can now be asked for."""
    if len(samples) != 1:
        raise UserError(f"--calibrate takes one folder of labelled inputs, CLASS/INPUT, got {len(samples)}")
    made = serving.calibrate_export(folder, samples[0], trust=trust)
    say(
        f"calibrated on {plural(made.tuned + made.samples, 'input')}, all classes together: --coverage may be at most "
        f"{100 * made.most:.4g}, and holds if none of these inputs trained or chose the network; kept in {folder}"
    )


def _report_unread(images: Sequence[str], files: Sequence[str], broken: Mapping[str, str]) -> None:
    """Say which files were not read, and end with code 1 if one of those that should have been cannot be."""
    for folder in filter(os.path.isdir, map(os.path.expanduser, images)):
        if unread := serving.not_read(Path(folder), set(files)):
            say(f"topk: {folder}: {unread}", err=True)
    for reason in broken.values():
        say(f"topk: {reason}", err=True)
    if broken:
        say(
            f"topk: {len(broken)} of {plural(len(files), 'input')} cannot be read; the others are above",
            err=True,
        )
        raise typer.Exit(Exit.FAILED)


def _check_sets(k: int | None, coverage: float | None, method: str | None) -> None:
    """Raise ``UserError`` for options of sets that do not go together, or a coverage that is not a percentage."""
    if coverage is None:
        if method is not None:
            raise UserError("--method is for sets: give --coverage too, such as --coverage 95")
        return
    if k is not None:
        raise UserError("--coverage decides how many classes a set has: leave -k out")
    if not 1 <= coverage < 100:
        meant = f", do you mean {100 * coverage:g}?" if 0 < coverage < 1 else ""
        raise UserError(f"--coverage must be a percentage in [1, 100), got {coverage:g}{meant}")


def _text(images: Sequence[str], candidates: Sequence[Sequence[serving.Candidate]]) -> str:
    names = [[printable(candidate.name, line=True) for candidate in row] for row in candidates]
    width = max((len(name) for row in names for name in row), default=0)
    lines = []
    for image, row, named in zip(images, candidates, names, strict=True):
        lines.append(printable(image, line=True))
        lines += [
            f"  {name:<{width}}  {candidate.probability:7.2%}"
            for name, candidate in zip(named, row, strict=True)
        ]
    return "\n".join(lines) + "\n"


def _meaning(k: int) -> str:
    """Return what the percentages of K candidates are, because they are easily taken for those of the classes."""
    if k == 1:
        return "The percentage is the softmax of the scores; it is not calibrated."
    return f"Each percentage is the probability that the class is among the {k} best; it is not calibrated."


def _csv(images: Sequence[str], candidates: Sequence[Sequence[serving.Candidate]]) -> str:
    rows = (
        {"image": image, "rank": rank, **vars(candidate)}
        for image, row in zip(images, candidates, strict=True)
        for rank, candidate in enumerate(row, 1)
    )
    return rows_to_csv(("image", "rank", "label", "name", "probability"), rows)


def _data(
    images: Sequence[str], candidates: Sequence[Sequence[serving.Candidate]], kind: str
) -> list[dict[str, Any]]:
    pairs = zip(images, candidates, strict=True)
    return [{"image": image, kind: [vars(candidate) for candidate in row]} for image, row in pairs]


_FORMATS = {"text": _text, "csv": _csv}
