"""Counting of served rows: the hot path appends, a thread counts, files store the counts. Nothing here ever blocks a
prediction.
"""

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime

import numpy as np

from learners.kernels.arrays import Codes, Mask, Uint64s
from learners.kernels.random import random_bits_array
from learners.models.model import Model
from learners.models.record_classifier import Observed
from learners.monitoring.count_layout import Watched
from learners.monitoring.served_counts import (
    BatchRows,
    RecordRows,
    ServedCounts,
    ServedRows,
    served_value_status_counts,
)
from learners.schema.encoding.encode import cached_schema_encoder
from service.serving.count_queue import (
    Waiting,
    Watch,
    counts_of_kept_rows,
    logged_predictions,
    predictions_table,
    without_forgotten,
)
from service.settings import Settings
from service.telemetry import MONITORED_ROWS, SAMPLED_OUT_ROWS
from storage.errors import StorageError
from storage.files.workspace_layout import Layout
from storage.monitoring.monitoring_files import HOUR, Alive, MonitorChoice, MonitoringFiles, workspace_secret

AT_ONCE = 1024  # rows counted before other threads get a turn
COMPARED_ONE_IN = 32  # of busy hours: records whose numbers are compared with the range of training
WHOLE_BATCHES = 32  # of one batch in so many, all rows are counted, before rows of a batch are chosen
LEAST_BATCHES = 4  # that are counted where batches are chosen
MANY = 128  # records that were answered within one turn
BREATH_S = 0.0005


class Observer:
    """Counts the answers of one serving process's models on a separate thread.

    `choice_of` returns the monitoring choice of a model by its name; it is asked now and then.
    """

    def __init__(
        self,
        settings: Settings,
        choice_of: Callable[[str], MonitorChoice],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.settings, self.choice_of, self.clock = settings, choice_of, clock
        self.root = Layout(settings.workspace).root
        self.process = secrets.token_hex(4)
        self.secret = workspace_secret(self.root)
        self.alive = Alive(self.root, self.process)
        self.watches: list[Watch] = []
        self.one_in = 1
        import structlog  # by processes that serve only

        self.log = structlog.get_logger("monitor")
        self._stopping = threading.Event()
        self._working = threading.Lock()
        self._thread: threading.Thread | None = None
        self._flushed_at = self._folded_at = time.monotonic()
        self._n_files = itertools.count()
        self._written: dict[tuple[str, int, int], datetime] = {}  # the last hour of each part that was left
        self._changing = threading.Lock()  # `watches`, which threads that map models and the one that counts replace

    def watch(self, model: Model, name: str, version: int) -> Watch:
        """Start to watch a version under its lowest free part number, so that each hour has as many files as concurrent
        watches.
        """
        choice = self.choice_of(name)
        with self._changing:
            in_use = {one.part for one in self.watches if (one.name, one.version) == (name, version)}
            part = next(part for part in itertools.count() if part not in in_use)
            watch = Watch(model, name, version, self.secret, part)
            watch.choice = choice
            self.watches = [*self.watches, watch]
        return watch

    def leave(self, watch: Watch) -> None:
        """Stop watching a version that is no longer mapped, after its waiting rows are counted."""
        watch.left_at = time.monotonic()

    def start(self) -> None:
        """Start the counting thread."""
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Count and write all waiting rows, and stop."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(10)
        with self._working:
            self.fold()
            self.flush(is_end=True)
        self.alive.close()

    def _run(self) -> None:
        while not self._stopping.wait(self.settings.monitoring_fold_s):
            try:
                with self._working:
                    self.fold()
                    if time.monotonic() - self._flushed_at >= self.settings.monitoring_flush_s:
                        self.flush()
            except StorageError as error:
                self.log.warning("what was served could not be written", reason=str(error))
            except Exception:
                self.log.exception("what was served could not be counted")

    def fold(self, one_in: int | None = None) -> None:
        """Count waiting rows: one row in `one_in`, by default as many as fit into the time since the last call."""
        now = time.monotonic()
        seconds, self._folded_at = max(now - self._folded_at, self.settings.monitoring_fold_s), now
        load = sum(watch.n_waiting for watch in self.watches) / seconds / self.settings.monitoring_rows_per_s
        self.one_in = one_in or (1 if load <= 1 else 1 << int(np.ceil(np.log2(load))))
        for watch in self.watches:
            if not watch.is_rehearsing:
                self._fold(watch)

    def _fold(self, watch: Watch) -> None:
        """Count the waiting rows of one version."""
        records = [watch.records.popleft() for _ in range(len(watch.records))]
        with watch.lock:
            batches, watch.batches = watch.batches, []
            n_skipped, watch.n_skipped = watch.n_skipped, 0
            n_requests, watch.n_requests, watch.n_cells = watch.n_requests, 0, 0
        if records:
            n_skipped += records[-1][0] - watch.last_id - len(records)
            watch.last_id = records[-1][0]
        n_rows = len(records) + sum(one.x.shape[1] for one in batches) + n_skipped
        if not n_rows or watch.choice.get("mode", self.settings.monitoring) == "off":
            return
        if watch.watched is None:
            watch.watched = Watched(watch.model)
        counts = self._counts_now(watch)
        counts.block("rows")[1:] += (n_skipped, n_requests)
        for start in range(0, len(records), AT_ONCE):
            self._count(watch, counts, _joined(watch.watched, records[start : start + AT_ONCE]), 1)
            time.sleep(BREATH_S)
        self._count_batches(watch, counts, batches)

    def _count_batches(self, watch: Watch, counts: ServedCounts, batches: Sequence[Waiting]) -> None:
        """Count the batches; above the row rate, only a sample of whole batches, since a few rows of each would cost as
        much as all of one.

        If batches are few, it samples rows of each: a single large request must not go by uncounted.
        """
        of_batches = min(self.one_in, WHOLE_BATCHES, 1 << max(0, (len(batches) // LEAST_BATCHES).bit_length() - 1))
        first_ids = np.array([one.first_id for one in batches], np.uint64)
        n_left_out = 0
        for one, is_chosen in zip(batches, _sampled(~first_ids, of_batches), strict=True):
            if is_chosen:
                self._count(watch, counts, one, 0, of_batches)
                time.sleep(BREATH_S)
            else:
                n_rows = one.x.shape[1]
                self._log(watch, one, np.zeros(n_rows, bool))
                counts.block("rows")[1] += n_rows
                n_left_out += n_rows
        SAMPLED_OUT_ROWS.labels(watch.name).inc(n_left_out)

    def _counts_now(self, watch: Watch) -> ServedCounts:
        assert watch.watched is not None
        hour = self.clock().replace(minute=0, second=0, microsecond=0)
        watch.changed.add(hour)
        if hour not in watch.hours:
            counts = ServedCounts(watch.watched)
            if self._written.get((watch.name, watch.version, watch.part)) == hour:  # by a watch before this one
                files = MonitoringFiles(self.root, watch.name)
                written = files.slice_of(watch.version, hour, self.process, watch.part)
                counts = counts if written is None else counts.from_arrow(written)
            watch.hours[hour] = counts
        return watch.hours[hour]

    def _count(
        self, watch: Watch, counts: ServedCounts, rows: Waiting, requests_per_row: int, of_batches: int = 1
    ) -> None:
        """Count rows, of which already only one batch in `of_batches` is present."""
        assert watch.watched is not None
        n_rows, schema = rows.x.shape[1], watch.watched.schema
        one_in = max(1, self.one_in // of_batches)
        is_chosen = np.ones(n_rows, bool) if one_in == 1 else _chosen(rows.first_id, n_rows, one_in)
        chosen = np.flatnonzero(is_chosen)
        self._log(watch, rows, is_chosen)
        x, raw = rows.x, rows.raw
        if chosen.size < n_rows:
            x = np.ascontiguousarray(x[:, chosen])
        if isinstance(raw, BatchRows) and chosen.size < n_rows:
            raw = raw.taken(chosen)
            codes, chosen_raw = x, np.arange(chosen.size)
        else:
            codes, chosen_raw = rows.x, chosen
        denied = [i for i, each in enumerate(schema.attributes) if each.name in watch.choice.get("denied", ())]
        if denied:
            x = x.copy()
            x[denied] = schema.domain_sizes[denied][:, None]
        x.setflags(write=False)
        probabilities = rows.probabilities
        if probabilities is not None and chosen.size < n_rows:
            probabilities = probabilities[chosen]
        counts.add(ServedRows(x, probabilities, None), n_rows, one_in * of_batches, requests_per_row * n_rows)
        MONITORED_ROWS.labels(watch.name).inc(chosen.size)
        SAMPLED_OUT_ROWS.labels(watch.name).inc(n_rows - chosen.size)
        compared = chosen_raw
        if chosen.size >= MANY and not isinstance(raw, BatchRows):
            compared = chosen[_chosen(rows.first_id + 1, n_rows, COMPARED_ONE_IN)[chosen]]
        encoder = cached_schema_encoder(schema).inputs
        statuses = served_value_status_counts(codes, raw, schema.attributes, chosen_raw, compared, encoder)
        statuses[denied] = 0
        counts.add_statuses(statuses)

    def _log(self, watch: Watch, rows: Waiting, is_counted: Mask) -> None:
        """Store predictions that may get a label, or all if rows are kept; none for models with many classes."""
        if not watch.is_logged:
            return
        keeps_rows = watch.choice.get("mode", self.settings.monitoring) == "rows"
        if rows.probabilities is None or (rows.keys is None and not keeps_rows):
            return
        watch.logged.append(
            logged_predictions(rows.x, rows.probabilities, rows.keys, is_counted, self.clock(), keeps_rows)
        )

    def flush(self, is_end: bool = False) -> None:
        """Write changed counts; close and drop past hours, and versions that are no longer requested.

        Counts of one version and hour take half a megabyte: a process that takes over a version a minute must not hold all.
        """
        now = self.clock()
        self._flushed_at = time.monotonic()
        done = {watch for watch in self.watches if self._is_done(watch)}
        for watch in self.watches:
            files = MonitoringFiles(self.root, watch.name)
            with files.changing_predictions() if watch.logged else nullcontext():
                self._leave_out_forgotten(watch, files)
                self._write(watch, files, now, is_end or watch in done)
            watch.choice = self.choice_of(watch.name)
        with self._changing:
            self.watches = [watch for watch in self.watches if watch not in done]
        self._written = {part: hour for part, hour in self._written.items() if now < hour + HOUR}

    def _leave_out_forgotten(self, watch: Watch, files: MonitoringFiles) -> None:
        """Drop waiting predictions that were forgotten meanwhile, and their counts."""
        forgotten = files.forgotten() if watch.logged else {}
        if not forgotten:
            return
        logged, watch.logged = watch.logged, []
        for one in logged:
            left, gone = without_forgotten(one, forgotten)
            if left.is_counted.size:
                watch.logged.append(left)
            hour = gone.moment.replace(minute=0, second=0, microsecond=0)
            if gone.codes is not None and gone.is_counted.any() and hour in watch.hours:
                counts, rows = watch.hours[hour], gone.is_counted
                denied = watch.choice.get("denied", ())
                counts.subtract(counts_of_kept_rows(counts.watched, gone.codes[rows], gone.probabilities[rows], denied))

    def _write(self, watch: Watch, files: MonitoringFiles, now: datetime, is_end: bool) -> None:
        """Write the counts before the rows, so that every stored row is counted whatever happens."""
        for hour in sorted(watch.hours):
            is_over = is_end or now >= hour + HOUR
            if hour in watch.changed or is_over:
                counts = watch.hours[hour]
                files.write_slice(
                    watch.version,
                    hour,
                    self.process,
                    counts.to_arrow(),
                    counts.watched.fingerprint,
                    covered_until=min(now, hour + HOUR),
                    is_closed=is_over,
                    part=watch.part,
                )
                watch.changed.discard(hour)
            if is_over:
                del watch.hours[hour]
                self._written[(watch.name, watch.version, watch.part)] = hour
        if watch.logged:
            logged, watch.logged = watch.logged, []
            name = f"{now:%Y%m%dT%H%M%S}-{self.process}-{next(self._n_files)}"
            files.write_rows(watch.version, "predictions", name, predictions_table(logged))

    def _is_done(self, watch: Watch) -> bool:
        """Return whether the requests that could still use a version have ended, and all its rows are counted."""
        if watch.left_at is None or watch.n_waiting:
            return False
        return time.monotonic() - watch.left_at >= self.settings.request_timeout_s


def _chosen(first_id: int, n_rows: int, one_in: int) -> Mask:
    """Mask of about one row in `one_in`, by the hash of the row number, (n_rows,) bool."""
    return _sampled(np.arange(first_id, first_id + n_rows).astype(np.uint64), one_in)


def _sampled(ids: Uint64s, one_in: int) -> Mask:
    return np.asarray(random_bits_array(ids) % np.uint64(one_in) == 0)


def _joined(watched: Watched, records: Sequence[Observed]) -> Waiting:
    """Join single records into one batch; their numbers are consecutive except for dropped records."""
    dtype = watched.schema.code_dtype
    narrow = [one[1] for one in records if isinstance(one[1], bytes)]
    if len(narrow) == len(records):
        rows = np.frombuffer(b"".join(narrow), np.uint8)
    else:
        rows = np.array([one[1] for one in records]).ravel().astype(dtype)
    x: Codes = np.ascontiguousarray(rows.reshape(len(records), -1).T)
    probabilities = np.concatenate([one[2] for one in records]).reshape(len(records), -1)
    keys = [one[4] or b"" for one in records]
    return Waiting(
        records[0][0], x, probabilities, RecordRows([one[3] for one in records]), keys if any(keys) else None
    )
