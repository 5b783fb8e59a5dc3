"""The inputs of a trained network: all that is needed to use it without its training data."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from topk_platform.specs.checks import check
from topk_platform.specs.codec import decode
from topk_platform.specs.fields import Count, Whole, check_fields, one_of

__all__ = ["Inputs"]


@dataclass(frozen=True)
class Inputs:
    """The inputs and classes of a trained network.

    Args:
        shape: Shape of one input; for images (channels, height, width).
        classes: L.
        kind: ``"image"``: bytes x, from which the network gets ``(x / 255 - mean) / std``; ``"tensor"``: float32
            numbers, which the network gets as they are.
        names: The classes' names, which may be thousands and are not printed; empty if the dataset has none.
        mean: Mean of each channel, of values in [0, 1].
        std: Standard deviation of each channel, likewise.
        resize: The length of the shorter side to which images in files are scaled before their middle is taken; 0 if an
            image is scaled to the network's own height or width.

    Raises:
        UserError: if names are given, but not one for each class, or there is not one mean and one deviation for each
            channel of an image.

    Example:
        >>> Inputs((1, 2, 2), 2, "image", ("a", "b"), (0.5,), (0.25,)).name(1)
        'b'
        >>> Inputs((4,), 2, "tensor").name(1)
        '1'
    """

    shape: tuple[Count, ...]
    classes: Count
    kind: Annotated[str, one_of("image", "tensor")]
    names: tuple[str, ...] = field(default=(), repr=False)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: Whole = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check(
            not self.names or len(self.names) == self.classes,
            f"Inputs.names must hold one name for each of the {self.classes} classes, got {len(self.names)}",
        )
        channels = self.shape[0] if self.kind == "image" else 0
        check(
            len(self.mean) == len(self.std) == channels,
            f"Inputs.mean and std must hold one number per channel, {channels}, got {self.mean} and {self.std}",
        )

    def name(self, label: int) -> str:
        """Return a class's name, or its number if classes have no names."""
        return self.names[label] if self.names else str(label)

    @classmethod
    def from_data(cls, data: Any) -> Inputs:
        """Return the inputs from which :func:`~topk_platform.specs.codec.encode` made ``data``.

        Raises:
            ValueError: if ``data`` describes something else.
        """
        value = decode(data, (cls,))
        if not isinstance(value, cls):
            raise ValueError(f"not the {', '.join(one.name for one in fields(cls))} of inputs: {data!r}")
        return value
