"""Queue of answered rows waiting to be counted for their version, and of predictions stored for later labels or as
rows.
"""

import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from learners.kernels.arrays import Codes, Floats, Mask
from learners.models.model import Model
from learners.models.record_classifier import Observed
from learners.monitoring.count_layout import Watched
from learners.monitoring.served_counts import RawRows, ServedCounts, ServedRows
from learners.schema.schema import FEW_CLASSES
from storage.monitoring.monitoring_files import MonitorChoice

KEY_BYTES = 16
Keys = Sequence[bytes] | None


class Logged(NamedTuple):
    """Predictions to store: `keys` of 16 bytes, `probabilities` (n_rows, n_classes) float64, `is_counted` (n_rows,)
    bool.

    `codes` are (n_rows, n_attributes) if rows are kept, else None.
    """

    keys: bytes
    moment: datetime
    probabilities: Floats
    codes: Codes | None
    is_counted: Mask


def logged_predictions(
    x: Codes, probabilities: Floats, keys: Keys, is_counted: Mask, moment: datetime, keeps_rows: bool
) -> Logged:
    """Return the predictions that have a key (empty: no key), or all of them with their codes if rows are kept.

    `x` is (n_attributes, n_rows), `probabilities` (n_rows, n_classes) float64, `is_counted` (n_rows,) bool.
    """
    n_rows = x.shape[1]
    named_keys = [b""] * n_rows if keys is None else list(keys)
    if not keeps_rows:
        named = np.flatnonzero([bool(key) for key in named_keys])
        return Logged(b"".join(named_keys), moment, probabilities[named], None, is_counted[named])
    random = secrets.token_bytes(KEY_BYTES * n_rows)
    places = range(0, KEY_BYTES * n_rows, KEY_BYTES)
    own = (key or random[place : place + KEY_BYTES] for key, place in zip(named_keys, places, strict=True))
    joined = random if keys is None else b"".join(own)
    return Logged(joined, moment, probabilities, np.ascontiguousarray(x.T), is_counted)


def without_forgotten(logged: Logged, forgotten: Mapping[bytes, datetime]) -> tuple[Logged, Logged]:
    """Split predictions into those that stay and those whose key was forgotten up to a moment not before theirs."""
    keys = [logged.keys[place : place + KEY_BYTES] for place in range(0, len(logged.keys), KEY_BYTES)]
    is_gone = np.array([key in forgotten and logged.moment <= forgotten[key] for key in keys], bool)

    def chosen(rows: Mask) -> Logged:
        codes = None if logged.codes is None else logged.codes[rows]
        some = b"".join(key for key, is_here in zip(keys, rows, strict=True) if is_here)
        return Logged(some, logged.moment, logged.probabilities[rows], codes, logged.is_counted[rows])

    return chosen(~is_gone), chosen(is_gone)


def counts_of_kept_rows(watched: Watched, codes: Codes, p: Floats, denied: Collection[str]) -> ServedCounts:
    """Return the counts that these rows contributed, except numbers of absent, null, unseen or out-of-range values.

    `codes` are (n_rows, n_attributes), `p` (n_rows, n_classes) float64; values of `denied` columns were not counted.
    """
    schema = watched.schema
    x = codes.T.copy()
    hidden = [i for i, each in enumerate(schema.attributes) if each.name in denied]
    x[hidden] = schema.domain_sizes[hidden][:, None]
    x.setflags(write=False)
    counts = ServedCounts(watched)
    counts.add(ServedRows(x, p, None), n_requests=0)
    return counts


def predictions_table(logged: Sequence[Logged]) -> pa.Table:
    """Return a table of key, time, probabilities, codes, and whether the row was counted."""
    sizes = [len(one.is_counted) for one in logged]
    n_rows, p = sum(sizes), np.concatenate([one.probabilities for one in logged])
    moments = np.repeat([int(one.moment.timestamp() * 1e6) for one in logged], sizes)
    keys = pa.py_buffer(b"".join(one.keys for one in logged))
    codes: list[bytes | None] = []
    for one, size in zip(logged, sizes, strict=True):
        codes += [None] * size if one.codes is None else map(bytes, one.codes.view(np.uint8))
    return pa.table(
        {
            "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), n_rows, [None, keys]),
            "at": pa.array(moments, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "p": pa.ListArray.from_arrays(np.arange(n_rows + 1, dtype=np.int32) * p.shape[1], p.ravel()),
            "codes": pa.array(codes, pa.binary()),
            "is_counted": pa.array(np.concatenate([one.is_counted for one in logged])),
        }
    )


MOST_RECORDS = 1 << 16
LEAST_RECORDS, MOST_PROBABILITIES = 256, 1 << 24  # where there are many classes
MOST_CELLS = 1 << 25  # of batches


class Waiting(NamedTuple):
    """Answered rows that are not yet counted."""

    first_id: int
    x: Codes
    probabilities: Floats | None
    raw: RawRows
    keys: Keys


class Watch:
    """Queue of one version's served rows, appended by threads and the event loop.

    `part` distinguishes the files of several watches of one version in one process. One record is added by
    `append((next_id(), codes, probabilities, record, key))`, with codes as bytes or a list.
    """

    def __init__(self, model: Model, name: str, version: int, secret: bytes, part: int = 0) -> None:
        self.model, self.name, self.version, self.secret, self.part = model, name, version, secret, part
        self.requests = itertools.count().__next__
        self.prefix = secrets.token_hex(8)
        n_classes = model.schema.n_classes
        self.is_logged = n_classes <= FEW_CLASSES  # whether predictions may be kept for labels or as rows
        self.records: deque[Observed] = deque(
            maxlen=max(LEAST_RECORDS, min(MOST_RECORDS, MOST_PROBABILITIES // n_classes))
        )
        self.append: Callable[[Observed], None] = self.records.append
        self.next_id: Callable[[], int] = itertools.count().__next__
        self.lock = threading.Lock()
        self.batches: list[Waiting] = []
        self.n_cells = self.n_skipped = self.n_requests = 0
        self.last_id = -1
        self.left_at: float | None = None  # when the version was no longer mapped, on the monotonic clock
        self.is_rehearsing = False  # what waits is to be forgotten, and so not to be counted
        self.choice: MonitorChoice = {}
        self.watched: Watched | None = None
        self.hours: dict[datetime, ServedCounts] = {}
        self.changed: set[datetime] = set()
        self.logged: list[Logged] = []

    def add_batch(self, x: Codes, probabilities: Floats | None, raw: RawRows, keys: Keys = None) -> None:
        """Queue answered rows; beyond the queue limit, only count them."""
        with self.lock:
            self.n_requests += 1
            n_cells = x.size + (0 if self.is_logged or probabilities is None else probabilities.size)
            if self.n_cells + n_cells > MOST_CELLS:
                self.n_skipped += x.shape[1]
                return
            self.n_cells += n_cells
            self.batches.append(Waiting(self.next_batch(x.shape[1]), x, probabilities, raw, keys))

    @property
    def n_waiting(self) -> int:
        """Number of rows waiting to be counted."""
        with self.lock:
            n_rows: int = len(self.records) + sum(one.x.shape[1] for one in self.batches)
        return n_rows

    def new_ids(self, n_rows: int) -> list[str]:
        """Return unique, unguessable ids for the predictions of one request."""
        request = f"{self.prefix}{self.requests():x}"
        return [f"{request}-{row}" for row in range(n_rows)]

    def key_of(self, kind: str, text: str) -> bytes:
        """Return the stored key of an id or a client's key: a keyed hash that cannot be reversed."""
        return keyed_digest(self.secret, kind, text)

    def next_batch(self, n_rows: int) -> int:
        """Return the id of the first row of a batch; batch ids lie far from those of single records."""
        first = self._batch_id
        self._batch_id += n_rows
        return first

    _batch_id = 1 << 48

    @contextmanager
    def rehearsing(self) -> Iterator[None]:
        """Do not count answers within the block, which are not requests."""
        self.is_rehearsing = True
        try:
            yield
        finally:
            self._discard()
            self.is_rehearsing = False

    def _discard(self) -> None:
        if self.records:
            self.last_id = self.records[-1][0]
        self.records.clear()
        self.batches.clear()
        self.n_cells = self.n_skipped = self.n_requests = 0


def keyed_digest(secret: bytes, kind: str, text: str) -> bytes:
    """Return the keyed hash (16 bytes) of a prediction's id or a client's key."""
    return blake2b(f"{kind}\0{text}".encode(), digest_size=KEY_BYTES, key=secret).digest()
