"""Logged predictions of served versions, joined with labels that arrive later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from learners.evaluation.metrics import standard_error
from learners.kernels.arrays import Array, Codes, Floats, Integers
from learners.schema import Schema
from learners.schema.schema import Value
from service.product.audit import record_audit_act
from service.product.datasets.data_sources import materialise_database_uris, open_data_source
from service.product.monitoring.windows import MOST_WINDOWS, SMALLEST, Watching, hour_end, parse_time_span
from service.product.versions.registry import load_served_model
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.serving.count_queue import keyed_digest
from service.workspace import Workspace
from storage.monitoring.monitoring_files import MonitoringFiles, workspace_secret

BINS, TENTHS = 20, 10
LEAST = 1e-15  # a probability in a logarithm
LEAST_CALIBRATED = 30  # rows
MOST_CELLS = 20_000_000
_MOMENT = pa.timestamp("us", tz="UTC")
_TYPES = {"start": _MOMENT, "end": _MOMENT, "process": pa.string()}
SLICES = pa.schema(
    [*_TYPES.items(), ("block", pa.dictionary(pa.int32(), pa.string())), ("place", pa.int64()), ("count", pa.int64())]
)


@dataclass(frozen=True)
class Label:
    """The true class of a prediction.

    `text` is the id that the prediction was answered with, or the client's own key; `at` is aware, when the class was known:
    by default now.
    """

    kind: str
    text: str
    label: Value
    at: datetime | None = None


def read_label_files(workspace: Workspace, uris: Sequence[str], key: str, label: str, kind: str) -> list[Label]:
    """Read labels from two columns of files (UnknownColumn, SourceError)."""
    source = open_data_source(workspace, materialise_database_uris(workspace, uris), is_remote=False)
    return [
        Label(kind, str(name), value)
        for batch in source.batches([key, label])
        for name, value in zip(batch[key].to_pylist(), batch[label].to_pylist(), strict=True)
    ]


def add_prediction_labels(workspace: Workspace, reference: str, labels: Sequence[Label]) -> dict[str, int]:
    """Store labels; the later of two labels of a prediction counts, and repeating one changes nothing.

    Labels find the version of the model that made the prediction. Returns how many are `accepted`, and of these `matched` and
    `pending`: predictions are written once a minute, and kept for a time. Raises InvalidRequest, naming the label
    that is not a class of the model; NotFound.
    """
    version = load_served_model(workspace, reference)
    schema = version.schema
    if schema.target is None:
        raise InvalidRequest(f"Model {version.name!r} predicts no class, so there is nothing to label.")
    names = dict(zip(schema.class_values(), schema.classes, strict=True))
    for number, one in enumerate(labels):
        if one.label not in names:
            some = ", ".join(repr(value) for value in list(names)[:8])
            raise InvalidRequest(
                f"Label {number}: {one.label!r} is not a class of {version.name!r} ({some}).", field="label"
            )
    root = workspace.layout.root
    files, secret, now = MonitoringFiles(root, version.name), workspace_secret(root), datetime.now(UTC)
    keys = [keyed_digest(secret, one.kind, one.text) for one in labels]
    known = logged_prediction_keys(files)
    if labels:
        files.write_labels(
            pa.table(
                {
                    "key": pa.array(keys, pa.binary(16)),
                    "label": pa.array([names[one.label] for one in labels], pa.string()),
                    "at": pa.array([one.at or now for one in labels], pa.timestamp("us", tz="UTC")),
                }
            )
        )
    matched = int(np.isin(_fixed(pa.array(keys, pa.binary(16))), known).sum()) if labels else 0
    counts = {"accepted": len(labels), "matched": matched, "pending": len(labels) - matched}
    record_audit_act(workspace, "labels sent", version.name, **counts)
    return counts


def logged_prediction_keys(files: MonitoringFiles) -> Array:
    """Return the keys of all stored predictions, of any version."""
    parts = [
        _fixed(table["key"]) for version in files.versions() for _, table in files.rows(version, "predictions", ["key"])
    ]
    return np.concatenate([*parts, np.empty(0, "S16")])


def _fixed(keys: pa.Array | pa.ChunkedArray) -> Array:
    """Convert 16-byte keys to numpy strings; numpy trims trailing zeros, which keeps keys of equal length distinct."""
    plain = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if not len(plain):
        return np.empty(0, "S16")
    buffer = plain.buffers()[1]
    return np.frombuffer(buffer, "S16", count=len(plain) + plain.offset)[plain.offset :]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Predictions of a window with labels."""

    p: Floats  # (n, n_classes) float64
    y: Integers  # (n,) int64
    at: Integers  # (n,) int64; when each was made, in microseconds since 1970
    delay_s: Floats  # (n,) float64; from the prediction to the label
    n_waiting: int  # predictions of the window that could have one, and have none


def join_predictions_with_labels(
    files: MonitoringFiles, version: int, classes: Sequence[str], since: datetime, until: datetime
) -> Labelled:
    """Join the predictions that a version made in a window with their labels."""
    keys, at, p = _predictions(files, version, len(classes), since, until)
    tables = list(files.labels())
    if not keys.size or not tables:
        none = np.empty(0, np.int64)
        return Labelled(np.empty((0, len(classes))), none, none, np.empty(0), keys.size)
    labels = pa.concat_tables(tables)
    own, code = _fixed(labels["key"]), {name: k for k, name in enumerate(classes)}
    y_of = np.array([code.get(name, -1) for name in labels["label"].to_pylist()], np.int64)
    known_at = labels["at"].cast(pa.int64()).to_numpy()
    order = np.argsort(own, kind="stable")  # of equal keys the last one came last
    place = np.searchsorted(own[order], keys, side="right") - 1
    row = order[np.maximum(place, 0)]
    is_known = (place >= 0) & (own[row] == keys) & (y_of[row] >= 0)
    row = row[is_known]
    delay = (known_at[row] - at[is_known]) / 1e6
    return Labelled(p[is_known], y_of[row], at[is_known], np.maximum(delay, 0.0), int((~is_known).sum()))


def _predictions(
    files: MonitoringFiles, version: int, n_classes: int, since: datetime, until: datetime
) -> tuple[Array, Integers, Floats]:
    """Return keys, times in microseconds, and probabilities of a window; the last prediction of a key counts."""
    keys, moments, p = [np.empty(0, "S16")], [np.empty(0, np.int64)], [np.empty((0, n_classes))]
    low, high = (int(moment.timestamp() * 1e6) for moment in (since, until))
    for _, table in files.rows(version, "predictions", ["key", "at", "p"]):
        at = table["at"].cast(pa.int64()).to_numpy()
        inside = (at >= low) & (at < high)
        if inside.any():
            own = table["p"].combine_chunks().flatten().to_numpy().astype(np.float64).reshape(-1, n_classes)
            keys.append(_fixed(table["key"])[inside])
            moments.append(at[inside])
            p.append(own[inside])
    all_keys = np.concatenate(keys)
    _, last = np.unique(all_keys[::-1], return_index=True)
    last = np.sort(all_keys.size - 1 - last)
    return all_keys[last], np.concatenate(moments)[last], np.concatenate(p)[last]


def labelled_prediction_report(labelled: Labelled, measured: Mapping[str, object]) -> JSONObject:
    """Report accuracy, losses, calibration, label coverage and delay, against the measurements at training."""
    n = labelled.y.size
    head: JSONObject = {"labelled": n, "coverage": n / max(1, n + labelled.n_waiting)}
    if not n:
        return head | {"accuracy": None, "log_loss": None, "why": "no prediction of the window has a label yet"}
    own = labelled.p[np.arange(n), labelled.y]
    losses, best, confidence = -np.log(np.maximum(own, LEAST)), labelled.p.argmax(axis=1), labelled.p.max(axis=1)
    is_right = best == labelled.y
    one_hot = np.zeros_like(labelled.p)
    one_hot[np.arange(n), labelled.y] = 1
    before = measured.get("log_loss")
    return head | {
        "accuracy": float(is_right.mean()),
        "expected_accuracy": float(confidence.mean()),
        "log_loss": float(losses.mean()),
        "log_loss_error": standard_error(losses),
        "log_loss_in_training": before if isinstance(before, float) else None,
        "brier": float(((labelled.p - one_hot) ** 2).sum(axis=1).mean()),
        "ece": _calibration_error(confidence, is_right),
        "calibration": _calibration(confidence, is_right),
        "delay_s": {name: float(np.quantile(labelled.delay_s, q)) for name, q in (("median", 0.5), ("p90", 0.9))},
    }


def accuracy_over_time(labelled: Labelled, since: datetime, step: timedelta, n_steps: int) -> list[JSONObject]:
    """Report accuracy and mean confidence of the predictions of each step; null where too few have labels.

    A calibration error of few rows is high by chance: it is reported from `LEAST_CALIBRATED` rows on.
    """
    places = (labelled.at - int(since.timestamp() * 1e6)) // (step // timedelta(microseconds=1))
    confidence, is_right = labelled.p.max(axis=1, initial=0.0), labelled.p.argmax(axis=1) == labelled.y
    steps = []
    for k in range(n_steps):
        own = places == k
        n = int(own.sum())
        is_enough = n >= SMALLEST
        steps.append(
            {
                "since": (since + k * step).isoformat(),
                "labelled": n,
                "accuracy": float(is_right[own].mean()) if is_enough else None,
                "expected_accuracy": float(confidence[own].mean()) if is_enough else None,
                "ece": _calibration_error(confidence[own], is_right[own]) if n >= LEAST_CALIBRATED else None,
            }
        )
    return steps


def _calibration_error(confidence: Floats, is_right: Array) -> float:
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    n = np.bincount(bins, minlength=BINS)
    gaps = np.abs(np.bincount(bins, confidence, BINS) - np.bincount(bins, is_right, BINS))
    return float(gaps.sum() / n.sum())


def _calibration(confidence: Floats, is_right: Array) -> list[JSONObject]:
    """Return count, mean confidence and accuracy of each confidence bin."""
    bins = np.minimum((confidence * TENTHS).astype(np.int64), TENTHS - 1)
    n, expected, right = (np.bincount(bins, weights, TENTHS) for weights in (None, confidence, is_right))
    return [
        {"n": int(n[k]), "confidence": float(expected[k] / n[k]), "accuracy": float(right[k] / n[k])}
        for k in range(TENTHS)
        if n[k] >= SMALLEST
    ]


def recent_labelled_report(watching: Watching, span: timedelta) -> JSONObject:
    """Report the labelled predictions that a version made in the `span` up to now."""
    end, version = datetime.now(UTC), watching.version
    labelled = join_predictions_with_labels(
        watching.files, version.version, watching.watched.schema.classes, end - span, end
    )
    return labelled_prediction_report(labelled, version.metrics)


def monitoring_performance(
    workspace: Workspace, reference: str, *, window: str = "7d", step: str = "24h"
) -> JSONObject:
    """Report the performance of a version on labels beside its expectation, in total and over time (InvalidRequest,
    NotFound).
    """
    watching = Watching(workspace, reference)
    version, schema = watching.version, watching.watched.schema
    if schema.target is None:
        raise InvalidRequest(f"Model {version.name!r} predicts no class, so labels do not apply to it.")
    whole, each, end = parse_time_span("window", window), parse_time_span("step", step), datetime.now(UTC)
    n_steps = -(-whole // each)
    if n_steps > MOST_WINDOWS:
        raise InvalidRequest(f"{n_steps} steps; the limit for one answer is {MOST_WINDOWS}.", field="step")
    labelled = join_predictions_with_labels(watching.files, version.version, schema.classes, end - whole, end)
    answer = {**watching.name, "window": window, **labelled_prediction_report(labelled, version.metrics)}
    return answer | {"step": step, "over_time": accuracy_over_time(labelled, end - n_steps * each, each, n_steps)}


def labelled_row_codes(
    files: MonitoringFiles, version: int, schema: Schema, since: datetime, until: datetime
) -> tuple[Codes, Integers]:
    """Return codes (n_attributes, n) and classes (n,) of the labelled rows stored in a period; the last label of a row
    counts.
    """
    labels: dict[bytes, str] = {}
    for table in files.labels():
        labels.update(zip(table["key"].to_pylist(), table["label"].to_pylist(), strict=True))
    code = {name: k for k, name in enumerate(schema.classes)}
    rows: dict[bytes, tuple[bytes, int]] = {}
    for _, table in files.rows(version, "predictions", ["key", "at", "codes"]):
        for key, at, codes in zip(*(table[name].to_pylist() for name in ("key", "at", "codes")), strict=True):
            if codes is not None and since <= at < until and labels.get(key) in code:
                rows[key] = codes, code[labels[key]]
    joined = np.frombuffer(b"".join(codes for codes, _ in rows.values()), schema.code_dtype)
    x: Codes = np.ascontiguousarray(joined.reshape(len(rows), schema.n_attributes).T)
    return x, np.array([y for _, y in rows.values()], np.int64)


def prediction_confidence_counts(
    workspace: Workspace, reference: str, *, window: str = "24h", until: datetime | None = None
) -> JSONObject:
    """Count predictions by class and confidence; counts below five are null.

    The window ends now, or at `until`. Raises InvalidRequest if the model predicts no class, or the window is not a
    period; NotFound.

    Returns
    -------
    `classes`; `bins`, the lower bounds of the confidence; `counts` of each class and bin
    """
    watching, end = Watching(workspace, reference), hour_end(until)
    if watching.watched.schema.target is None:
        raise InvalidRequest(f"Model {watching.version.name!r} predicts no class, so it has no confidence.")
    seen = watching.window(end - parse_time_span("window", window), end)
    counts = seen.counts.block("confidence")
    n_bins = counts.shape[1]
    return {
        **watching.name,
        **seen.times,
        "classes": list(watching.watched.schema.class_values()),
        "bins": [place / n_bins for place in range(n_bins)],
        "counts": [[n if n == 0 or n >= SMALLEST else None for n in own] for own in counts.tolist()],
    }


def hourly_monitoring_counts(
    workspace: Workspace, reference: str, *, window: str = "24h", until: datetime | None = None
) -> pa.Table:
    """Return the stored counts of each hour and process: start, end, process, layout, block, place and count.

    They are whole numbers that add up: of some hours, processes or servers. Raises InvalidRequest if the window is no time,
    or holds more than 20 million cells; NotFound.
    """
    watching, end = Watching(workspace, reference), hour_end(until)
    blocks = watching.watched.blocks
    names = np.array(list(blocks))
    starts = np.array([block.start for block in blocks.values()])
    tables, n_cells = [], 0
    for one in watching.files.slices(watching.version.version, end - parse_time_span("window", window), end):
        if one.layout != watching.watched.fingerprint:
            continue
        table = one.counts()
        n_cells += table.num_rows
        if n_cells > MOST_CELLS:
            raise InvalidRequest(
                f"The window has more than {MOST_CELLS:,} cells; request a shorter time.", field="window"
            )
        cells = table["cell"].to_numpy()
        block = np.searchsorted(starts, cells, side="right") - 1
        own = {"start": one.start, "end": one.end, "process": one.process}
        columns = {name: pa.array([value] * table.num_rows, _TYPES[name]) for name, value in own.items()}
        block_names = pa.DictionaryArray.from_arrays(pa.array(block, pa.int32()), pa.array(names.tolist()))
        columns |= {"block": block_names, "place": pa.array(cells - starts[block]), "count": table["count"]}
        tables.append(pa.table(columns, schema=SLICES))
    return pa.concat_tables(tables) if tables else SLICES.empty_table()
