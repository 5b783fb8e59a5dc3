"""Study definitions: functions that return ``Study`` values, in one literal table."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from topk_platform import Study
from topk_platform.errors import unknown_name
from topk_studies.asked_again import kanji_again, letters_again, letters_again_convnet, photos_again
from topk_studies.berrada2018 import (
    berrada2018_imagenet,
    berrada2018_margin,
    berrada2018_noise,
    berrada2018_temperature,
)
from topk_studies.digits import digits
from topk_studies.garcin2022 import (
    garcin2022_epsilon,
    garcin2022_imagenet,
    garcin2022_noise,
    garcin2022_plantnet,
    garcin2022_samples,
)
from topk_studies.kanji import kanji, kanji_classes, kanji_map, kanji_quick
from topk_studies.letters import letters, letters_quick
from topk_studies.letters_map import letters_map
from topk_studies.letters_questions import letters_questions
from topk_studies.photos import photos_fraction, photos_map, photos_noise, photos_pixels, photos_tail
from topk_studies.ring import ring
from topk_studies.sawada2020 import sawada2020_cifar100
from topk_studies.searches import (
    search_cifar100_augmented,
    search_cifar100_fraction,
    search_cifar100_noise,
    search_cifar100_tail,
    search_imagenet,
    search_imagenet_lt,
    search_plantnet,
)

if TYPE_CHECKING:
    from topk_platform.results.findings import Findings

__all__ = [
    "STUDIES",
    "berrada2018_imagenet",
    "berrada2018_margin",
    "berrada2018_noise",
    "berrada2018_temperature",
    "digits",
    "evidence",
    "findings_files",
    "garcin2022_epsilon",
    "garcin2022_imagenet",
    "garcin2022_noise",
    "garcin2022_plantnet",
    "garcin2022_samples",
    "kanji",
    "kanji_again",
    "kanji_classes",
    "kanji_map",
    "kanji_quick",
    "letters",
    "letters_again",
    "letters_again_convnet",
    "letters_map",
    "letters_questions",
    "letters_quick",
    "photos_again",
    "photos_fraction",
    "photos_map",
    "photos_noise",
    "photos_pixels",
    "photos_tail",
    "ring",
    "sawada2020_cifar100",
    "search_cifar100_augmented",
    "search_cifar100_fraction",
    "search_cifar100_noise",
    "search_cifar100_tail",
    "search_imagenet",
    "search_imagenet_lt",
    "search_plantnet",
]


def findings_files() -> dict[str, Path]:
    """Return the files of the shipped findings by study name, without reading them."""
    folder = Path(__file__).parent / "findings"
    return {file.name.partition(".")[0]: file for file in sorted(folder.glob("*.json.gz"))}


def evidence(*names: str) -> tuple["Findings", ...]:
    """Return the shipped findings, by study name: these studies' results on our machines.

    Args:
        *names: Studies whose findings to read; by default all that are shipped, which takes some seconds.

    Raises:
        UserError: for a study whose findings are not shipped.

    Example:
        >>> [findings.study.name for findings in evidence("letters_memory", "letters_underfit")]
        ['letters_memory', 'letters_underfit']
    """
    from topk_platform.results.findings import Findings  # noqa: PLC0415 - pyarrow, which no definition needs

    files = findings_files()
    for name in names:
        if name not in files:
            raise unknown_name("study whose findings are shipped", name, files)
    return tuple(Findings.read(files[name]) for name in names or files)


STUDIES: dict[str, Callable[[], Study]] = {
    "digits": digits,
    "letters": letters,
    "letters_quick": letters_quick,
    "letters_map": letters_map,
    "letters_again": letters_again,
    "letters_again_convnet": letters_again_convnet,
    "letters_questions": letters_questions,
    "kanji": kanji,
    "kanji_quick": kanji_quick,
    "kanji_map": kanji_map,
    "kanji_classes": kanji_classes,
    "kanji_again": kanji_again,
    "photos_noise": photos_noise,
    "photos_fraction": photos_fraction,
    "photos_tail": photos_tail,
    "photos_map": photos_map,
    "photos_again": photos_again,
    "photos_pixels": photos_pixels,
    "ring": ring,
    "berrada2018_noise": berrada2018_noise,
    "berrada2018_temperature": berrada2018_temperature,
    "berrada2018_imagenet": berrada2018_imagenet,
    "berrada2018_margin": berrada2018_margin,
    "garcin2022_epsilon": garcin2022_epsilon,
    "garcin2022_samples": garcin2022_samples,
    "garcin2022_noise": garcin2022_noise,
    "garcin2022_plantnet": garcin2022_plantnet,
    "garcin2022_imagenet": garcin2022_imagenet,
    "sawada2020_cifar100": sawada2020_cifar100,
    "search_cifar100_noise": search_cifar100_noise,
    "search_cifar100_fraction": search_cifar100_fraction,
    "search_cifar100_tail": search_cifar100_tail,
    "search_cifar100_augmented": search_cifar100_augmented,
    "search_imagenet": search_imagenet,
    "search_imagenet_lt": search_imagenet_lt,
    "search_plantnet": search_plantnet,
}
