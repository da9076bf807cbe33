"""Collapsed sampler of a Bayesian circuit, `init` and `step`, with rows, states and draws in memory or in files that
allow resuming.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.circuits.bayesian.lazy_sampler_kernels import (
    add_rows_to_lazy_sampler,
    lazy_sweep,
    sampler_log_joint,
    tally_induced_trees,
)
from learners.circuits.bayesian.priors import Prior
from learners.errors import InvalidParameter, LearnerError
from learners.kernels.arrays import Array, Float32s, Floats, Integers, Uint8s, Uint64s

ROWS, NOTE = "rows.f32", "note.json"
# Rows are read so many at a time.
BLOCK_ROWS = 1 << 15
# What a run without a folder keeps in memory; more goes to a temporary one.
MOST_IN_MEMORY = 256 << 20


class NoSpace(LearnerError, OSError):
    """Raised if the folder of a run has no room for its rows and states."""

    def __init__(self, folder: Path, n_bytes: int, n_free: int) -> None:
        super().__init__(
            f"Sampling needs {n_bytes / 2**20:,.0f} MiB for rows and states in {folder}, where {n_free / 2**20:,.0f} MiB are free. "
            "Make room, use fewer chains, or set another folder for temporary files."
        )
        self.folder = folder


class Kept(NamedTuple):
    """Saved progress of a chain."""

    sweep: int
    choices: Uint8s  # (n_rows, n_positions) uint8
    # (sweep, 7) float64: of each sweep log joint, then unchanged, rejected and accepted proposals of whole trees, and
    # of subtrees.
    trace: Floats
    n_draws: int  # of this phase, in the chain's array of draws, whose last row has the best mean parameters
    best: float  # log joint of these; -inf before there are any


class InMemory:
    """Rows in an array, which a sampler reads in order; also a store that does not outlive the process.

    x (n_rows, n_columns): codes of categorical columns, other numbers minus their column's centre; NaN where
    missing.
    """

    def __init__(self, x: Array) -> None:
        self.x = np.ascontiguousarray(x, np.float32)
        self.n_rows = self.x.shape[0]

    def blocks(self) -> Iterator[tuple[slice, Float32s]]:
        """Yield the position of each block of rows, and its numbers (n_rows, n_columns) float32: all at once."""
        yield slice(0, self.n_rows), self.x

    def choices(self, n_positions: int) -> Uint8s:
        """Return an array (n_rows, n_positions) uint8 for a state; it may reuse that of two states ago."""
        return np.empty((self.n_rows, n_positions), np.uint8)

    def rows(self, _chain: int) -> RowBlocks:
        """Return the rows, the same for all chains."""
        return self

    def draws(self, _chain: int, n_draws: int, n_parameters: int) -> Floats:
        """Return a new array."""
        return np.zeros((n_draws + 1, n_parameters))

    def load(self, _chain: int) -> Kept | None:
        """Return None: nothing is saved."""
        return None

    def save(self, _chain: int, _kept: Kept) -> None:
        """Do nothing."""


class FileStore:
    """Rows in one file, read block by block, and two memory-mapped states per chain, one of which is complete.

    So a chain resumes from its last complete sweep if its process was killed. After a power failure, a checksum
    detects data that did not reach the disk, and the chain restarts.
    """

    def __init__(self, folder: Path, n_columns: int) -> None:
        self.folder, self.n_columns = folder, n_columns
        self.n_rows = (folder / ROWS).stat().st_size // (4 * n_columns)

    @classmethod
    def written(cls, folder: Path, blocks: Iterable[Float32s], n_columns: int) -> FileStore:
        """Create a store of rows that arrive in blocks (n_rows, n_columns); existing rows are kept, without reading a
        block.
        """
        path = folder / ROWS
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".draft")
            with draft.open("wb") as file:
                for block in blocks:
                    file.write(np.ascontiguousarray(block, np.float32).data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        return cls(folder, n_columns)

    def require_room(self, n_chains: int, n_positions: int, n_numbers: int) -> None:
        """Refuse a run whose states and n_numbers of draws do not fit on the disk. Raises NoSpace."""
        needed = n_chains * 2 * self.n_rows * n_positions + 8 * n_numbers
        there = sum(path.stat().st_size for path in self.folder.glob("chain-*/*"))
        free = shutil.disk_usage(self.folder).free
        if needed - there > free:
            raise NoSpace(self.folder, needed, free)

    def rows(self, chain: int) -> RowBlocks:
        """Return the rows of a chain. States alternate between two memory maps, so that of the last complete sweep is never
        overwritten.
        """
        folder = self._chain(chain)
        try:
            turn = json.loads((folder / NOTE).read_text())["choices"] == _state_file(1)
        except (OSError, ValueError, KeyError):
            turn = False
        return _FileRows(self.folder / ROWS, folder, self.n_rows, self.n_columns, int(turn))

    def draws(self, chain: int, n_draws: int, n_parameters: int) -> Floats:
        """Return a mapped array, which keeps the content of an earlier run."""
        return _mapped(self._chain(chain) / "draws.f64", np.float64, (n_draws + 1, n_parameters))

    def load(self, chain: int) -> Kept | None:
        """Return the last saved progress; None if it is absent or fails its checksum."""
        folder = self._chain(chain)
        try:
            note = json.loads((folder / NOTE).read_text())
            choices = np.memmap(folder / note["choices"], np.uint8, "r").reshape(self.n_rows, -1)
            trace = np.fromfile(folder / "trace.f64")[: 7 * note["sweep"]].reshape(-1, 7)
        except (OSError, ValueError, KeyError):
            return None
        if zlib.crc32(choices.data) != note["crc"] or len(trace) != note["sweep"]:
            return None
        return Kept(note["sweep"], np.asarray(choices), trace, note["n_draws"], note["best"])

    def save(self, chain: int, kept: Kept) -> None:
        """Save the progress; the choices are already in their file, and the note that refers to them is renamed into
        place last.
        """
        folder = self._chain(chain)
        path = folder / "trace.f64"
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(56 * (kept.sweep - 1))
            file.write(np.ascontiguousarray(kept.trace[-1]).data)
        assert isinstance(kept.choices.base, np.memmap)
        name = Path(str(kept.choices.base.filename)).name
        note = {
            "sweep": kept.sweep,
            "choices": name,
            "crc": zlib.crc32(kept.choices.data),
            "n_draws": kept.n_draws,
            "best": kept.best,
        }
        draft = folder / "note.draft"
        draft.write_text(json.dumps(note))
        draft.replace(folder / NOTE)

    def _chain(self, chain: int) -> Path:
        folder = self.folder / f"chain-{chain}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


# Where rows are, and what chains have.
Store = InMemory | FileStore


class _FileRows:
    """Rows with the interface of `InMemory`; blocks of the file are read into the same memory."""

    def __init__(self, path: Path, folder: Path, n_rows: int, n_columns: int, turn: int) -> None:
        self.path, self.folder, self.n_rows, self.n_columns, self.turn = path, folder, n_rows, n_columns, turn

    def blocks(self) -> Iterator[tuple[slice, Float32s]]:
        block = np.empty((min(BLOCK_ROWS, self.n_rows), self.n_columns), np.float32)
        with self.path.open("rb") as file:
            for first in range(0, self.n_rows, BLOCK_ROWS):
                n = min(BLOCK_ROWS, self.n_rows - first)
                file.readinto(block[:n].data)
                yield slice(first, first + n), block[:n]

    def choices(self, n_positions: int) -> Uint8s:
        """Return the state array that the last call did not return."""
        self.turn = 1 - self.turn
        return _mapped(self.folder / _state_file(self.turn), np.uint8, (self.n_rows, n_positions))


# What a sampler takes.
RowBlocks = InMemory | _FileRows


def _state_file(turn: int) -> str:
    return f"choices-{turn}.u8"


def _mapped(path: Path, dtype: type[Any], shape: tuple[int, ...]) -> Any:
    """Memory-map a file for writing; a file of the right size keeps its content."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if not path.exists() or path.stat().st_size != n_bytes:
        with path.open("wb") as file:
            file.truncate(n_bytes)
    return np.asarray(np.memmap(path, dtype, "r+", shape=shape))


Int32s = NDArray[np.int32]
MOST_MOVES = 1_000_000


class Tallies(NamedTuple):
    """Rows at each sum and leaf."""

    counts: Int32s  # (n_sums, n_children) int32: rows that a sum sends to each child
    leaf: Floats  # (n_leaves, 8) float64: statistics, see `leaf_kernels`
    cells: Int32s  # (n_cells,) int32: rows with each value at categorical leaves


class State(NamedTuple):
    """Assignment of each row to parts of the circuit."""

    # (n_rows, n_positions) uint8: the child that a row takes at each sum of its induced tree, see `Shape`: less than
    # two bytes a row and column.
    choices: Uint8s
    tallies: Tallies  # that follow from choices and rows
    log_joint: float  # log of the probability of rows and choices, weights and leaf parameters integrated out, in nats


class Moves(NamedTuple):
    """Moves of a row in one sweep."""

    whole: float = 1.0  # proposals of its whole induced tree; a fraction is the probability of one more
    subtree: float = 4.0  # proposals of the part below a sum of its tree, which is drawn with equal probabilities


class Info(NamedTuple):
    """Result of a sweep."""

    log_joint: float
    # (2, 3) int64: of whole trees and of subtrees: how many changed nothing, were rejected, and were accepted.
    proposals: Integers


class LazySampler:
    """Collapsed sampler whose state is only each row's induced tree: O(n_columns) per row and move.

    The states of sums outside the tree integrate out of the paper's target exactly, so the distribution of
    induced trees is the same. Raises InvalidParameter.

    known (n_known, n_positions) uint8: choices of the first rows, with which the first state begins.
    References: Yokoi, Sato (2024), section 3.3; the lazy state and moves of subtrees are ours.
    """

    def __init__(
        self,
        prior: Prior,
        rows: RowBlocks,
        moves: Moves = Moves(),  # noqa: B008 (a constant)
        known: Uint8s | None = None,
    ) -> None:
        if not (all(0 <= rate <= MOST_MOVES for rate in moves) and sum(moves) > 0):
            raise InvalidParameter("moves", tuple(moves), f"from zero to {MOST_MOVES:,} of each kind, and some")
        self.prior, self.rows, self.moves, self.known = prior, rows, moves, known
        self.hyper = prior.hyper(rows.n_rows)
        self.trees = np.zeros((2, prior.shape.n_positions, 3), np.int64)

    def init(self, random: np.random.Generator) -> State:
        """Return a first state: new rows are added one by one by their predictive, and then moved."""
        choices, tallies, n_known = self.rows.choices(self.prior.shape.n_positions), self.empty(), 0
        if self.known is not None:
            n_known = len(self.known)
            choices[:n_known] = self.known
            for where, x in self.rows.blocks():
                own = slice(where.start, min(where.stop, n_known))
                if own.start < own.stop:
                    tally_induced_trees(self.prior.shape, tallies, self.trees, x[: own.stop - own.start], choices[own])
            sampler_log_joint(tallies, self.hyper)
        counter, proposed = draw_kernel_seed(random), self.proposals()
        for where, x in self.rows.blocks():
            if where.stop <= n_known:
                continue
            new = slice(max(where.start, n_known), where.stop)
            behind = x[new.start - where.start :]
            add_rows_to_lazy_sampler(
                self.prior.shape, tallies, self.hyper, self.trees, behind, choices[new], proposed, counter
            )
        return self.state_of(choices)

    def step(self, random: np.random.Generator, state: State) -> tuple[State, Info]:
        """Return the next state; modifies no argument except `random`."""
        shape = self.prior.shape
        tallies, following = copy_tallies(state.tallies), self.empty()
        choices = self.rows.choices(shape.n_positions)
        counter, proposed = draw_kernel_seed(random), self.proposals()
        for where, x in self.rows.blocks():
            block = choices[where]
            block[...] = state.choices[where]
            lazy_sweep(shape, tallies, self.hyper, self.trees, x, block, proposed, counter)
            # Counted anew, so that rounding does not add up from sweep to sweep, and a state that was kept on disk goes on
            # with the same bits as one in memory.
            tally_induced_trees(shape, following, self.trees, x, block)
        log = sampler_log_joint(following, self.hyper)
        return State(choices, following, log), Info(log, proposed[:, 1:].astype(np.int64))

    def state_of(self, choices: Uint8s) -> State:
        """Return the state of saved choices, bit for bit as when a sweep ended with them."""
        tallies = self.empty()
        for where, x in self.rows.blocks():
            tally_induced_trees(self.prior.shape, tallies, self.trees, x, choices[where])
        return State(choices, tallies, sampler_log_joint(tallies, self.hyper))

    def empty(self) -> Tallies:
        """Return tallies of no rows."""
        shape = self.prior.shape
        counts = np.zeros((shape.n_sums, shape.n_children), np.int32)
        return Tallies(counts, _aligned(self.prior.leaf), np.zeros(max(1, self.prior.n_cells), np.int32))

    def proposals(self) -> Floats:
        """Return the moves per row, with room to count their outcomes, (2, 4) float64."""
        counted = np.zeros((2, 4))
        counted[:, 0] = self.moves
        return counted


def draw_kernel_seed(random: np.random.Generator) -> Uint64s:
    """Return the start of a kernel's random numbers, which the kernel advances, (1,) uint64."""
    return random.integers(0, 1 << 64, 1, dtype=np.uint64)


def copy_tallies(tallies: Tallies) -> Tallies:
    """Return a mutable copy of tallies."""
    return Tallies(tallies.counts.copy(), _aligned(tallies.leaf), tallies.cells.copy())


def _aligned(leaf: Floats) -> Floats:
    """Return a copy whose rows are aligned to cache lines, because large circuits spend most time on fetching them."""
    memory = np.empty(leaf.size + 8)
    first = -(memory.ctypes.data // 8) % 8
    copy = memory[first : first + leaf.size].reshape(leaf.shape)
    copy[...] = leaf
    return copy
