"""Counts of more cells than memory holds: sorted runs, in memory while they fit and in files beyond."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from learners.counts.sparse_kernels import count_sorted_keys, merge_sorted_runs, radix_sort_keys
from learners.kernels.arrays import Integers, Uint32s
from learners.passes.memory import MemoryLimit, TemporaryFolder

MAX_RUNS_RATIO = 2
BLOCK_CELLS = 1 << 18
SAMPLE = 1024
N_MERGERS = 2
CELL_BYTES = 16
MOST_WAITING = 1 << 22  # keys
LEAST_ROOM = 1 << 20  # keys: an array for which NumPy asks the machine for large pages


class Run(NamedTuple):
    """Distinct ascending cells and their counts."""

    cells: Integers
    counts: Integers


class KeyRun(NamedTuple):
    """A run in the integer type of its counted keys, possibly sharing their memory."""

    cells: Integers | Uint32s
    counts: Integers | Uint32s


EMPTY = Run(np.empty(0, np.int64), np.empty(0, np.int64))


class FileRun:
    """A run in a file: all cells, then all counts.

    `samples`, (n_cells / SAMPLE,) int64: every SAMPLE-th cell from the first, to find a cell without reading the
    whole file.
    """

    def __init__(self, path: Path, n_cells: int, samples: Integers) -> None:
        self.path, self.n_cells, self.samples = path, n_cells, samples

    def position(self, cell: int) -> int:
        """Return the number of cells less than this one."""
        block = int(np.searchsorted(self.samples, cell))
        first = max(0, block - 1) * SAMPLE
        last = min(block * SAMPLE, self.n_cells)
        return first + int(np.searchsorted(np.fromfile(self.path, np.int64, last - first, offset=8 * first), cell))

    def block(self, first: int, last: int) -> Run:
        """Read part of the run into memory."""
        cells = np.fromfile(self.path, np.int64, last - first, offset=8 * first)
        return Run(cells, np.fromfile(self.path, np.int64, last - first, offset=8 * (self.n_cells + first)))

    def mapped(self) -> Run:
        """Memory-map the whole run."""
        parts = (np.memmap(self.path, np.int64, "r", at, (self.n_cells,)) for at in (0, 8 * self.n_cells))
        return Run(*map(np.asarray, parts))


class Folder(TemporaryFolder):
    """Temporary folder of count files, removed with its last user."""

    def __init__(self, parent: Path) -> None:
        super().__init__(parent, "fewpass-cells-")
        self._n_files = 0

    def next_path(self) -> Path:
        """Return an unused file name."""
        self._n_files += 1
        return self.path / f"{self._n_files}.run"


def run_as_int64(run: Run | KeyRun) -> Run:
    """Convert a run to int64."""
    return Run(run.cells.astype(np.int64, copy=False), run.counts.astype(np.int64, copy=False))


def sum_sparse_runs(a: Run | KeyRun, b: Run | KeyRun) -> Run:
    """Add two runs, dropping zero sums."""
    cells, counts = (np.empty(a.cells.size + b.cells.size, np.int64) for _ in range(2))
    n = merge_sorted_runs(*run_as_int64(a), *run_as_int64(b), cells, counts)
    return Run(cells[:n].copy(), counts[:n].copy()) if 2 * n < cells.size else Run(cells[:n], counts[:n])


def count_distinct_keys(keys: Integers | Uint32s, n_bits: int) -> KeyRun:
    """Count the occurrences of each distinct key (n,) below 2**n_bits; overwrites keys."""
    counts = np.empty_like(keys)
    radix_sort_keys(keys, counts, n_bits)
    n = count_sorted_keys(keys, counts)
    return KeyRun(keys[:n].copy(), counts[:n].copy()) if 2 * n < keys.size else KeyRun(keys[:n], counts[:n])


class SparseCells:
    """Counts of cells, few of which occur.

    Keys are collected in a buffer; a full buffer becomes a run. Two runs are merged when the younger has grown to
    half of the older, so there are few runs and each cell is moved a logarithmic number of times. Runs beyond the
    limit move to files.

    `n_cells`: number of possible cells. `limit`: memory limit of these counts. `capacity`: maximum number of buffered
    keys.
    """

    def __init__(self, n_cells: int, limit: MemoryLimit) -> None:
        self.n_bits = max(1, int(n_cells - 1).bit_length())
        self.limit = limit
        self.runs: list[Run | KeyRun] = []
        self.files: list[FileRun] = []
        self._folders: list[Folder] = []
        self._buffer = self._keys(0)
        # Sorting needs the buffer twice, and a run of its cells: a quarter of the limit, as merging the runs needs another half.
        self.capacity = int(
            np.clip(limit.n_bytes // (4 * (2 * self._buffer.itemsize + CELL_BYTES)), 1 << 14, MOST_WAITING)
        )
        self._n_buffered, self._n_expected = 0, min(self.capacity, LEAST_ROOM)

    def room(self, n: int) -> Integers | Uint32s:
        """Return a buffer for n keys, each counting one row; fill it before any other call."""
        if self._n_buffered + n > self._buffer.size:
            if self._n_buffered + n > self.capacity:
                self._settle()
            # What is not written to takes no memory.
            self._n_expected = max(self._n_expected, min(self.capacity, 4 * (self._n_buffered + n)))
            grown = self._keys(max(n, self._n_expected))
            grown[: self._n_buffered] = self._buffer[: self._n_buffered]
            self._buffer = grown
        self._n_buffered += n
        return self._buffer[self._n_buffered - n : self._n_buffered]

    def _keys(self, n: int) -> Integers | Uint32s:
        """Allocate n keys."""
        return np.empty(n, np.uint32) if self.n_bits <= 32 else np.empty(n, np.int64)

    def add_run(self, run: Run | KeyRun) -> None:
        """Add counts, which may be negative, of distinct ascending cells."""
        if not run.cells.size:
            return
        self.runs.append(run)
        while len(self.runs) > 1 and self.runs[-2].cells.size <= MAX_RUNS_RATIO * self.runs[-1].cells.size:
            b, a = self.runs.pop(), self.runs.pop()
            self.runs.append(sum_sparse_runs(a, b))
        if sum(kept.cells.size for kept in self.runs) * 4 * CELL_BYTES > self.limit.n_bytes:
            self._write()

    def add_counts(self, other: SparseCells, sign: int) -> None:
        """Add (sign 1) or subtract (-1) the counts of another."""
        other._settle()
        for run in other.runs:
            cells, counts = run_as_int64(run)
            self.add_run(run if sign > 0 else Run(cells, -counts))
        for file in other.files:
            if sign > 0:
                self.files.append(file)
            else:
                for first in range(0, file.n_cells, BLOCK_CELLS):
                    block = file.block(first, min(first + BLOCK_CELLS, file.n_cells))
                    self.add_run(Run(block.cells, -block.counts))
        self._folders += other._folders
        self._settle()
        if self.files and self.runs:  # of many families they would take as much memory as all else
            self._write()

    def blocks(self) -> Iterator[Run]:
        """Yield the content of `distinct` in blocks of cells, read instead of mapped."""
        whole = self.distinct()
        if not self.files:
            yield whole
            return
        for first in range(0, max(1, self.files[0].n_cells), BLOCK_CELLS):
            yield self.files[0].block(first, min(first + BLOCK_CELLS, self.files[0].n_cells))

    def _settle(self) -> None:
        """Convert all buffered keys to a run, which may share their memory."""
        if self._n_buffered:
            keys, self._n_buffered = self._buffer[: self._n_buffered], 0
            self.add_run(count_distinct_keys(keys, self.n_bits))
        self._buffer = self._keys(0)

    def _write(self) -> None:
        """Move all runs to one file."""
        run = self._in_memory()
        self.runs = []
        path = self._folder().next_path()
        with path.open("wb") as file:
            run.cells.tofile(file)
            run.counts.tofile(file)
        self.files.append(FileRun(path, run.cells.size, run.cells[::SAMPLE].copy()))

    def _folder(self) -> Folder:
        if not self._folders:
            self._folders.append(Folder(self.limit.directory))
        return self._folders[0]

    def _in_memory(self) -> Run:
        while len(self.runs) > 1:
            b, a = self.runs.pop(), self.runs.pop()
            self.runs.append(sum_sparse_runs(a, b))
        return run_as_int64(self.runs[0]) if self.runs else EMPTY

    def distinct(self) -> Run:
        """Return all cells with a nonzero count, memory-mapped from a file if they did not fit in memory."""
        self._settle()
        if not self.files:
            return self._in_memory()
        if self.runs:
            self._write()
        if len(self.files) > 1:
            self.files = [merge_run_files(self.files, self._folder())]
        return self.files[0].mapped() if self.files[0].n_cells else EMPTY


def merge_run_files(files: list[FileRun], folder: Folder) -> FileRun:
    """Merge runs in files into one, a range of cells at a time.

    `folder`: location of the result.
    """
    path, tail = folder.next_path(), folder.next_path()
    # Every so many cells of the longest run a range ends; the other runs have about as many there, or fewer.
    longest = max(files, key=lambda file: file.n_cells)
    step = max(1, BLOCK_CELLS // len(files) // SAMPLE)
    edges = [[file.position(int(bound)) for file in files] for bound in longest.samples[step::step]]
    edges = [[0] * len(files), *edges, [file.n_cells for file in files]]

    def merged_range(ends: tuple[list[int], list[int]]) -> Run:
        blocks = [file.block(a, b) for file, a, b in zip(files, *ends, strict=True) if b > a]
        while len(blocks) > 1:
            blocks = [
                sum_sparse_runs(blocks[i], blocks[i + 1]) if i + 1 < len(blocks) else blocks[i]
                for i in range(0, len(blocks), 2)
            ]
        return blocks[0] if blocks else EMPTY

    n_cells = 0
    samples = []
    with path.open("wb") as cells, tail.open("wb") as counts, ThreadPoolExecutor(N_MERGERS) as pool:
        ranges = list(pairwise(edges))
        for first in range(0, len(ranges), N_MERGERS):
            for run in pool.map(merged_range, ranges[first : first + N_MERGERS]):
                run.cells.tofile(cells)
                run.counts.tofile(counts)
                samples.append(run.cells[-n_cells % SAMPLE :: SAMPLE].copy())
                n_cells += run.cells.size
    with path.open("ab") as whole, tail.open("rb") as second_half:
        shutil.copyfileobj(second_half, whole, 1 << 20)
    tail.unlink()
    return FileRun(path, n_cells, np.concatenate(samples))
