"""POST /v1/models/{name}/query: of a joint distribution, or of a posterior over structures."""

import time
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from learners.models.query import AnyQuery
from service.console.pages import served_of
from service.product.inference import queries
from service.requests.first_findings import Body
from service.requests.json_values import JSONObject
from service.requests.requests import MAX_QUERIES
from service.settings import Settings

router = APIRouter(prefix="/v1/models", tags=["models"])
OneQuery = Annotated[AnyQuery, Field(discriminator="kind")]


class QueryRequest(Body):
    """Queries to one model; those that differ only by their evidence are answered together."""

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
    """The answers, in the order of the queries.

    docs/explanation/circuits.md and docs/how-to/structures.md tell the members of each kind.
    """

    model: str
    version: int
    answers: list[JSONObject] = Field(examples=[[{"kind": "marginal", "log_probability": -1.2, "probability": 0.3}]])


@router.post("/{name}/query", summary="Ask a model's distribution")
def query(name: str, body: QueryRequest, request: Request) -> QueryResponse:
    """Of a joint distribution, any columns may be given, asked for, or left out; of a posterior over structures, any edges."""
    settings: Settings = request.app.state.settings
    pause = queries.until(time.monotonic() + settings.query_s, settings.query_s)
    served = served_of(request, name)
    batch = queries.limited(served.model, body.queries, settings.max_rows, settings.query_s)
    queries.check_size(served.model, batch, settings.max_rows)
    return QueryResponse(model=served.name, version=served.version, answers=queries.answers(served.model, batch, pause))
