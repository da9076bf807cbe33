"""What a served version has predicted, and the counts themselves as they are kept."""

from datetime import datetime

import numpy as np
import pyarrow as pa

from service.product.monitoring.windows import SMALLEST, Watching, hour_end, span
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.workspace import Workspace

MOST_CELLS = 20_000_000


def monitoring_predictions(
    workspace: Workspace, reference: str, *, window: str = "24h", until: datetime | None = None
) -> JSONObject:
    """How often each class was predicted with how much confidence; counts below five are null.

    The window ends now, or at `until`. Raises InvalidRequest if the model predicts no class, or the window is no time; NotFound.

    Returns
    -------
    `classes`; `bins`, the lower bounds of the confidence; `counts` of each class and bin
    """
    watching, end = Watching(workspace, reference), hour_end(until)
    if watching.watched.schema.target is None:
        raise InvalidRequest(f"Model {watching.version.name!r} predicts no class, so it has no confidence.")
    seen = watching.window(end - span("window", window), end)
    counts = seen.counts.block("confidence")
    n_bins = counts.shape[1]
    return {
        "model": watching.version.name,
        "version": watching.version.version,
        "since": seen.since.isoformat(),
        "until": seen.until.isoformat(),
        "classes": list(watching.watched.schema.class_values()),
        "bins": [place / n_bins for place in range(n_bins)],
        "counts": [[n if n == 0 or n >= SMALLEST else None for n in own] for own in counts.tolist()],
    }


def monitoring_slices(
    workspace: Workspace, reference: str, *, window: str = "24h", until: datetime | None = None
) -> pa.Table:
    """The counts of each hour and process as they are kept: start, end, process, layout, block, place and count.

    They are whole numbers that add up: of some hours, processes or servers. Raises InvalidRequest if the window is no time,
    or holds more than 20 million cells; NotFound.
    """
    watching, end = Watching(workspace, reference), hour_end(until)
    blocks = watching.watched.blocks
    names = np.array(list(blocks))
    starts = np.array([block.start for block in blocks.values()])
    found, n_cells = [], 0
    for one in watching.files.slices(watching.version.version, end - span("window", window), end):
        if one.layout != watching.watched.fingerprint:
            continue
        table = one.counts()
        n_cells += table.num_rows
        if n_cells > MOST_CELLS:
            raise InvalidRequest(f"The window holds more than {MOST_CELLS:,} cells; ask for less time.", field="window")
        cells = table["cell"].to_numpy()
        block = np.searchsorted(starts, cells, side="right") - 1
        own = {"start": one.start, "end": one.end, "process": one.process}
        columns = {name: pa.array([value] * table.num_rows, _TYPES[name]) for name, value in own.items()}
        block_names = pa.DictionaryArray.from_arrays(pa.array(block, pa.int32()), pa.array(names.tolist()))
        columns |= {"block": block_names, "place": pa.array(cells - starts[block]), "count": table["count"]}
        found.append(pa.table(columns, schema=SLICES))
    return pa.concat_tables(found) if found else SLICES.empty_table()


_MOMENT = pa.timestamp("us", tz="UTC")
_TYPES = {"start": _MOMENT, "end": _MOMENT, "process": pa.string()}
SLICES = pa.schema(
    [*_TYPES.items(), ("block", pa.dictionary(pa.int32(), pa.string())), ("place", pa.int64()), ("count", pa.int64())]
)
