"""POST /v1/models/{name}/query and /whatif: queries to a joint distribution or a posterior over structures, and all
answers about one case.
"""

import time
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from learners.models.query import AnyQuery
from service.http.api.resources import BodyRoute, Opening
from service.product.inference import queries
from service.product.inference.what_if_answers import WhatIfRequest, answer_what_if
from service.requests.first_findings import Body
from service.requests.json_values import JSONObject
from service.requests.requests import MAX_QUERIES
from service.requests.roles import needs_role
from service.serving.application_state import served_model_from_request
from service.settings import Settings
from storage.control.api_keys_and_sessions import Role

router = APIRouter(route_class=BodyRoute, prefix="/v1/models", tags=["models"])
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


@needs_role(Role.PREDICT)
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
        description="One sentence for each unseen value, such as a number out of range.",
    )


@needs_role(Role.PREDICT)
@router.post("/{name}/whatif", name="ask", summary="Analyse one case")
async def ask_model_endpoint(name: str, body: WhatIfRequest, request: Request, opening: Opening) -> WhatIfResponse:
    """Answer everything about one case in one call: prediction, interval, contributions, posterior with surprise and
    the next column to ask for, completion, edges.

    Each is what predict, explain and query answer; for a part that the model lacks, the answer has the reason.
    """
    return await opening.computing.run(_answer_case, name, body, request)


def _answer_case(name: str, body: WhatIfRequest, request: Request) -> WhatIfResponse:
    settings: Settings = request.app.state.settings
    case = body.model_copy(update={"time_limit_s": min(body.time_limit_s, settings.query_s)})
    pause = queries.query_deadline_check(time.monotonic() + settings.query_s, settings.query_s)
    return WhatIfResponse.model_validate(answer_what_if(served_model_from_request(request, name), case, pause))
