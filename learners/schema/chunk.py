"""The only form in which rows reach a statistic or a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.errors import InvalidChunk
from learners.kernels.arrays import Codes, Floats, Integers, Mask, freeze

CODE_TYPES = (np.dtype(np.uint8), np.dtype(np.uint16))


@dataclass(frozen=True, eq=False)
class Chunk:
    """A batch of encoded rows, column-major and read-only.

    Parameters
    ----------
    x : (n_attributes, n_rows) uint8 or uint16, C-contiguous
        Codes of the attributes; `schema.attributes[i].n_values` stands for a value that training never saw.
    y : (n_rows,) uint8 or uint16, or None
        Codes of the class, of the type of `x`.
    numbers : (len(schema.continuous), n_rows) float64, or None
        The numbers themselves of attributes that have a distribution; NaN where missing or absent.

    Raises
    ------
    InvalidChunk
        If the codes of `x` are neither uint8 nor uint16, or those of `y` are of another type or of other rows.
    """

    x: Codes
    y: Codes | None
    numbers: Floats | None = None

    def __post_init__(self) -> None:
        if self.x.dtype not in CODE_TYPES:
            raise InvalidChunk(f"Codes of attributes are uint8 or uint16, not {self.x.dtype}.")
        if self.y is not None and (self.y.dtype != self.x.dtype or self.y.shape != self.x.shape[1:]):
            raise InvalidChunk(
                f"Codes of the class are {self.y.dtype} of shape {self.y.shape}, beside {self.x.dtype} of {self.x.shape}."
            )
        # To numba a read-only array is another type: freezing every chunk keeps one compiled signature per kernel.
        freeze(*(array for array in (self.x, self.y, self.numbers) if array is not None))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[1])

    def rows(self, index: Integers | Mask | slice) -> Chunk:
        """The rows that an index array, mask or slice selects, in its order."""
        y = None if self.y is None else np.ascontiguousarray(self.y[index])
        numbers = None if self.numbers is None else np.ascontiguousarray(self.numbers[:, index])
        return Chunk(np.ascontiguousarray(self.x[:, index]), y, numbers)
