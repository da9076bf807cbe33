"""Forgetting predictions: their logged rows and labels are removed, and their counts subtracted."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.kernels.arrays import Codes
from learners.monitoring.count_layout import Watched
from learners.monitoring.served_counts import ServedCounts
from learners.passes.sources.source import Source
from service.product.monitoring.windows import Watching
from service.serving.count_queue import counts_of_kept_rows, keyed_digest
from service.workspace import Workspace
from storage.datasets.predicates import RowPredicate
from storage.monitoring.monitoring_files import HOUR, MonitoringFiles, workspace_secret

UNCOUNTED = timedelta(seconds=10)  # a prediction's moment is when it is counted: so much later than its answer


def forget_predictions_of_rows(
    workspace: Workspace,
    models: Sequence[str],
    source: Source,
    predicate: RowPredicate,
    column: str,
    *,
    dry_run: bool = False,
) -> dict[str, int]:
    """Forget the predictions of matching rows in all models, by the column of client keys; otherwise as
    `forget_predictions`.
    """
    keys: set[str] = set()
    for batch in source.batches(list(dict.fromkeys([*predicate.columns, column]))):
        chosen = batch.column(column).filter(pa.array(predicate.mask(batch)))
        keys |= {str(key) for key in chosen.to_pylist() if key is not None}
    totals = {"predictions": 0, "labels": 0, "subtracted": 0}
    for name in models:
        for kind, n in forget_predictions(workspace, name, sorted(keys), dry_run=dry_run).items():
            totals[kind] += n
    return totals


def forget_predictions(
    workspace: Workspace, reference: str, keys: Sequence[str], *, dry_run: bool = False
) -> dict[str, int]:
    """Forget predictions by client key or prediction id, for every version of a model (NotFound).

    If rows are kept (mode "rows"), their counts are subtracted, except those of absent, null, unseen and out-of-range
    values. Nobody knows which row bare counts came from. Predictions that a server has yet to write are noted, and it
    leaves them out. Returns how many written `predictions` and `labels` were removed, and rows `subtracted` from the
    counts.
    """
    name = Watching(workspace, reference).version.name
    root = workspace.layout.root
    files, secret = MonitoringFiles(root, name), workspace_secret(root)
    hashed = pa.array([keyed_digest(secret, kind, key) for key in keys for kind in ("key", "id")], pa.binary(16))
    if dry_run:
        return _forget_written(workspace, name, files, hashed, dry_run=True)
    with files.changing_predictions():
        files.note_forgotten(hashed, datetime.now(UTC) + UNCOUNTED)
        return _forget_written(workspace, name, files, hashed, dry_run=False)


def _forget_written(
    workspace: Workspace, name: str, files: MonitoringFiles, hashed: pa.Array, *, dry_run: bool
) -> dict[str, int]:
    n_predictions = n_subtracted = 0
    for version in files.versions():
        watched = Watching(workspace, f"{name}@{version}").watched
        for path, table in files.rows(version, "predictions"):
            is_gone = pc.is_in(table["key"], value_set=hashed)
            gone = table.filter(is_gone)
            if gone.num_rows:
                n_predictions += gone.num_rows
                if dry_run:
                    continue
                # First out of the log: killed in between, a row stays counted, and is not subtracted twice.
                files.replace_rows(path, table.filter(pc.invert(is_gone)))
                n_subtracted += _subtract(files, version, watched, gone)
    n_labels = 0 if dry_run else files.forget_labels(hashed)
    return {"predictions": n_predictions, "labels": n_labels, "subtracted": n_subtracted}


def _subtract(files: MonitoringFiles, version: int, watched: Watched, gone: pa.Table) -> int:
    """Write negative counts of the removed rows beside their hours, so that sums exclude them."""
    denied = files.choice().get("denied", ())
    known = gone.filter(pc.and_(pc.is_valid(gone["codes"]), gone["is_counted"]))
    hours: dict[datetime, list[int]] = {}
    for row, moment in enumerate(known["at"].to_pylist()):
        hours.setdefault(moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0), []).append(row)
    for hour, rows in hours.items():
        some = known.take(rows)
        codes = bytearray().join(some["codes"].to_pylist())  # which may be written, other than bytes
        x: Codes = np.asarray(np.frombuffer(codes, watched.schema.code_dtype).reshape(len(rows), -1))
        less = ServedCounts(watched)
        less.subtract(counts_of_kept_rows(watched, x, np.array(some["p"].to_pylist(), np.float64), denied))
        now, process = datetime.now(UTC), f"forgotten-{secrets.token_hex(4)}"
        end = hour + HOUR
        files.write_slice(
            version, hour, process, less.to_arrow(), watched.fingerprint, covered_until=max(now, end), is_closed=True
        )
    return int(known.num_rows)
