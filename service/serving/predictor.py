"""Mapped models for serving: found by name, version or alias, and swapped when the registry changes. DuckDB is never
opened.
"""

import contextlib
import shlex
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from learners.answer_checks import check_answer_distributions
from learners.errors import LearnerError, NoClass, names_with_suggestions
from learners.models.model import Model
from learners.models.record_classifier import record_classifier
from learners.monitoring.served_counts import ColumnRows, RawRows, RecordRows
from learners.registry.model_kinds import kind_of, load_model
from learners.schema import Chunk, Schema
from learners.schema.encoding.json_records import encode_json_records
from learners.schema.encoding.unlike_training import (
    UnlikeTraining,
    ValueCodes,
    has_unseen_value,
    nominal_value_codes,
)
from learners.schema.schema import Value
from service.requests.abandonment import check_still_asked
from service.requests.json_values import JSONMapping
from service.requests.problems import InvalidRequest
from service.requests.recorded import current_request
from service.serving.class_answers import Probabilities
from service.serving.compiled_networks import compiled_network, n_compiled_network_edges
from service.serving.count_queue import Keys, Watch
from service.serving.monitoring_counts import Observer
from service.telemetry import MAPPED_MODELS, PREDICTED_ROWS, SWAPS
from storage.control.control import Control, control_generation
from storage.errors import CorruptFile, NotFound, OutdatedModel
from storage.models import model_versions
from storage.models.compiled import map_compiled
from storage.models.model_file import verify_model_files
from storage.models.model_versions import ModelVersion

MOST_CHARACTERS = 200
MAX_CHECKED = 16
WAY_OUT = "or send ?ignore_unknown=true"
REHEARSED = (2, 40)  # rows: kernels have a way for few, and one for many
ROWS_AT_ONCE, INTERVALS_AT_ONCE = 16_384, 1_000  # of a request, whose client may leave in between
# Edges of the circuit of a network that is compiled before a request asks for it, about 0.1 KB each; and of all such circuits:
# a process that maps hundreds of models may never be asked queries.
MOST_REHEARSED, MOST_KEPT = 200_000, 2_000_000


def _parts(chunk: Chunk, n_rows: int) -> Iterator[Chunk]:
    """Yield the rows of a chunk in parts of at most `n_rows`, as long as the client waits; what nobody waits for ends."""
    if chunk.n_rows <= n_rows:
        yield chunk
        return
    for start in range(0, chunk.n_rows, n_rows):
        check_still_asked()
        yield chunk.rows(slice(start, start + n_rows))


@contextlib.contextmanager
def translate_model_errors(version: ModelVersion) -> Iterator[None]:
    """Translate a model's failure: CorruptFile if its files were changed, else OutdatedModel."""
    try:
        yield
    except (LearnerError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        verify_model_files(version.duckdb_path)  # raises CorruptFile, with the file and what is wrong with it
        reason = f"{type(error).__name__}: {error}"
        raise OutdatedModel(f"{version.name}@{version.version}", reason, training_command(version)) from error


def training_command(version: ModelVersion) -> str:
    """Return the command that trains a version like this one, as far as the registry knows and prediction clients may
    see.
    """
    request = current_request({"learner": version.learner, "parameters": dict(version.parameters)})
    parameters = [f"--set {shlex.quote(f'{name}={value}')}" for name, value in request["parameters"].items()]
    return " ".join(["fewpass train FILES", f"--name {version.name} --learner {request['learner']}", *parameters])


class Unusable:
    """Cache of versions found unusable, so that requests and polls do not read every byte again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[str, int, str], tuple[tuple[int, int], CorruptFile]] = {}

    def check(self, version: ModelVersion) -> None:
        """Raise the error found last time (CorruptFile) while the file is the same."""
        mark, error = self._known.get(_key(version), (None, None))
        if error is not None and mark == _mark(version):
            raise error

    def add(self, version: ModelVersion, error: CorruptFile) -> None:
        """Remember the error of a version."""
        self._known.pop(_key(version), None)
        while len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[_key(version)] = _mark(version), error


def _key(version: ModelVersion) -> tuple[str, int, str]:
    return version.name, version.version, version.sha256


def _mark(version: ModelVersion) -> tuple[int, int]:
    """Identity of the compiled file: modification time in ns and inode; it changes when the file is rebuilt."""
    with contextlib.suppress(OSError):
        status = version.arrow_path.stat()
        return status.st_mtime_ns, status.st_ino
    return 0, 0


@dataclass(frozen=True, eq=False)
class Served:
    """One mapped model version with the parts its answers share.

    `classify(record)` gives the (n_classes,) probabilities of one dict of raw values.
    """

    name: str
    version: int
    learner: str
    sha256: str
    model: Model
    classify: Callable[[JSONMapping], Probabilities]
    count_rows: Callable[[float], None]
    watch: Watch | None = None

    @property
    def schema(self) -> Schema:
        """Schema of the model's training data."""
        return self.model.schema

    @cached_property
    def classes(self) -> list[Value]:
        """Classes in their original type, in the order of the probabilities."""
        return self.schema.class_values()

    @cached_property
    def json_head(self) -> bytes:
        """Start of a JSON answer, up to the first predicted class."""
        head = msgspec.json.encode({"model": self.name, "version": self.version, "classes": self.classes})
        return head[:-1] + b',"predictions":['

    @cached_property
    def json_classes(self) -> list[bytes]:
        """JSON text of each class."""
        return [msgspec.json.encode(name) for name in self.classes]

    @cached_property
    def known_names(self) -> frozenset[str]:
        """Columns that a request may contain: the attributes, and the columns excluded in training."""
        names = [each.name for each in self.schema.attributes] + [each.name for each in self.schema.left_out]
        return frozenset(names if self.schema.target is None else [*names, self.schema.target])

    @cached_property
    def checked_columns(self) -> set[tuple[str, ...]]:
        """Column tuples of tables that have passed the check."""
        return set()

    @property
    def warns(self) -> bool:
        """True if answers of this model may need a warning."""
        return self.model.needs_every_column

    def empty_columns_warning(self, chunk: Chunk) -> str | None:
        """Warning about columns that no row has; None if the model sums them out."""
        if not self.warns or not chunk.n_rows:
            return None
        columns = zip(self.schema.attributes, chunk.x, strict=True)
        empty = [attribute.name for attribute, codes in columns if not (codes < attribute.n_values).any()]
        return self.model.absent_columns_warning(empty)

    @cached_property
    def has_times(self) -> bool:
        """True if the model has columns by which rows may be later than those of training."""
        return bool(UnlikeTraining(self.schema).later.attributes)

    @cached_property
    def value_codes(self) -> ValueCodes:
        """Codes of the values of nominal columns."""
        return nominal_value_codes(self.schema)

    def record_warnings(self, record: JSONMapping) -> list[str]:
        """Return `unlike_training_warnings` of one row, at the cost of a few look-ups without warnings."""
        if not self.has_times and not has_unseen_value(record, self.value_codes):
            return []
        return self.unlike_training_warnings(RecordRows([record]))

    def unlike_training_warnings(self, raw: RawRows) -> list[str]:
        """Return warnings if all rows are later than those of training, or have values in a column that it never had."""
        unlike = UnlikeTraining(self.schema)
        if isinstance(raw, ColumnRows):
            columns = raw.columns
            unlike.add_values(lambda name: columns.get(name, ()), self.value_codes)
        elif isinstance(raw, RecordRows):
            records = raw.records
            unlike.add_values(lambda name: (record.get(name) for record in records), self.value_codes)
        else:
            for batch in [raw.batch] if isinstance(raw.batch, pa.RecordBatch) else raw.batch.to_batches():
                unlike.add(batch)
        return unlike.warnings()

    def rows_warnings(self, chunk: Chunk, raw: RawRows) -> list[str]:
        """Return `unlike_training_warnings` and `empty_columns_warning` of the rows of a request."""
        empty = self.empty_columns_warning(chunk)
        return [*self.unlike_training_warnings(raw), *([] if empty is None else [empty])]

    def predict_proba(self, chunk: Chunk) -> Probabilities:
        """Return class probabilities (n_rows, n_classes) of encoded rows; InvalidPrediction if a row is not a
        distribution.
        """
        parts = [self.model.predict_proba(part) for part in _parts(chunk, ROWS_AT_ONCE)]
        return check_answer_distributions(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def credible_intervals(self, chunk: Chunk, level: float) -> tuple[Probabilities, Probabilities]:
        """Return the bounds (n_rows, n_classes) of `credible_intervals` of the model, for encoded rows."""
        parts = [self.model.credible_intervals(part, level) for part in _parts(chunk, INTERVALS_AT_ONCE)]
        return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])

    def answered(self, chunk: Chunk, probabilities: Probabilities, raw: RawRows, keys: Keys = None) -> None:
        """Count answered rows; `classify` counts its own records, except for `count_rows`."""
        self.count_rows(chunk.n_rows)
        if self.watch is not None:
            self.watch.add_batch(chunk.x, probabilities, raw, keys)

    def check_names(self, records: Iterable[JSONMapping], ignore_unknown: bool, way_out: str = WAY_OUT) -> None:
        """Refuse columns unknown to the model, most likely typing errors that would cost accuracy.

        `way_out` is what else the caller can do, in its protocol. InvalidRequest names the first unknown column and the similar
        known ones.
        """
        if ignore_unknown:
            return
        known = self.known_names
        for record in records:
            if not record.keys() <= known:
                unknown = next(name for name in record if name not in known)
                raise InvalidRequest(
                    f"Model {self.name!r} knows no column {names_with_suggestions([shorten_model_name(unknown)], list(known))}. "
                    f"Rename it, leave it out, {way_out}.",
                    column=shorten_model_name(unknown),
                )

    def check_columns(self, names: tuple[str, ...], ignore_unknown: bool, way_out: str = WAY_OUT) -> None:
        """Check the columns of a table as `check_names`, and refuse duplicates (InvalidRequest); results are cached,
        since clients repeat them.
        """
        if names in self.checked_columns:
            return
        if len(set(names)) < len(names):
            twice = shorten_model_name(Counter(names).most_common(1)[0][0])
            raise InvalidRequest(f"Column {twice!r} occurs twice. Send it once.", column=twice)
        self.check_names([dict.fromkeys(names)], ignore_unknown, way_out)
        if not ignore_unknown and len(self.checked_columns) < MAX_CHECKED:
            self.checked_columns.add(names)


def _log() -> Any:
    import structlog  # only what serves logs, and commands load this, too

    return structlog.get_logger("predictor")


class Predictor:
    """Mapped models of one serving process.

    `served(reference)` is a dict look-up on the event loop; `resolve` and `refresh` read the control database and are
    called on threads. References to a `Served` stay good for as long as a request holds them. At most `max_mapped` of
    the referenced versions are kept mapped; the least recently resolved goes first.
    """

    def __init__(self, control: Control, max_mapped: int = 256, observer: Observer | None = None) -> None:
        self.control, self.observer = control, observer
        self.max_mapped = max_mapped
        self.generation = control_generation(control)  # as it was taken over last
        self.damaged: dict[
            str, str
        ] = {}  # what is wrong with what a reference means now; what was mapped before is served
        self._unusable = Unusable(max_mapped)
        self._served: dict[str, Served] = {}
        self._mapped: OrderedDict[tuple[str, int, str], Served] = OrderedDict()
        self._lock = threading.Lock()

    def served(self, reference: str) -> Served | None:
        """Return the model of "name", "name@version" or "name@alias" if it was resolved before."""
        return self._served.get(reference)

    def resolve(self, reference: str) -> Served:
        """Return the model of a reference, mapping it if necessary; NotFound for an unknown model, version or alias."""
        with self._lock:
            try:
                served = self._map(model_versions.find_model_version(self.control, reference))
            except CorruptFile as error:
                self._complain({reference: str(error)})
                self.damaged[reference] = str(error)
                raise
            self._served[reference] = served
            self.damaged.pop(reference, None)
            self._forget_most()
            return served

    def refresh(self) -> bool:
        """Apply registry changes: map the new versions of all known references, then swap them all at once.

        A version without references is dropped, together with its mapped file, which may be deleted;
        requests that hold it keep it until they end.
        A damaged version disables only the references to it; they are tried again each time. Returns whether
        anything had changed.
        """
        fresh = control_generation(self.control)
        if fresh == self.generation and not self.damaged:
            return False
        with self._lock:
            swapped, damaged = dict(self._served), {}
            for reference in [*self._served, *self.damaged] if fresh != self.generation else list(self.damaged):
                try:
                    swapped[reference] = self._map(model_versions.find_model_version(self.control, reference))
                except NotFound:
                    swapped.pop(reference, None)
                    _log().info("reference is gone", reference=reference)
                except CorruptFile as error:
                    damaged[reference] = str(error)
            self._complain(damaged)
            has_changed = fresh != self.generation or damaged.keys() != self.damaged.keys()
            self._served, self.damaged, self.generation = swapped, damaged, fresh
            self._forget_unmeant()
        SWAPS.inc(has_changed)
        return has_changed

    def _complain(self, damaged: dict[str, str]) -> None:
        for reference, reason in damaged.items() - self.damaged.items():  # once: it may last for hours
            before = self._served.get(reference)
            served = before and f"{before.name}@{before.version}"
            _log().error("a version cannot be used", reference=reference, reason=reason, served=served)

    def _map(self, version: ModelVersion) -> Served:
        key = (version.name, version.version, version.sha256)
        served = self._mapped.get(key)
        if served is None:
            self._unusable.check(version)
            try:
                served = map_model_version(version, self.observer)
                with translate_model_errors(version):
                    warm_up_served_model(served)
            except CorruptFile as error:
                self._unusable.add(version, error)
                raise
            self._mapped[key] = served
        self._mapped.move_to_end(key)
        return served

    def _forget_unmeant(self) -> None:
        current = set(self._served.values())
        for key in [key for key, served in self._mapped.items() if served not in current]:
            self._forget(key)
        self._forget_most()

    def _forget_most(self) -> None:
        while len(self._mapped) > self.max_mapped:
            self._forget(next(iter(self._mapped)))
        MAPPED_MODELS.set(len(self._mapped))

    def _forget(self, key: tuple[str, int, str]) -> None:
        gone = self._mapped.pop(key)
        if gone.watch is not None and self.observer is not None:
            self.observer.leave(gone.watch)
        self._served = {reference: served for reference, served in self._served.items() if served is not gone}


def map_model_version(version: ModelVersion, observer: Observer | None = None) -> Served:
    """Map the compiled file of a version (CorruptFile) and prepare it to answer; an observer counts its answers."""
    header, arrays = map_compiled(version.arrow_path)
    with translate_model_errors(version):
        model = load_model(header, arrays)
        watch = None if observer is None else observer.watch(model, version.name, version.version)
        classify = record_classifier(model, watch)
    return Served(
        name=version.name,
        version=version.version,
        learner=version.learner,
        sha256=version.sha256,
        model=model,
        classify=classify,
        count_rows=PREDICTED_ROWS.labels(version.name).inc,
        watch=watch,
    )


def shorten_model_name(name: str) -> str:
    """Shorten a name sent by a client for use in an error message."""
    return name if len(name) <= MOST_CHARACTERS else f"{name[:MOST_CHARACTERS]}…"


def warm_up_served_model(served: Served) -> None:
    """Answer rows without values on a thread: the first run compiles or loads code for seconds."""
    with contextlib.nullcontext() if served.watch is None else served.watch.rehearsing():
        _answer_nothing(served)


def _answer_nothing(served: Served) -> None:
    with contextlib.suppress(NoClass):  # some models answer queries only
        served.classify({})
        for n_rows in REHEARSED:
            served.predict_proba(encode_json_records([{}] * n_rows, served.schema))
    served.model.prepare()
    network = served.model.joint
    if (count_edges := kind_of(network).n_circuit_edges) is not None:
        n_edges = count_edges(network)
        if n_edges <= min(MOST_REHEARSED, MOST_KEPT - n_compiled_network_edges()):  # else the first query makes it
            compiled_network(network).prepare()
