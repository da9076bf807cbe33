"""Rows kept back to measure a model on: chosen by a hash of their place, so that every pass chooses the same."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from learners.kernels.random import STEP, random_bits_at
from learners.passes.sources.source import Condition, Fragment, Mask, SourceFile


@dataclass(frozen=True)
class Share(Condition):
    """One of the two parts of the rows.

    A row's part depends on the seed, its file and its number in it: adding files moves no row to the other part. `share`
    is kept back, 0 <= share < 1.
    """

    share: float
    seed: int
    is_kept_back: bool

    @property
    def text(self) -> str:
        """The condition in words."""
        return f"{'kept back' if self.is_kept_back else 'not kept back'} {self.share} {self.seed}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads: none."""
        return ()

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """(n_rows,) bool."""
        key = int(hashlib.sha256(f"{self.seed} {file.footer_sha256}".encode()).hexdigest()[:16], 16)
        first = (fragment.row_group << 40) + offset
        kept_back = unit_hashes(key, first, rows.num_rows) < self.share
        return kept_back if self.is_kept_back else ~kept_back


def unit_hashes(key: int, first: int, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers in [0, 1) that look random, for the rows first .. first + n - 1."""
    counters = np.arange(first + 1, first + n + 1, dtype=np.uint64) * STEP + np.uint64(key)
    return (random_bits_at(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53
