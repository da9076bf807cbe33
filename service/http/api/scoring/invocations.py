"""/invocations, /ping and /version: the scoring protocol of MLflow model servers, for the default model."""

from functools import partial

import anyio.to_thread
import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from starlette.responses import Response

from learners.monitoring.served_counts import BatchRows
from service.http.api.bodies import (
    UNCOUNTED,
    Column,
    Hold,
    Record,
    Split,
    Value,
    check_csv_body_size,
    check_n_rows,
    row_body_decoder,
)
from service.http.api.json_bodies import decode_json_body
from service.http.api.scoring.predict import (
    JSON,
    Predict,
    Rows,
    encode_predict_rows,
    encode_predict_table,
    parse_predict_headers,
)
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest, MalformedBody, NotReady, UnsupportedMediaType
from service.requests.roles import needs_role
from service.serving.class_answers import check_class_answer_size, class_answer_json
from service.serving.predictor import Served
from service.settings import Settings
from service.version import VERSION
from storage.control.api_keys_and_sessions import Role

WAY_OUT = "or ask /v1/models/{name}/predict?ignore_unknown=true"
router = APIRouter(tags=["invocations"])
PATH = "/invocations"
CSV = "text/csv"

Records = list[Record]
Columns = dict[str, Column | Value]


class InvocationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Rows in one of the four request forms of MLflow."""

    dataframe_split: Split | None = None
    dataframe_records: Records | None = None
    inputs: Records | Columns | None = None
    instances: Records | Columns | None = None
    params: JSONObject | None = None


class InvocationResponse(msgspec.Struct):
    """The most probable class of each row; MLflow clients read `predictions`."""

    predictions: list[str | int | bool]
    probabilities: list[list[float]]
    classes: list[str | int | bool]


@router.get("/ping", name="ping", summary="Is the server ready for requests?", response_class=PlainTextResponse)
async def ping_endpoint(request: Request) -> PlainTextResponse:
    """Answer an empty line once the server is ready; 503 before."""
    if (reason := request.app.state.not_ready) is not None:
        raise NotReady(reason)
    return PlainTextResponse("\n")


@router.get("/version", name="version", summary="The version of fewpass", response_class=PlainTextResponse)
async def server_version_endpoint() -> PlainTextResponse:
    """Show the version of the server as plain text."""
    return PlainTextResponse(VERSION)


class Invocations:
    """POST /invocations for the default model of the settings: a plain Starlette endpoint with the models and limits of
    `predict`.
    """

    def __init__(self, predict: Predict, settings: Settings) -> None:
        self.predict = predict
        self.model = settings.default_model
        self.read = row_body_decoder(InvocationRequest, settings.max_rows)

    @needs_role(Role.PREDICT)
    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        if self.model is None:
            raise NotReady("No default model is set: set FEWPASS_DEFAULT_MODEL to a name or name@alias.")
        content_type, _, _ = parse_predict_headers(request.scope)
        body = await request.body()
        served = await self.predict.served(self.model)
        work = partial(self.score, served, body, content_type, request.scope["fewpass.hold"])
        return work() if len(body) <= self.predict.inline_bytes else await anyio.to_thread.run_sync(work)

    def score(self, served: Served, body: bytes, content_type: str, hold: Hold) -> Response:
        """Predict the classes of the rows in a body."""
        if content_type == CSV and len(body) > UNCOUNTED:
            hold.add(check_csv_body_size(body, self.predict.max_decoded_bytes))
        else:
            self.predict.held(body, content_type, hold)
        if content_type == JSON:
            rows = self._rows_of_json(served, body)
        elif content_type == CSV:
            rows = encode_invocation_csv(served, body, self.predict.max_rows)
        else:
            raise UnsupportedMediaType(f"Content type {content_type!r} is not supported. Send {JSON} or {CSV}.")
        check_class_answer_size(rows.chunk.n_rows, len(served.classes))
        probabilities = served.predict_proba(rows.chunk)
        served.answered(rows.chunk, probabilities, rows.raw)
        return Response(msgspec.json.encode(class_answer_json(served.classes, probabilities)), media_type=JSON)

    def _rows_of_json(self, served: Served, body: bytes) -> Rows:
        """Decode and encode the rows of any of the four forms."""
        request = decode_json_body(self.read, body, "Name the columns: records, columns, or dataframe_split.")
        forms = ("dataframe_split", "dataframe_records", "inputs", "instances")
        present = [name for name in forms if getattr(request, name) is not None]
        if len(present) != 1:
            raise InvalidRequest(f"Send exactly one of {', '.join(forms)}.")
        rows = getattr(request, present[0])
        if isinstance(rows, Split):
            served.check_columns(tuple(rows.columns), False, WAY_OUT)
            rows = dataframe_split_columns(rows)
        if isinstance(rows, dict):
            rows = {name: values if isinstance(values, list) else [values] for name, values in rows.items()}
            n_rows = max(map(len, rows.values()), default=0)
        else:
            n_rows = len(rows)
        check_n_rows(n_rows, self.predict.max_rows)
        return encode_predict_rows(served, rows, False, WAY_OUT)


def dataframe_split_columns(split: Split) -> dict[str, list[Value]]:
    """Return the columns of a split data frame; rows of unequal length raise InvalidRequest."""
    for number, row in enumerate(split.data):
        if len(row) != len(split.columns):
            raise InvalidRequest(f"Row {number} has {len(row)} values for {len(split.columns)} columns.")
    return {name: [row[j] for row in split.data] for j, name in enumerate(split.columns)}


def encode_invocation_csv(served: Served, body: bytes, max_rows: int) -> Rows:
    """Encode the rows of a CSV with a header; an empty field is a missing value."""
    texts = [a.name for a in served.schema.attributes if a.kind == "nominal" and isinstance((*a.values, "")[0], str)]
    options = pacsv.ConvertOptions(
        column_types=dict.fromkeys(texts, pa.string()), null_values=[""], strings_can_be_null=True
    )
    try:
        table = pacsv.read_csv(
            pa.BufferReader(body), pacsv.ReadOptions(use_threads=False), pacsv.ParseOptions(), options
        )
        names = table.column_names
    except (pa.ArrowException, UnicodeDecodeError) as error:  # the latter where a name is not UTF-8
        raise MalformedBody(f"The body is not CSV with a header: {error}") from error
    check_n_rows(table.num_rows, max_rows)
    served.check_columns(tuple(names), False, WAY_OUT)
    return Rows(encode_predict_table(table, served), BatchRows(table))
