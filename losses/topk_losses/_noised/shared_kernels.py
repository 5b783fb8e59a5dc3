"""What the CPU kernels that draw for the noised top-K operator share: bins, and the types of their buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Doubles: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]
    Booleans: TypeAlias = NDArray[np.bool_]

    # Plain tuples: Numba stores the names of our classes on disk, and would fail if a later version renamed them.
    Tables: TypeAlias = tuple[Doubles, Doubles, Doubles]
    """For the gaps ``g = i WIDTH``: ``1 - Φ((i + 1/2 - BINS) WIDTH)`` for i in ``[0, 2 BINS)``, ``-1 / log Φ(g)`` and
    ``(g + sqrt(g² + 4)) / 2`` for i in ``[0, BINS]``.
    """
    Candidates: TypeAlias = tuple[Integers, Doubles, Integers]
    """The classes of a row that are in bins, their scores in units of ε from the centre, and their bins."""
    Binned: TypeAlias = tuple[Integers, Doubles, Integers]
    """These classes and scores sorted from the highest bin to the lowest, and where each bin starts ``(BINS + 1,)``."""
    Block: TypeAlias = tuple[Doubles, Integers, Integers, Doubles, Integers]
    """Draws side by side, in lanes. Noisy scores of each lane, first those drawn outright; the classes of the others
    and their number; a buffer for the k largest with the k-th largest in its last row ``(k + 1, ·)``; its position.
    """
    Completion: TypeAlias = tuple[Doubles, Booleans, Doubles]
    """The value of every class ``(L,)``, whether it exceeds the threshold ``(L,)``, a buffer for the k largest."""
    Buffers: TypeAlias = tuple[tuple[Floats, Doubles], Candidates, Binned, Integers, Block, Completion]
    """Buffers for one row: group maxima and the k largest of them, then the tuples above, with the bins that are
    thinned ``(4, BINS + 1)`` after ``Binned``.
    """

__all__ = ["ABOVE", "BINS", "OUTRIGHT", "WIDTH"]

WIDTH = 0.2  # width of a bin, in units of ε
ABOVE = 21  # bins above the centre; the first one has no upper bound
BINS = ABOVE + 31
OUTRIGHT = 3  # bins below the threshold whose classes are drawn outright
