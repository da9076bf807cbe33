"""How many bits tables of counts have: 32 while that is enough."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import AnyIntegers

MOST_SHORT = (1 << 31) - 1  # rows that 32 bits count
MOST_CELL_BYTES = 8


def wide_enough(table: AnyIntegers, most: int) -> AnyIntegers:
    """The table itself, or a copy by 64 bits, if its 32 cannot hold counts up to `most`."""
    return table.astype(np.int64) if most > MOST_SHORT and table.dtype != np.int64 else table
