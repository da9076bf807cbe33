"""POST /v1/models/{name}/whatif: what a model says of a case, from every side at once."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from learners.models.evidence import Known, RawValue
from service.console.pages import served_of
from service.product.inference.what_if import PARTS, Case, Part, what_if
from service.requests.first_findings import Body
from service.requests.json_values import JSONObject
from service.settings import Settings

router = APIRouter(prefix="/v1/models", tags=["models"])


class WhatIfRequest(Body):
    """A case: what is supposed of some columns, and which parts of the answer are wanted."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    evidence: dict[str, Known] = Field(
        default_factory=dict,
        description="Null: the value is missing. A column that is left out is not known. A list is a set of values.",
        examples=[{"outlook": ["sunny", "rain"], "humidity": 71.5}],
    )
    likely: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="Weights by value.", examples=[{"windy": {"True": 0.8, "False": 0.2}}]
    )
    do: dict[str, RawValue] = Field(
        default_factory=dict,
        description="Columns of a network that are set from outside, whatever their causes are.",
        examples=[{"outlook": "sunny"}],
    )
    target: str | None = Field(default=None, description="The column in question; the class unless given.")
    level: float = Field(default=0.9, gt=0, lt=1, description="Probability of each interval.")
    parts: list[Part] = Field(default_factory=lambda: list(PARTS), description="All unless given.")
    columns: list[str] | None = Field(
        default=None, description="Columns whose distribution is wanted; all unless given."
    )
    present: list[str] = Field(
        default_factory=list, description="Of posteriors over structures: edges that are known.", examples=[["a->b"]]
    )
    absent: list[str] = Field(default_factory=list, description="Edges that are known not to be.")
    time_limit_s: float = Field(default=0.3, ge=0, le=60, description="Of the search for the most probable completion.")
    best: int = Field(default=1, ge=1, le=20, description="How many of the most probable completions are told.")


class WhatIfResponse(BaseModel):
    """The parts that there are; `absent` says of each other one why not."""

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


@router.post("/{name}/whatif", summary="Ask what a model would say of a case")
def ask(name: str, body: WhatIfRequest, request: Request) -> WhatIfResponse:
    """Prediction, interval, contributions, posterior with surprise and what to ask next, completion, edges, in one call.

    Each is what predict, explain and query answer; a part that this model has not is told with the reason.
    """
    settings: Settings = request.app.state.settings
    fields = {field: getattr(body, field) for field in WhatIfRequest.model_fields}
    case = Case(**fields | {"time_limit_s": min(body.time_limit_s, settings.query_s)})
    return WhatIfResponse.model_validate(what_if(served_of(request, name), case))
