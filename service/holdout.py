"""Rows kept back to measure a model on: chosen by a hash of their place, so that every pass chooses the same."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from learners.passes.source import Fragment, Source

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Split(Source):
    """One of the two parts of a source.

    Its files carry the split in their identity, so that statistics of a part are stored and found again.

    Attributes
    ----------
    n_kept : int
        Rows of this part; `n_rows` are those that a pass reads.
    """

    n_kept: int

    @property
    def is_identified(self) -> bool:
        """Whether the content can be told by its files: as for the whole, since the choice depends on them only."""
        return self._table is None


def held_out(source: Source, share: float, seed: int) -> tuple[Split, Split]:
    """The rows to train on and those kept back.

    A row's part depends on the seed, its file and its number in it: adding files moves no row to the other part.

    Parameters
    ----------
    source : Source
        All rows.
    share : float
        To keep back, 0 <= share < 1.
    seed : int
        Another seed keeps back other rows.
    """
    return _part(source, share, seed, is_kept_back=False), _part(source, share, seed, is_kept_back=True)


def _part(source: Source, share: float, seed: int, *, is_kept_back: bool) -> Split:
    keys = [_key(seed, file.footer_sha256) for file in source.files]

    def mask(fragment: Fragment, offset: int, n_rows: int) -> Mask:
        first = (fragment.row_group << 40) + offset
        return (unit_hashes(keys[fragment.file], first, n_rows) < share) == is_kept_back

    def keep(batch: pa.RecordBatch, fragment: Fragment, offset: int) -> pa.RecordBatch:
        return batch.filter(pa.array(mask(fragment, offset, batch.num_rows)))

    files = [
        replace(file, footer_sha256=_digest(f"{file.footer_sha256} {share} {seed} {is_kept_back}"))
        for file in source.files
    ]
    part = _split(source, files, keep)
    part.n_kept = sum(int(mask(fragment, 0, fragment.n_rows).sum()) for fragment in source.fragments)
    return part


def _split(source: Source, files: list[Any], keep: Callable[..., pa.RecordBatch]) -> Split:
    return Split(files, source.arrow_schema, source._filesystem, source._table, source._metadata, keep)


def unit_hashes(key: int, first: int, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers in [0, 1) that look random, for the rows first .. first + n - 1.

    References
    ----------
    Steele, Lea, Flood (2014), Fast splittable pseudorandom number generators (splitmix64).
    """
    z = (np.arange(first + 1, first + n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _key(seed: int, identity: str) -> int:
    return int(_digest(f"{seed} {identity}")[:16], 16)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
