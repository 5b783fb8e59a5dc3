"""The normalised last layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from topk_losses._core.checks import check_dimension, check_positive, check_scores
from topk_losses._core.shapes import computing, full_precision

__all__ = ["CosineHead"]


class CosineHead(nn.Module):
    r"""A last layer without bias that returns the cosines between features and class weights.

    .. math:: s_c = \lambda \cdot \frac{\langle w_c, x \rangle}{\|w_c\| \, \|x\|}

    LDAM and the noised imbalanced hinge need plain cosines, λ = 1, since they have a scale of their own. Under autocast
    the cosines are still computed in float32, because half precision would round away margins of 0.01. Features of
    length 0 have cosines of 0 and a finite gradient.

    Args:
        in_features: F, the number of features.
        classes: L, the number of classes.
        scale: λ, above 0.
        generator: random generator of the initial weights, which are uniform on the unit sphere.
        device: device of the weights.
        dtype: dtype of the weights.

    Raises:
        ValueError: for sizes below 1 and λ not above 0, and in ``forward`` for features of another size.

    Example:
        >>> import torch
        >>> head = CosineHead(in_features=16, classes=5, generator=torch.Generator().manual_seed(0))
        >>> head(torch.ones(3, 16)).shape
        torch.Size([3, 5])
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        scale: float = 1.0,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_dimension("in_features", in_features)
        check_dimension("classes", classes)
        check_positive("scale", scale)
        self.in_features = in_features
        self.classes = classes
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(classes, in_features, device=device, dtype=dtype))
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new class weights, uniform on the unit sphere."""
        with torch.no_grad():
            self.weight.normal_(generator=generator)
            self.weight.copy_(_unit(self.weight))

    def forward(self, features: Tensor) -> Tensor:
        """Return cosines ``(..., L)`` for features ``(..., F)``: float64 for float64 features, else float32."""
        check_scores(features, "features", dimensions=1)
        if features.shape[-1] != self.in_features:
            raise ValueError(f"features must have {self.in_features} columns, got {tuple(features.shape)}")
        with full_precision(features):
            directions = _unit(computing(features))
            cosines = directions @ _unit(computing(self.weight)).to(directions.dtype).mT
            return self.scale * cosines

    def extra_repr(self) -> str:
        """Return the constructor's arguments as text."""
        return f"in_features={self.in_features}, classes={self.classes}, scale={self.scale}"


def _unit(vectors: Tensor) -> Tensor:
    """Divide vectors by their lengths; vectors of length 0 stay as they are."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / length.masked_fill(length == 0, 1)
