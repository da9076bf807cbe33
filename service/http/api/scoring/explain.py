"""POST /v1/models/{name}/explain, /query and /whatif: reasons for predictions, queries to a joint distribution or a
posterior over structures, and all answers about one case.
"""

import time
from typing import Annotated, Any

import anyio.to_thread
import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from learners.models.explanation import explain
from learners.models.query import AnyQuery
from service.console.page_requests import served_model_from_request
from service.http.api.resources import Opening
from service.http.api.scoring.predict import JSON, Predict, parse_predict_headers, parse_predict_options
from service.product.inference import queries
from service.product.inference.what_if_answers import WhatIfRequest, answer_what_if
from service.requests.first_findings import Body
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge
from service.requests.requests import MAX_QUERIES
from service.serving.class_answers import check_class_answer_size
from service.serving.predictor import Served
from service.settings import Settings

PATH = "/v1/models/{name}/explain"
MAX_ROWS = 1_000


class Reason(msgspec.Struct):
    """Explanation of one row's class: `log_odds` is `prior` plus the sum of all `contributions`.

    A contribution is infinite, and null in JSON, where the model excludes a class for a value.
    """

    prediction: str | int | bool
    against: str | int | bool
    log_odds: float | None
    prior: float | None
    contributions: dict[str, float | None]


class ExplainResponse(msgspec.Struct):
    """The prediction of each row, and the contributions that favour it over the second most probable class."""

    model: str
    version: int
    classes: list[str | int | bool]
    predictions: list[str | int | bool]
    probabilities: list[list[float]]
    explanations: list[Reason]


async def explain_endpoint(request: Request) -> Response:
    """Explain predictions; rows are read as the predict endpoint reads them."""
    predict: Predict = request.app.predict
    content_type, _, _ = parse_predict_headers(request.scope)
    options = parse_predict_options(request.scope["query_string"])
    body = await request.body()
    served = await predict.served(request.path_params["name"])

    def work() -> bytes:
        predict.held(body, content_type, request.scope["fewpass.hold"])
        chunk = predict.rows(served, body, content_type, options).chunk
        if chunk.n_rows > MAX_ROWS:
            raise BodyTooLarge(f"{chunk.n_rows} rows; at most {MAX_ROWS} are explained at once.", max_rows=MAX_ROWS)
        check_class_answer_size(chunk.n_rows * (1 + len(served.schema.attributes)), len(served.classes), top_k=1)
        check_class_answer_size(chunk.n_rows, len(served.classes))
        return msgspec.json.encode(explain_response_members(served, chunk))

    return Response(await anyio.to_thread.run_sync(work), media_type=JSON)


def explain_response_members(served: Served, chunk: Any) -> JSONObject:
    """Return the members of an `ExplainResponse`."""
    explained = explain(served.model, chunk)
    classes = served.classes
    names = [attribute.name for attribute in served.schema.attributes]
    parts = explained.predicted, explained.against, explained.log_odds, explained.prior, explained.contributions
    rows = zip(*(part.tolist() for part in parts), strict=True)
    served.count_rows(chunk.n_rows)
    return {
        "model": served.name,
        "version": served.version,
        "classes": classes,
        "predictions": [classes[code] for code in explained.predicted.tolist()],
        "probabilities": explained.probabilities.tolist(),
        "explanations": [
            {
                "prediction": classes[predicted],
                "against": classes[against],
                "log_odds": log_odds,
                "prior": prior,
                "contributions": dict(zip(names, contributions, strict=True)),
            }
            for predicted, against, log_odds, prior, contributions in rows
        ],
    }


router = APIRouter(prefix="/v1/models", tags=["models"])
OneQuery = Annotated[AnyQuery, Field(discriminator="kind")]


class QueryRequest(Body):
    """Queries to one model; queries that differ only in their evidence are answered together."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    queries: list[OneQuery] = Field(
        min_length=1,
        max_length=MAX_QUERIES,
        examples=[
            [
                {"kind": "conditional", "variables": ["outlook"], "evidence": {"play": "yes"}},
                {"kind": "map", "evidence": {"humidity": 80.0}, "time_limit_s": 1.0},
            ]
        ],
    )


class QueryResponse(BaseModel):
    """Answers in the order of the queries.

    docs/explanation/circuits.md and docs/how-to/structures.md tell the members of each kind.
    """

    model: str
    version: int
    answers: list[JSONObject] = Field(examples=[[{"kind": "marginal", "log_probability": -1.2, "probability": 0.3}]])


@router.post("/{name}/query", name="query", summary="Ask a model's distribution")
async def query_model_endpoint(name: str, body: QueryRequest, request: Request, opening: Opening) -> QueryResponse:
    """Answer queries to a model. For a joint distribution you may give, ask for or omit any column; for a posterior
    over structures, any edge.
    """
    return await opening.computing.run(_answer_queries, name, body, request)


def _answer_queries(name: str, body: QueryRequest, request: Request) -> QueryResponse:
    settings: Settings = request.app.state.settings
    pause = queries.query_deadline_check(time.monotonic() + settings.query_s, settings.query_s)
    served = served_model_from_request(request, name)
    batch = queries.limit_queries(served.model, body.queries, settings.max_rows, settings.query_s)
    queries.check_query_answer_size(served.model, batch, settings.max_rows)
    return QueryResponse(
        model=served.name, version=served.version, answers=queries.answer_model_queries(served.model, batch, pause)
    )


class WhatIfResponse(BaseModel):
    """The available parts of the answer; `absent` gives the reason for each missing part."""

    model: str
    version: int
    kind: str
    target: str | None
    parts: dict[str, JSONObject] = Field(
        examples=[{"prediction": {"classes": ["no", "yes"], "probabilities": [0.18, 0.82], "prior": [0.6, 0.4]}}]
    )
    absent: dict[str, str]
    warnings: list[str] = Field(
        default_factory=list,
        description="Of each value that training never saw, such as a number out of range, a sentence.",
    )


@router.post("/{name}/whatif", name="ask", summary="Ask what a model would say of a case")
async def ask_model_endpoint(name: str, body: WhatIfRequest, request: Request, opening: Opening) -> WhatIfResponse:
    """Answer everything about one case in one call: prediction, interval, contributions, posterior with surprise and
    the next column to ask for, completion, edges.

    Each is what predict, explain and query answer; a part that this model has not is told with the reason.
    """
    return await opening.computing.run(_answer_case, name, body, request)


def _answer_case(name: str, body: WhatIfRequest, request: Request) -> WhatIfResponse:
    settings: Settings = request.app.state.settings
    case = body.model_copy(update={"time_limit_s": min(body.time_limit_s, settings.query_s)})
    pause = queries.query_deadline_check(time.monotonic() + settings.query_s, settings.query_s)
    return WhatIfResponse.model_validate(answer_what_if(served_model_from_request(request, name), case, pause))
