"""POST /v1/models/{name}/score and /impute: rows of a request scored, or their missing cells filled."""

import time
from collections.abc import Callable
from typing import Annotated, Self

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import nameable, raw_value
from learners.circuits.queries.imputation import filled
from learners.kernels.arrays import Array
from learners.models.estimation import Average
from learners.models.query import How
from learners.schema import Chunk
from learners.schema.encoding.records import encode_columns, encode_records
from service.product.inference.imputation import Filling, check_filling
from service.product.inference.queries import queryable, until
from service.product.inference.row_scores import density_columns, graph_average, ranks_of
from service.requests.first_findings import Body
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge, InvalidRequest, NotReady
from service.serving.predictor import Predictor, Served
from service.settings import Settings

router = APIRouter(prefix="/v1/models", tags=["models"])
ROWS_AT_ONCE = 256  # between two looks at the clock
Value = str | int | float | bool | None
Record = dict[str, Value]
RECORDS = [{"outlook": "sunny", "humidity": 71.5}, {"outlook": None, "humidity": 93.0}]


class RowsBody(Body):
    """Rows: records or columns; a column may be absent, a value may be null."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    records: list[Record] | None = Field(default=None, examples=[RECORDS])
    columns: dict[str, list[Value]] | None = None
    ignore_unknown: bool = Field(default=False, description="Overlook columns that the model does not know.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.records is None) == (self.columns is None):
            raise ValueError("give either 'records' or 'columns'")
        return self


class ScoreBody(RowsBody):
    """Rows to score."""

    average: Average | None = Field(
        default=None, description="Of a posterior over structures: average over its graphs, not its most probable one."
    )


class ScoreResponse(BaseModel):
    """Of each row its log likelihood in nats, null where it is impossible or not told, and its rank: 1 is the most surprising."""

    model: str
    version: int
    log_likelihoods: list[float | None] = Field(examples=[[-3.1, -7.4]])
    surprise_ranks: list[int] = Field(examples=[[2, 1]])
    densities: list[str] = Field(description="Columns whose part of the likelihood is a density, not a probability.")
    average: JSONObject | None = Field(
        default=None,
        description="How graphs were averaged: exactly, or of n draws with the standard error of the mean.",
    )


class ImputeBody(RowsBody):
    """Rows whose missing cells are to be filled."""

    how: How = "mode"
    only: list[str] = Field(default_factory=list, description="Columns to fill; by default all of the model.")
    draws: Annotated[int, Field(ge=1, le=1000)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class ImputeResponse(BaseModel):
    """The rows as records, what was missing filled: with several draws all rows of the first, then those of the next."""

    model: str
    version: int
    records: list[Record]
    n_filled: int
    n_left: int = Field(description="Missing cells left: of impossible rows, or of values without a name of their own.")


@router.post("/{name}/score", summary="Score rows by their log likelihood")
def score(name: str, body: ScoreBody, request: Request) -> ScoreResponse:
    """How probable the model holds each row; what a row misses is summed out, unless graphs are averaged."""
    pause = _pause(request, "score")
    served, model, chunk, _ = _rows(name, body, request)
    x, found = model.columns.rows_of_chunk(chunk), [np.empty(0)]
    over = graph_average(served.model, body.average, chunk.n_rows, pause)
    row_logs = model.row_logs if over is None else over.log_likelihood
    for first in range(0, chunk.n_rows, ROWS_AT_ONCE):
        found.append(row_logs(np.ascontiguousarray(x[:, first : first + ROWS_AT_ONCE])))
        pause()
    logs = np.concatenate(found)
    served.count_rows(logs.size)
    return ScoreResponse(
        model=served.name,
        version=served.version,
        log_likelihoods=[log if np.isfinite(log) else None for log in logs.tolist()],
        surprise_ranks=ranks_of(logs, np.sort(logs)).tolist(),
        densities=density_columns(model),
        average=None if over is None else over.told(),
    )


@router.post("/{name}/impute", summary="Fill missing cells")
def impute(name: str, body: ImputeBody, request: Request) -> ImputeResponse:
    """Cells that are null or absent, filled by what is most probable given the rest of the row, by means, or by draws."""
    pause = _pause(request, "impute")
    served, model, chunk, records = _rows(name, body, request)
    filling = Filling(body.how, tuple(body.only), body.draws, body.seed)
    check_filling(model, filling)
    settings: Settings = request.app.state.settings
    if len(records) * filling.draws > settings.max_rows:
        detail = (
            f"{len(records)} rows of {filling.draws} draws each; at most {settings.max_rows} rows are answered at once."
        )
        raise BodyTooLarge(detail, max_rows=settings.max_rows)
    completed, n_left = _completed(model, model.columns.rows_of_chunk(chunk), records, filling, pause)
    served.count_rows(chunk.n_rows)
    n_filled = sum(sum(value is not None for value in row.values()) for row in completed)
    n_filled -= filling.draws * sum(sum(value is not None for value in row.values()) for row in records)
    return ImputeResponse(
        model=served.name, version=served.version, records=completed, n_filled=n_filled, n_left=n_left
    )


def _pause(request: Request, kind: str) -> Callable[[], None]:
    """What ends an answer that takes longer than a request may."""
    settings: Settings = request.app.state.settings
    return until(time.monotonic() + settings.query_s, settings.query_s, kind)


def _completed(
    model: CircuitModel, x: Array, records: list[Record], filling: Filling, pause: Callable[[], None]
) -> tuple[list[Record], int]:
    """Records with their cells filled, draw after draw; and how many cells were left."""
    columns = model.columns
    known = set(model.circuit.scope(model.circuit.root))
    asked = [
        v for v, name in enumerate(columns.names) if v in known and (not filling.columns or name in filling.columns)
    ]
    is_missing = np.zeros(x.shape, np.bool_)
    for v in asked:
        is_missing[v] = [row.get(columns.names[v]) is None for row in records]
    x = np.where(is_missing, np.nan if x.dtype.kind == "f" else -1, x).astype(x.dtype)
    options: JSONObject = {"nameable": nameable(columns), "seed": filling.seed, "n_draws": filling.draws}
    values = np.full((filling.draws, *x.shape), np.nan)
    for first in range(0, len(records), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        part, own = np.ascontiguousarray(x[:, some]), np.ascontiguousarray(is_missing[:, some])
        values[:, :, some] = filled(model, part, own, filling.how, first_row=first, **options)
        pause()
    completed = []
    for own in values:
        for place, row in enumerate(records):
            new = {
                columns.names[v]: None if np.isnan(own[v, place]) else raw_value(columns, v, float(own[v, place]))
                for v in asked
                if is_missing[v, place]
            }
            completed.append(dict(row) | new)
    return completed, int(np.count_nonzero(is_missing & np.isnan(values)))


def _rows(name: str, body: RowsBody, request: Request) -> tuple[Served, CircuitModel, Chunk, list[Record]]:
    """The model, the rows as it reads them, and as records."""
    settings: Settings = request.app.state.settings
    predictor: Predictor | None = getattr(request.app.state, "predictor", None)
    if predictor is None:
        raise NotReady("The server is starting.")
    served = predictor.served(name) or predictor.resolve(name)
    model = queryable(served.model)
    records = body.records if body.records is not None else _records(body.columns or {})
    if len(records) > settings.max_rows:
        detail = f"{len(records)} rows; at most {settings.max_rows} are answered at once. A job answers more."
        raise BodyTooLarge(detail, max_rows=settings.max_rows)
    served.check_names(records, body.ignore_unknown, 'or send "ignore_unknown": true')
    chunk = (
        encode_records(records, model.schema) if body.columns is None else encode_columns(body.columns, model.schema)
    )
    return served, model, _with_class(model, chunk, records), records


def _with_class(model: CircuitModel, chunk: Chunk, records: list[Record]) -> Chunk:
    """The rows with the class that they name; one that training never saw is as good as absent."""
    target = model.schema.target
    if model.columns.class_variable is None or target is None:
        return chunk
    known: dict[object, int] = {value: code for code, value in enumerate(model.schema.class_values())}
    codes = [known.get(row.get(target), len(known)) for row in records]
    return Chunk(chunk.x, np.array(codes, chunk.x.dtype), chunk.numbers)


def _records(columns: dict[str, list[Value]]) -> list[Record]:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise InvalidRequest(f"The columns have different lengths: {sorted(lengths)}.")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
