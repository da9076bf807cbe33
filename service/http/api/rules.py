"""/v1/datasets/{name}/rules, /v1/models/{name}/rules: rules of forgotten rows are taken back; for the role admin."""

from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field

from service import product
from service.http.api.bodies.shapes import Ours, Shape
from service.requests.requests import Request as RequestShape
from service.workspace import Workspace

router = APIRouter(prefix="/v1")
NO_KEY = "a request without a key"


class WithdrawRequest(RequestShape):
    """A rule that shall no longer stand."""

    where: str = Field(min_length=1, max_length=10_000, description="The condition.", examples=["user_id = 7"])
    reason: str = Field(min_length=1, max_length=10_000, description="Why; kept with the rule.", examples=["a test"])


class WithdrawnShape(Shape):
    """A rule that was taken back: by the key `by`; `still_under` are other names under which the same rule stands."""

    name: str
    where: str
    withdrawn_at: datetime
    by: str
    reason: str
    still_under: list[str]


@router.post("/datasets/{name}/rules/withdraw", tags=["datasets"], summary="Take back a rule of forgotten rows")
def of_dataset(name: str, body: WithdrawRequest, request: Request, workspace: Ours) -> WithdrawnShape:
    """Later trainings read those rows again; models stay. Also for a data set that was deleted."""
    return _withdrawn(workspace, "dataset", name, body, request)


@router.post("/models/{name}/rules/withdraw", tags=["models"], summary="Take back a rule of forgotten rows")
def of_model(name: str, body: WithdrawRequest, request: Request, workspace: Ours) -> WithdrawnShape:
    """Of a model that was trained on files: later trainings read those rows again; versions stay."""
    return _withdrawn(workspace, "model", name, body, request)


def _withdrawn(
    workspace: Workspace, kind: Literal["dataset", "model"], name: str, body: WithdrawRequest, request: Request
) -> WithdrawnShape:
    by = str(request.scope.get("fewpass.key", NO_KEY))
    done = product.withdraw_rule(workspace, name, body.where, by=by, reason=body.reason, kind=kind)
    return WithdrawnShape.model_validate(done)
