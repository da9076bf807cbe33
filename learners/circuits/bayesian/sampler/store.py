"""Where rows, states and draws of chains are: in memory, or in files from which a run that was killed goes on."""

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

from learners.errors import LearnerError
from learners.kernels.arrays import Array, Float32s, Floats, Uint8s

ROWS, NOTE = "rows.f32", "note.json"
# Rows are read so many at a time.
BLOCK_ROWS = 1 << 15
# What a run without a folder keeps in memory; more goes to a temporary one.
MOST_IN_MEMORY = 256 << 20


class NoSpace(LearnerError, OSError):
    """The folder of a run has no room for its rows and states."""

    def __init__(self, folder: Path, n_bytes: int, n_free: int) -> None:
        super().__init__(
            f"Sampling needs {n_bytes / 2**20:,.0f} MiB for rows and states in {folder}, where {n_free / 2**20:,.0f} MiB are free. "
            "Make room, use fewer chains, or set another folder for temporary files."
        )
        self.folder = folder


class Kept(NamedTuple):
    """What a chain has so far."""

    sweep: int
    choices: Uint8s  # (n_rows, n_positions) uint8
    # (sweep, 7) float64: of each sweep log joint, then unchanged, rejected and accepted proposals of whole trees, and
    # of subtrees.
    trace: Floats
    n_draws: int  # of this phase, in the chain's array of draws, whose last row has the best mean parameters
    best: float  # log joint of these; -inf before there are any


class InMemory:
    """Rows that are an array, which a sampler walks in their order; also as a store, of which nothing outlives the process.

    x (n_rows, n_columns): codes of categorical columns, other numbers less their column's centre; NaN where missing.
    """

    def __init__(self, x: Array) -> None:
        self.x = np.ascontiguousarray(x, np.float32)
        self.n_rows = self.x.shape[0]

    def blocks(self) -> Iterator[tuple[slice, Float32s]]:
        """Where each block of rows is, and its numbers (n_rows, n_columns) float32: all at once."""
        yield slice(0, self.n_rows), self.x

    def choices(self, n_positions: int) -> Uint8s:
        """An array (n_rows, n_positions) uint8 for a state; that of two states ago may be given again."""
        return np.empty((self.n_rows, n_positions), np.uint8)

    def rows(self, _chain: int) -> RowBlocks:
        """The rows, the same for all chains."""
        return self

    def draws(self, _chain: int, n_draws: int, n_parameters: int) -> Floats:
        """A new array."""
        return np.zeros((n_draws + 1, n_parameters))

    def load(self, _chain: int) -> Kept | None:
        """Nothing."""
        return None

    def save(self, _chain: int, _kept: Kept) -> None:
        """Nothing is saved."""


class FileStore:
    """Rows in one file, which is read block by block; for each chain two states, which are mapped, and of which one is complete.

    So a chain goes on from its last complete sweep when its process was killed. Where power failed, what did not reach the disk
    is told by its checksum, and the chain starts anew.
    """

    def __init__(self, folder: Path, n_columns: int) -> None:
        self.folder, self.n_columns = folder, n_columns
        self.n_rows = (folder / ROWS).stat().st_size // (4 * n_columns)

    @classmethod
    def written(cls, folder: Path, blocks: Iterable[Float32s], n_columns: int) -> FileStore:
        """A store of rows that come in blocks (n_rows, n_columns); rows that are there already are kept, and no block is made."""
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
        """Refuse a run whose states, and n_numbers of draws, do not fit on the disk. Raises NoSpace."""
        needed = n_chains * 2 * self.n_rows * n_positions + 8 * n_numbers
        there = sum(path.stat().st_size for path in self.folder.glob("chain-*/*"))
        free = shutil.disk_usage(self.folder).free
        if needed - there > free:
            raise NoSpace(self.folder, needed, free)

    def rows(self, chain: int) -> RowBlocks:
        """The rows of the file, with two mapped states in turn, of which that of the last complete sweep is not the next."""
        folder = self._chain(chain)
        try:
            turn = json.loads((folder / NOTE).read_text())["choices"] == _state_file(1)
        except (OSError, ValueError, KeyError):
            turn = False
        return _FileRows(self.folder / ROWS, folder, self.n_rows, self.n_columns, int(turn))

    def draws(self, chain: int, n_draws: int, n_parameters: int) -> Floats:
        """A mapped array; what a run before has written is still there."""
        return _mapped(self._chain(chain) / "draws.f64", np.float64, (n_draws + 1, n_parameters))

    def load(self, chain: int) -> Kept | None:
        """What was saved last; None if there is nothing, or not a byte of it can be believed."""
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
        """The choices are in their file already; the note that says so is renamed into place last."""
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
    """As `InMemory`; blocks of a file are read one after the other into the same memory."""

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
        """The state that is not the one of the last call."""
        self.turn = 1 - self.turn
        return _mapped(self.folder / _state_file(self.turn), np.uint8, (self.n_rows, n_positions))


# What a sampler takes.
RowBlocks = InMemory | _FileRows


def _state_file(turn: int) -> str:
    return f"choices-{turn}.u8"


def _mapped(path: Path, dtype: type[Any], shape: tuple[int, ...]) -> Any:
    """A file as an array that may be written to; what is in a file of the right size stays."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if not path.exists() or path.stat().st_size != n_bytes:
        with path.open("wb") as file:
            file.truncate(n_bytes)
    return np.asarray(np.memmap(path, dtype, "r+", shape=shape))
