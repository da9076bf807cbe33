"""POST /v1/models/{name}/predict: a plain ASGI endpoint with msgspec in and out, because it is the hot path."""

from functools import partial
from typing import Annotated, NamedTuple
from urllib.parse import parse_qsl

import anyio.to_thread
import msgspec
import numpy as np
import pyarrow as pa
import structlog
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from learners.errors import InvalidBuffers
from learners.monitoring.served_counts import BatchRows, ColumnRows, RawRows, RecordRows
from learners.schema import Chunk
from learners.schema.encoding.encode import encode
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records
from learners.schema.schema import FEW_CLASSES, MAX_CLASSES
from service.http.api.arrow_streams import QuickStreams, read_arrow_stream
from service.http.api.bodies import (
    UNCOUNTED,
    Column,
    Hold,
    InFlight,
    Record,
    check_content_encoding,
    check_n_rows,
    read_body,
    row_body_decoder,
    send_body,
    send_problem_body,
    watched_client,
)
from service.http.api.json_bodies import check_json_size, decode_json_body
from service.requests import problems
from service.requests.json_values import JSONObject, whole_number_or_none
from service.requests.problems import InvalidRequest, MalformedBody, NotReady, UnsupportedMediaType
from service.serving.class_answers import (
    Probabilities,
    check_class_answer,
    check_class_columns,
    class_answer_json,
    encode_json_rows,
    predictions_batch,
    top_classes,
    top_classes_batch,
)
from service.serving.predictor import (
    WAY_OUT,
    Predictor,
    Served,
)
from service.settings import Settings
from storage.control.api_keys_and_sessions import Role

PREDICTION_KEY, MOST_KEY = b"x-prediction-key", 256


class Options(NamedTuple):
    """Options of the query string, and the client's own key of the prediction."""

    ignore_unknown: bool = False
    interval: float | None = None
    id: bool = False
    key: str | None = None
    top_k: int | None = None

    @property
    def is_plain(self) -> bool:
        """Return True if the answer has only classes and probabilities, and is not stored for later."""
        return self.interval is None and not self.id and self.key is None and self.top_k is None


NO_OPTIONS = Options()


def parse_prediction_key(key: bytes) -> str:
    """Read the client's prediction key from its header; raises InvalidRequest if it is empty or too long."""
    text = key.decode("latin-1").strip()
    if not text or len(text) > MOST_KEY:
        raise InvalidRequest(f"X-Prediction-Key needs 1 to {MOST_KEY} characters.", parameter="X-Prediction-Key")
    return text


def parse_predict_options(query: bytes) -> Options:
    """Read the options of a query string."""
    if not query:
        return NO_OPTIONS
    options: JSONObject = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in {"ignore_unknown", "id"} and value.lower() in {"true", "false", "1", "0"}:
            options[name] = value.lower() in {"true", "1"}
        elif name == "interval" and (level := _level(value)) is not None:
            options[name] = level
        elif name == "top_k" and (top_k := whole_number_or_none(value, MAX_CLASSES)):
            options[name] = top_k
        else:
            raise InvalidRequest(
                f"Query parameter {name}={value!r} is not allowed. Use ignore_unknown or id, true or false, "
                "interval, a probability above 0 and below 1, or top_k, a number of classes.",
                parameter=name,
            )
    return Options(**options)


def _level(text: str) -> float | None:
    try:
        level = float(text)
    except ValueError:
        return None
    return level if 0 < level < 1 else None


ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
PATH = "/v1/models/{name}/predict"
# On the event loop an Arrow stream may be longer than a JSON body, as it takes less time; and have so many cells a byte.
ARROW_TIMES, CELLS_TIMES = 16, 2

ROWS = "Send {'records': [{...}]} or {'columns': {...}}."
RECORDS = [{"outlook": "sunny", "humidity": 71.5}, {"outlook": None, "humidity": 93.0}]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Rows to classify: either records or columns; a column may be absent, a value may be null."""

    records: Annotated[list[Record] | None, msgspec.Meta(examples=[RECORDS])] = None
    columns: dict[str, Column] | None = None

    @property
    def rows(self) -> list[Record] | dict[str, Column]:
        """Rows of the request: the records, or the columns without records."""
        return (self.columns or {}) if self.records is None else self.records


class PredictResponse(msgspec.Struct):
    """The most probable class of each row, and the probabilities in the order of `classes`.

    With `top_k` there are no `classes`: each row has `top_classes`, the most probable ones first, and the probabilities of these.
    """

    model: str
    version: int
    predictions: list[str | int | bool]
    probabilities: list[list[float]]
    classes: list[str | int | bool] | None = None
    top_classes: list[list[str | int | bool]] | None = None
    intervals: list[list[Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)]]] | None = None
    ids: list[str] | None = None
    warnings: list[str] | None = None


class Rows(NamedTuple):
    """Encoded rows and their original values."""

    chunk: Chunk
    raw: RawRows


def encode_predict_rows(
    served: Served, rows: list[Record] | dict[str, Column], ignore_unknown: bool, way_out: str = WAY_OUT
) -> Rows:
    """Encode records or columns by the model's schema; InvalidRequest names a column that the model does not know."""
    if isinstance(rows, dict):
        served.check_names([rows], ignore_unknown, way_out)
        return Rows(encode_json_columns(rows, served.schema), ColumnRows(rows))
    served.check_names(rows, ignore_unknown, way_out)
    return Rows(encode_json_records(rows, served.schema), RecordRows(rows))


class Predict:
    """The predict endpoint, one per application. `in_flight` counts the bytes that requests hold; `predictor` is set
    once the registry is open.
    """

    needed_role = Role.PREDICT

    def __init__(self, settings: Settings, in_flight: InFlight) -> None:
        self.predictor: Predictor | None = None
        self.in_flight = in_flight
        self.max_body_bytes, self.max_decoded_bytes = settings.max_body_bytes, settings.max_decoded_bytes
        self.max_rows = settings.max_rows
        self.inline_bytes = settings.inline_bytes
        self.read = row_body_decoder(PredictRequest, settings.max_rows)
        self.quick_streams = QuickStreams()
        self.encode = msgspec.json.Encoder().encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; every failure becomes problem+json here, bypassing Starlette's handlers."""
        scope["fewpass.route"] = PATH
        scope["fewpass.quick"] = True
        if scope["fewpass.is_hot"]:  # past the routing, which tells it otherwise
            scope["path_params"] = {"name": scope["path"][11:-8]}
        try:
            content_type, body = await self.answer(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:
            if not problems.is_expected_error(error):
                structlog.get_logger("serve").exception("prediction failed", path=scope["path"])
            await send_problem_body(error, scope, send)
            return
        await send_body(send, 200, content_type, body)

    async def answer(self, scope: Scope, receive: Receive) -> tuple[str, bytes]:
        """Return the content type and the body of the answer."""
        with Hold(self.in_flight) as hold:
            content_type, accept, length = parse_predict_headers(scope)
            check_content_encoding(scope)
            options = parse_predict_options(scope["query_string"])
            key = scope["fewpass.headers"].get(PREDICTION_KEY)
            if key is not None:
                options = options._replace(key=parse_prediction_key(key))
            body = await read_body(receive, length, self.max_body_bytes, hold)
            served = await self.served(scope["path_params"]["name"])
            # The first interval of a model makes tables of its variances, which may take seconds.
            has_few_classes = served.schema.n_classes <= FEW_CLASSES  # or else a row takes long
            is_quick = options.interval is None and has_few_classes and len(body) <= self.inline_bytes
            if is_quick and content_type == JSON and accept != ARROW:
                return JSON, self.answer_json(served, self.parse(body), options)
            if content_type == ARROW and (found := self.quick_batch(served, body, options)) is not None:
                return self.answer_chunk(served, self.checked_chunk(served, *found, options), accept, options)
            async with watched_client(receive):
                work = partial(self.answer_batch, served, body, content_type, accept, options, hold)
                return await anyio.to_thread.run_sync(work)

    def quick_batch(
        self, served: Served, body: bytes, options: Options
    ) -> tuple[pa.RecordBatch, tuple[str, ...]] | None:
        """Return batch and column names of an Arrow stream small enough to answer without waiting for a thread; None
        for any other.
        """
        is_short = len(body) <= ARROW_TIMES * self.inline_bytes
        if not (is_short and options.is_plain and served.model.is_quick):
            return None
        quick = self.quick_streams.read(body)
        if quick is None:
            return None
        n_rows, n_columns = quick[0].num_rows, served.schema.n_attributes + served.schema.n_classes
        return quick if n_rows * n_columns <= CELLS_TIMES * self.inline_bytes and n_rows <= self.max_rows else None

    async def served(self, reference: str) -> Served:
        """Return the served model of "name", "name@version" or "name@alias"."""
        if self.predictor is None:
            raise NotReady("The server is starting. Try again in a few seconds.")
        served = self.predictor.served(reference)
        if served is None:
            served = await anyio.to_thread.run_sync(self.predictor.resolve, reference)
        return served

    def parse(self, body: bytes) -> PredictRequest:
        """Decode a JSON body, which must hold exactly one of records and columns."""
        request = decode_json_body(self.read, body, ROWS)
        check_predict_request(request, self.max_rows)
        return request

    def answer_json(self, served: Served, request: PredictRequest, options: Options) -> bytes:
        """Classify parsed rows and write the JSON answer."""
        records = request.records
        if records is not None and len(records) == 1 and options.is_plain and not served.warns:
            served.check_names(records, options.ignore_unknown)
            return self._one(served, records[0])
        return self._json(served, encode_predict_rows(served, request.rows, options.ignore_unknown), options)

    def held(self, body: bytes, content_type: str, hold: Hold) -> None:
        """Hold the bytes of a body; refuse one too large once decoded, or beside other requests (BodyTooLarge,
        MalformedBody, Overloaded).
        """
        if content_type == ARROW:
            hold.add(len(body))
        elif len(body) > UNCOUNTED:
            hold.add(check_json_size(body, self.max_decoded_bytes))

    def rows(self, served: Served, body: bytes, content_type: str, options: Options) -> Rows:
        """Decode and encode the rows of a body of either content type; its size has been checked before."""
        if content_type == JSON:
            return encode_predict_rows(served, self.parse(body).rows, options.ignore_unknown)
        if content_type != ARROW:
            raise UnsupportedMediaType(
                f"Content type {content_type!r} is not supported. Send {JSON} or {ARROW}.", content_type=content_type
            )
        table = read_arrow_stream(body, self.max_rows, self.max_decoded_bytes)
        return self.checked_chunk(served, table, tuple(table.column_names), options)

    def checked_chunk(
        self, served: Served, rows: pa.Table | pa.RecordBatch, names: tuple[str, ...], options: Options
    ) -> Rows:
        """Check the column names of rows and encode the rows."""
        served.check_columns(names, options.ignore_unknown)
        return Rows(encode_predict_table(rows, served, is_trusted=False), BatchRows(rows))

    def _one(self, served: Served, record: Record) -> bytes:
        probabilities = served.classify(record).tolist()
        served.count_rows(1)
        best, text = probabilities.index(max(probabilities)), self.encode(probabilities)
        end = b"]}"
        if warnings := served.record_warnings(record):
            end = b'],"warnings":' + self.encode(warnings) + b"}"
        return b"".join((served.json_head, served.json_classes[best], b'],"probabilities":[', text, end))

    def _json(self, served: Served, rows: Rows, options: Options) -> bytes:
        check_class_answer(rows.chunk.n_rows, len(served.classes), options.top_k, options.interval)
        probabilities = served.predict_proba(rows.chunk)
        ids = record_served_predictions(served, rows, probabilities, options)
        response = {"model": served.name, "version": served.version}
        response |= class_answer_json(served.classes, probabilities, options.top_k)
        if options.interval is not None:
            low, high = served.credible_intervals(rows.chunk, options.interval)
            response["intervals"] = encode_json_rows(np.stack([low, high], axis=2))
        if ids is not None:
            response["ids"] = ids
        if warnings := served.rows_warnings(rows.chunk, rows.raw):
            response["warnings"] = warnings
        return self.encode(response)

    def answer_batch(
        self, served: Served, body: bytes, content_type: str, accept: str, options: Options, hold: Hold
    ) -> tuple[str, bytes]:
        """Classify a larger request on a thread: JSON or Arrow in, JSON or Arrow out."""
        self.held(body, content_type, hold)
        if content_type == JSON and accept != ARROW:
            return JSON, self.answer_json(served, self.parse(body), options)
        return self.answer_chunk(served, self.rows(served, body, content_type, options), accept, options)

    def answer_chunk(self, served: Served, rows: Rows, accept: str, options: Options) -> tuple[str, bytes]:
        """Classify encoded rows; answer in Arrow unless JSON is requested."""
        if accept == JSON:
            return JSON, self._json(served, rows, options)
        check_class_answer(rows.chunk.n_rows, len(served.classes), options.top_k, options.interval)
        check_class_columns(len(served.classes), options.top_k)
        intervals = None if options.interval is None else served.credible_intervals(rows.chunk, options.interval)
        probabilities = served.predict_proba(rows.chunk)
        if options.top_k is None:
            batch = predictions_batch(served.classes, probabilities, intervals)
        else:
            batch = top_classes_batch(served.classes, top_classes(probabilities, options.top_k))
        ids = record_served_predictions(served, rows, probabilities, options)
        if ids is not None:
            batch = batch.append_column("id", pa.array(ids))
        if warnings := served.rows_warnings(rows.chunk, rows.raw):
            batch = batch.replace_schema_metadata({"warnings": self.encode(warnings)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return ARROW, sink.getvalue().to_pybytes()


def record_served_predictions(
    served: Served, rows: Rows, probabilities: Probabilities, options: Options
) -> list[str] | None:
    """Count the answered rows; return their ids if requested. An id or a key for an unmonitored model raises
    InvalidRequest.
    """
    if not options.id and options.key is None:
        served.answered(rows.chunk, probabilities, rows.raw)
        return None
    if served.watch is None:
        raise InvalidRequest(
            "This server does not keep predictions, so there is nothing to join labels with. Set FEWPASS_MONITORING=counts.",
            parameter="id" if options.id else "X-Prediction-Key",
        )
    if not served.watch.is_logged:
        raise InvalidRequest(
            f"Predictions of a model with {len(served.classes):,} classes are counted but not kept for labels; omit the id.",
            parameter="id" if options.id else "X-Prediction-Key",
        )
    n_rows = rows.chunk.n_rows
    if options.key is not None:
        ids = [options.key] if n_rows == 1 else [f"{options.key}/{row}" for row in range(n_rows)]
        keys = [served.watch.key_of("key", one) for one in ids]
    else:
        ids = served.watch.new_ids(n_rows)
        keys = [served.watch.key_of("id", one) for one in ids]
    served.answered(rows.chunk, probabilities, rows.raw, keys)
    return ids if options.id else None


def parse_predict_headers(scope: Scope) -> tuple[str, str, int | None]:
    """Return content type, accepted content type and Content-Length of a request."""
    headers = scope["fewpass.headers"]
    content_type = headers.get(b"content-type", b"application/json")
    is_json = content_type == b"application/json"
    media_type = JSON if is_json else content_type.decode("latin-1").partition(";")[0].strip().lower()
    accept = headers.get(b"accept", b"")
    answer_type = ARROW if ARROW.encode() in accept else JSON if JSON.encode() in accept else ""
    length = headers.get(b"content-length")
    return media_type, answer_type, None if length is None else int(length)


def check_predict_request(request: PredictRequest, max_rows: int) -> None:
    """Refuse a request without exactly one of records and columns (InvalidRequest), or with too many rows
    (BodyTooLarge).
    """
    if (request.records is None) == (request.columns is None):
        raise InvalidRequest("Send either 'records' or 'columns', not both.")
    check_n_rows(len(request.records or ()) or max(map(len, (request.columns or {}).values()), default=0), max_rows)


def encode_predict_table(table: pa.Table | pa.RecordBatch, served: Served, is_trusted: bool = True) -> Chunk:
    """Encode the rows of a table by the model's schema.

    Raises InvalidRequest if a column has a type that the model cannot read; MalformedBody if the table is not trusted,
    and not valid: offsets of a hostile stream may point anywhere.
    """
    try:
        return encode(table, served.schema, is_trusted, with_class=False)
    except InvalidBuffers as error:
        raise MalformedBody(f"The body is not an Arrow IPC stream: {error}") from error
    except pa.ArrowException as error:
        raise InvalidRequest(f"A column has a type that the model cannot read: {error}") from error
