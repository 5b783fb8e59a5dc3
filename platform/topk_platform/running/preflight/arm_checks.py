"""All checks that can be made before a worker starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import torch
from torch import Tensor

from topk_platform.data import (
    Images,
    Source,
    check_source,
    download,
    forget_datasets,
    load,
)
from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.models import build_model, check_model
from topk_platform.own_measures import of_scores
from topk_platform.protocol.suggest import check_sampler
from topk_platform.running.preflight.rehearsal import Rehearsal
from topk_platform.running.preflight.training_splits import Draws
from topk_platform.specs import (
    Arm,
    Parameter,
    Study,
    images_of,
    measure_of,
    reaching,
)
from topk_platform.specs.checks import check, first_few
from topk_platform.training import check_ensemble, check_loss
from topk_platform.versions import references, versions_of

__all__ = ["check_device", "check_imported", "check_study"]

_EMPTY_CLASS = (
    "; with some seed a class has no training sample: take class_counts.clamp(min=1), as our own losses do"
)


def check_study(
    study: Study, downloads: bool = False, finished: Mapping[str, str] | None = None
) -> dict[str, Identity]:
    """Check a study; return each arm's code and data, or raise the first error found.

    The data are read again, because they may have changed since an earlier run in this process, as in a notebook.

    Args:
        study: The study.
        downloads: Whether to download the datasets that are not on disk.
        finished: Arms with nothing left to run, each with the fingerprint of the data it was trained on. Of these
            only the data are checked; if the data changed, the arms are checked like the others.

    Returns:
        Each arm's code and data, by arm ID; the environment is filled in later.

    Raises:
        MissingDataError: if a dataset is not on disk.
        UserError: naming an unknown dataset, model, loss or parameter, with similar names; inputs that are not
            finite; a dataset function that gives different data when called twice; a K that is not below the number
            of classes; a seed whose data cannot be drawn or split; a value of the space that the loss or the recipe
            refuses; an error in an arm's first training step.
    """
    forget_datasets()
    of_scores(study.measures)
    if downloads:
        for regime in {images_of(arm.regime): arm.regime for arm in study.arms}.values():
            download(regime)
    identities, rehearse, sound, draws = {}, Rehearsal(), set(), Draws(study)
    codes = versions_of(study)
    for arm in study.arms:
        dataset, arm_id = load(arm.regime), study.arm_id(arm)
        identities[arm_id] = Identity(codes[arm_id], dataset.fingerprint)
        if (finished or {}).get(arm_id) == dataset.fingerprint:
            continue
        if (same := repr((arm.regime.dataset, sorted(arm.regime.options.items())))) not in sound:
            check_source(arm.regime, dataset)
            _check_class_names(arm, dataset)
            sound.add(same)
        check_sampler(arm, study.trials)
        _check_metrics(study, arm, dataset)
        counts = draws.class_counts(arm)
        draws.check_group_metrics(arm)
        _check_arm(arm, dataset, counts)
        rehearse(arm, dataset, counts)
    return identities


def _check_class_names(arm: Arm, dataset: Source) -> None:
    """Raise ``UserError`` for names that no table can hold: folders that another system named in its own encoding."""
    odd = [name for name in dataset.example.class_names if name.encode(errors="replace").decode() != name]
    check(
        not odd,
        f"regime {arm.regime.name}: names of classes must be UTF-8, got {first_few(list(map(ascii, odd)))}: rename "
        "their folders",
    )


def _check_metrics(study: Study, arm: Arm, dataset: Source) -> None:
    own = {name: measure for name in study.measures if (measure := measure_of(name))}
    numbers = {name: measure.number for name, measure in own.items() if measure.kind != "size"}
    for name, number in {"topk": study.topk[-1], **numbers}.items():
        check(
            number <= dataset.classes,
            f"study {study.name}: the K of {name} must be at most the number of classes ({dataset.classes} in arm "
            f"{arm.name}), got {number}",
        )


def _check_arm(arm: Arm, dataset: Source, class_counts: Tensor) -> None:
    classes, name = dataset.classes, f"arm {arm.name}"
    check(arm.k < classes, f"{name}: k must be below the number of classes ({classes}), got {arm.k}")
    check_model(arm.model)
    in_files = isinstance(dataset.example.train.inputs, Images)
    check(
        len(dataset.shape) == 3 or not arm.recipe.augmentation.on_images,
        f"{name}: crop, flip, cutout and cutmix are for images (channels, height, width), got inputs of shape "
        f"{dataset.shape}",
    )
    check(
        in_files or not (arm.recipe.augmentation.window or arm.recipe.test_crops),
        f"{name}: window and test_crops are for images in files, which are larger than what the network sees of "
        f"them; dataset {arm.regime.dataset} is in memory",
    )
    _check_space(arm, class_counts)
    if arm.protocol.ensemble > 1:
        check(not in_files, f"{name}: dataset {arm.regime.dataset} is in files and cannot train an ensemble")
        _check_ensemble(arm, dataset)


def _check_space(arm: Arm, class_counts: Tensor) -> None:
    """Build the recipe and the loss from the first points, then with each dimension at each end of its range.

    Of points that give the loss the same parameters, one is enough.
    """
    first, checked = arm.loss.first, list[Mapping[str, Parameter]]()
    ends = [(name, end) for name, dimension in arm.loss.space.items() for end in dimension.ends]
    reached = [reaching(arm.loss.space, first, name, end) for name, end in ends]
    for values in (first, *arm.loss.then, *reached):
        try:
            setting = arm.setting(values)
            if setting.own not in checked:
                check_loss(arm.loss, setting.own, arm.k, class_counts, setting.recipe)
                checked.append(setting.own)
        except UserError as error:
            hint = "" if class_counts.min() else _EMPTY_CLASS
            held = [
                f"{name} = {value!r}" for name, value in values.items() if (name, value) not in first.items()
            ]
            where = f"; the space holds {', '.join(held)}" if held else ""
            raise UserError(f"arm {arm.name}: {error}{hint}{where}") from error


def _check_ensemble(arm: Arm, dataset: Source) -> None:
    check(
        not (arm.loss.name in LOSS_CATALOGUE and LOSS_CATALOGUE[arm.loss.name].of_batches),
        f"arm {arm.name}: loss {arm.loss.name} has one value for a whole batch and cannot train an ensemble: "
        "Protocol(ensemble=1)",
    )
    network = build_model(arm.model, dataset.shape, dataset.classes, arm.loss.head)
    try:
        check_ensemble(network, arm.recipe, tuple(arm.loss.space))
    except UserError as error:
        raise UserError(f"arm {arm.name}: {error}") from error


def check_imported(study: Study) -> None:
    """Raise ``UserError`` if a module of the study is being imported: workers would run the study again."""
    for arm in study.arms:
        for name in references(arm):
            module = name.partition(":")[0]
            spec = getattr(sys.modules.get(module), "__spec__", None)
            if getattr(spec, "_initializing", False):  # the attribute that Python's own import system reads
                raise UserError(
                    f"study {study.name} must not be run by importing module {module!r}, as every worker does for "
                    f"{name}: put run(...) under if __name__ == '__main__':"
                )


def check_device(study: Study) -> None:
    """Raise ``UserError`` if the study needs a GPU and this machine, which is to run it, has none."""
    if study.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"study {study.name} needs device 'cuda', and this machine has none: run it on a cluster that has one, "
            "--address HOST:PORT; try it on the CPU with --smoke; or train there, with "
            "dataclasses.replace(study, device='cpu') in a study file of yours"
        )
