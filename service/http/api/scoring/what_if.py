"""POST /v1/models/{name}/whatif: what a model says of a case, from every side at once."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from service.console.pages import served_of
from service.product.inference.what_if import WhatIfRequest, what_if
from service.requests.json_values import JSONObject
from service.settings import Settings

router = APIRouter(prefix="/v1/models", tags=["models"])


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
    case = body.model_copy(update={"time_limit_s": min(body.time_limit_s, settings.query_s)})
    return WhatIfResponse.model_validate(what_if(served_of(request, name), case))
