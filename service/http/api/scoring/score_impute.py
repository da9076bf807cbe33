"""POST /v1/models/{name}/score and /impute: score rows, or fill their missing cells."""

import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import cell_value, fill_cells, nameable
from learners.kernels.arrays import Array
from learners.models.estimation import Average, GraphPrior
from learners.models.query import How
from learners.monitoring.served_counts import RecordRows
from learners.schema import Chunk
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records
from service.http.api.bodies import Record, row_body_decoder
from service.http.api.json_bodies import decode_json_body
from service.http.api.scoring.predict import (
    JSON,
    ROWS,
    Predict,
    PredictRequest,
    check_predict_request,
    parse_predict_headers,
)
from service.product.inference.density_rows import (
    Filling,
    density_columns,
    graph_averaged_scorer,
    ranks_by_surprise,
    variables_to_impute,
)
from service.product.inference.queries import query_deadline_check, queryable_circuit
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge, UnsupportedMediaType
from service.requests.roles import needs_role
from service.serving.class_answers import encode_json_rows
from service.serving.predictor import Served
from service.settings import Settings
from storage.control.api_keys_and_sessions import Role

SCORE_PATH, IMPUTE_PATH = "/v1/models/{name}/score", "/v1/models/{name}/impute"
ROWS_AT_ONCE = 256  # between two looks at the clock
Overlooked = Annotated[bool, msgspec.Meta(description="Ignore columns that the model does not know.")]
Unlike = Annotated[
    list[str] | None, msgspec.Meta(description="What all rows have that no training row had; absent if nothing.")
]
Rows = TypeVar("Rows")


class OverGraphs(msgspec.Struct, forbid_unknown_fields=True):
    """Options for averaging over graphs; see `Average`."""

    n: int = 200
    level: float = 0.9
    present: list[str] = []
    absent: list[str] = []
    prior: GraphPrior = "order"
    seed: int = 0

    def average(self) -> Average:
        """Convert to the learners' `Average`; may raise InvalidParameter."""
        return Average(self.n, self.level, tuple(self.present), tuple(self.absent), self.prior, self.seed)


class ScoreRequest(PredictRequest, forbid_unknown_fields=True):
    """Rows: either records or columns; a column may be absent, a value may be null."""

    ignore_unknown: Overlooked = False
    average: Annotated[
        OverGraphs | None,
        msgspec.Meta(
            description="For a posterior over structures: average over its graphs instead of using the most probable one."
        ),
    ] = None


class ImputeRequest(PredictRequest, forbid_unknown_fields=True):
    """Rows with missing cells to fill: either records or columns."""

    ignore_unknown: Overlooked = False
    how: How = "mode"
    only: Annotated[list[str], msgspec.Meta(description="Columns to fill; by default all of the model.")] = (
        msgspec.field(default_factory=list)
    )
    draws: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


class ScoreResponse(msgspec.Struct):
    """Log likelihood of each row in nats, null where it is impossible or not computed, and surprise rank (1 is the most
    surprising).
    """

    model: str
    version: int
    log_likelihoods: Annotated[list[float | None], msgspec.Meta(examples=[[-3.1, -7.4]])]
    surprise_ranks: Annotated[list[int | None], msgspec.Meta(examples=[[2, 1]])]
    densities: Annotated[
        list[str],
        msgspec.Meta(description="Columns that contribute a density to the likelihood instead of a probability."),
    ]
    average: Annotated[
        JSONObject | None,
        msgspec.Meta(description="Average over graphs: exact, or from n draws with the standard error of the mean."),
    ] = None
    warnings: Unlike = None


class ImputeResponse(msgspec.Struct):
    """The rows as records with missing cells filled; several draws are returned draw by draw, each with all rows."""

    model: str
    version: int
    records: list[Record]
    n_filled: int
    n_left: Annotated[
        int,
        msgspec.Meta(
            description="Number of cells that could not be filled: in impossible rows, or because a draw gave a rare value without a name."
        ),
    ]
    warnings: Unlike = None


class Densities:
    """The score and impute endpoints; like predict they read large bodies piece by piece, but always on a thread."""

    def __init__(self, predict: Predict, settings: Settings) -> None:
        self.predict, self.settings = predict, settings
        self.read_score = row_body_decoder(ScoreRequest, settings.max_rows)
        self.read_impute = row_body_decoder(ImputeRequest, settings.max_rows)

    @needs_role(Role.PREDICT)
    async def score(self, request: Request) -> Response:
        """Score how probable each row is under the model; missing values are summed out unless graphs are averaged."""
        return await self._answer(request, self.read_score, self._scored)

    @needs_role(Role.PREDICT)
    async def impute(self, request: Request) -> Response:
        """Fill null or absent cells: by the most probable completion given the rest of the row, by means, or by draws."""
        return await self._answer(request, self.read_impute, self._imputed)

    async def _answer(
        self, request: Request, read: Callable[[bytes], Rows], work: Callable[[Served, Rows], JSONObject]
    ) -> Response:
        content_type, _, _ = parse_predict_headers(request.scope)
        if content_type != JSON:
            raise UnsupportedMediaType(f"Content type {content_type!r} is not supported. Send {JSON}.")
        body, hold = await request.body(), request.scope["fewpass.hold"]
        served = await self.predict.served(request.path_params["name"])

        def answer() -> bytes:
            self.predict.held(body, JSON, hold)
            return msgspec.json.encode(work(served, decode_json_body(read, body, ROWS)))

        return Response(await request.app.state.opening.computing.run(answer), media_type=JSON)

    def _scored(self, served: Served, request: ScoreRequest) -> JSONObject:
        pause = self._pause("score")
        model, chunk, records = self._rows(served, request)
        x, parts = model.columns.rows_of_chunk(chunk), [np.empty(0)]
        average = None if request.average is None else request.average.average()
        over = graph_averaged_scorer(served.model, average, chunk.n_rows, pause)
        row_logs = model.row_logs if over is None else over.log_likelihood
        for first in range(0, chunk.n_rows, ROWS_AT_ONCE):
            parts.append(row_logs(np.ascontiguousarray(x[:, first : first + ROWS_AT_ONCE])))
            pause()
        logs = np.concatenate(parts)
        ranks = ranks_by_surprise(logs, np.sort(logs)).astype(object)
        ranks[np.isnan(logs)] = None
        served.count_rows(logs.size)
        return {
            "model": served.name,
            "version": served.version,
            "log_likelihoods": np.where(np.isfinite(logs), logs, np.nan).tolist(),  # NaN is written as null
            "surprise_ranks": ranks.tolist(),
            "densities": density_columns(model),
            "average": None if over is None else over.to_json(),
        } | _warnings(served, records)

    def _imputed(self, served: Served, request: ImputeRequest) -> JSONObject:
        pause = self._pause("impute")
        model, chunk, records = self._rows(served, request)
        filling = Filling(request.how, tuple(request.only), request.draws, request.seed)
        most = self.settings.max_rows
        if len(records) * filling.draws > most:
            detail = f"{len(records)} rows of {filling.draws} draws each; the limit is {most} rows per request."
            raise BodyTooLarge(detail, max_rows=most)
        completed, n_filled, n_left = _completed(model, model.columns.rows_of_chunk(chunk), records, filling, pause)
        served.count_rows(chunk.n_rows)
        answer: JSONObject = {"model": served.name, "version": served.version, "records": encode_json_rows(completed)}
        return answer | {"n_filled": n_filled, "n_left": n_left} | _warnings(served, records)

    def _pause(self, kind: str) -> Callable[[], None]:
        """Return the check that stops an answer after the time limit of a request."""
        return query_deadline_check(time.monotonic() + self.settings.query_s, self.settings.query_s, kind)

    def _rows(self, served: Served, request: ScoreRequest | ImputeRequest) -> tuple[CircuitModel, Chunk, list[Record]]:
        """Return the model, the encoded rows and the rows as records."""
        check_predict_request(request, self.settings.max_rows)
        model, columns, records = queryable_circuit(served.model), request.columns or {}, request.records or []
        served.check_names(records or [columns], request.ignore_unknown, 'or send "ignore_unknown": true')
        if request.columns is None:
            chunk = encode_json_records(records, model.schema)
        else:
            chunk = encode_json_columns(columns, model.schema)
            records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return model, _with_class(model, chunk, records), records


def _warnings(served: Served, records: list[Record]) -> JSONObject:
    """Return `warnings` about rows that are all unlike those of training, if there are any."""
    warnings = served.unlike_training_warnings(RecordRows(records)) if records else []
    return {"warnings": warnings} if warnings else {}


def _completed(
    model: CircuitModel, x: Array, records: list[Record], filling: Filling, pause: Callable[[], None]
) -> tuple[list[Record], int, int]:
    """Return the records with cells filled, draw by draw; the number of filled cells; the number left empty."""
    columns = model.columns
    variables = variables_to_impute(model, filling, columns.names)
    is_missing = np.zeros(x.shape, np.bool_)
    for v in variables:
        is_missing[v] = [row.get(columns.names[v]) is None for row in records]
    x = np.where(is_missing, np.nan if x.dtype.kind == "f" else -1, x).astype(x.dtype)
    options: JSONObject = {"nameable": nameable(columns), "seed": filling.seed, "n_draws": filling.draws}
    values = np.full((filling.draws, *x.shape), np.nan)
    for first in range(0, len(records), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        part, own = np.ascontiguousarray(x[:, some]), np.ascontiguousarray(is_missing[:, some])
        values[:, :, some] = fill_cells(model, part, own, filling.how, first_row=first, **options)
        pause()
    completed = []
    for own in values:
        for place, row in enumerate(records):
            new = {
                columns.names[v]: None if np.isnan(own[v, place]) else cell_value(columns, v, float(own[v, place]))
                for v in variables
                if is_missing[v, place]
            }
            completed.append(dict(row) | new)
    n_left = int(np.count_nonzero(is_missing & np.isnan(values)))
    return completed, filling.draws * int(is_missing.sum()) - n_left, n_left


def _with_class(model: CircuitModel, chunk: Chunk, records: list[Record]) -> Chunk:
    """Return the rows with the classes they name; a class that training never saw counts as missing."""
    target = model.schema.target
    if model.columns.class_variable is None or target is None:
        return chunk
    known: dict[object, int] = {value: code for code, value in enumerate(model.schema.class_values())}
    codes = [known.get(row.get(target), len(known)) for row in records]
    return Chunk(chunk.x, np.array(codes, chunk.x.dtype), chunk.numbers)
