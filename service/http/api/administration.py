"""/v1/keys, and /v1/datasets/{name}/rules and /v1/models/{name}/rules, which withdraw rules of forgotten rows; for the
role admin.
"""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from service import product
from service.http.api.resources import BodyRoute, Limit, Ours, PageShape, Shape
from service.http.security import NO_KEY, Guard
from service.requests.requests import Name
from service.requests.requests import Request as RequestShape
from service.requests.roles import needs_role
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role

router = APIRouter(route_class=BodyRoute, prefix="/v1")


class KeyRequest(RequestShape):
    """A request for a new key. Each role includes the ones before it: read, predict, train, admin."""

    name: Name
    role: Role
    days: float | None = Field(
        default=None, gt=0, le=36_500, description="Days until the key expires; by default never."
    )


class KeyShape(Shape):
    """A key without its token."""

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKeyShape(KeyShape):
    """A new key with its token, which is kept as a hash only and cannot be shown again."""

    token: str = Field(examples=["fp_…"])


def guard_from_request(request: Request) -> Guard:
    """Return the guard of this process, which applies changes of keys at once."""
    guard: Guard = request.app.guard
    return guard


Door = Annotated[Guard, Depends(guard_from_request)]


@router.post("/keys", name="create", tags=["keys"], status_code=201, summary="Make an API key")
def create_api_key_endpoint(request: KeyRequest, workspace: Ours, guard: Door) -> NewKeyShape:
    """Create an API key. The answer holds its token, which is never shown again."""
    key, token = product.create_key(workspace, request.name, request.role, request.days)
    guard.load(workspace.control)
    return NewKeyShape(**vars(key), token=token)


@router.get("/keys", name="list_all", tags=["keys"], summary="List API keys")
def list_api_keys_endpoint(workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[KeyShape]:
    """List the keys by name, including revoked ones, without their tokens."""
    return PageShape[KeyShape].model_validate(product.list_keys(workspace, limit, cursor))


@router.delete("/keys/{name}", name="revoke", tags=["keys"], summary="Revoke an API key")
def revoke_api_key_endpoint(name: str, workspace: Ours, guard: Door) -> KeyShape:
    """Revoke a key. The serving process that answers refuses it at once, others within the poll interval; its name
    stays taken.
    """
    key = product.revoke_key(workspace, name)
    guard.load(workspace.control)
    return KeyShape.model_validate(key)


class WithdrawRequest(RequestShape):
    """A rule of forgotten rows to withdraw."""

    where: str = Field(min_length=1, max_length=10_000, description="The condition.", examples=["user_id = 7"])
    reason: str = Field(min_length=1, max_length=10_000, description="Why; kept with the rule.", examples=["a test"])


class WithdrawnShape(Shape):
    """A withdrawn rule: `by` is the key that withdrew it; `still_under` lists other names under which the same rule
    still applies.
    """

    name: str
    where: str
    withdrawn_at: datetime
    by: str
    reason: str
    still_under: list[str]


@needs_role(Role.ADMIN)
@router.post(
    "/datasets/{name}/rules/withdraw",
    name="of_dataset",
    tags=["datasets"],
    summary="Withdraw a rule of forgotten rows",
)
def forget_dataset_rows_endpoint(name: str, body: WithdrawRequest, request: Request, workspace: Ours) -> WithdrawnShape:
    """Withdraw a rule of forgotten rows of a data set, even a deleted one. Later trainings read those rows again;
    existing models stay.
    """
    return _withdrawn(workspace, "dataset", name, body, request)


@needs_role(Role.ADMIN)
@router.post(
    "/models/{name}/rules/withdraw", name="of_model", tags=["models"], summary="Withdraw a rule of forgotten rows"
)
def forget_model_rows_endpoint(name: str, body: WithdrawRequest, request: Request, workspace: Ours) -> WithdrawnShape:
    """Withdraw a rule of forgotten rows of a model trained on files. Later trainings read those rows again; existing
    versions stay.
    """
    return _withdrawn(workspace, "model", name, body, request)


def _withdrawn(
    workspace: Workspace, kind: Literal["dataset", "model"], name: str, body: WithdrawRequest, request: Request
) -> WithdrawnShape:
    by = str(request.scope.get("fewpass.key", NO_KEY))
    done = product.withdraw_forgetting_rule(workspace, name, body.where, by=by, reason=body.reason, kind=kind)
    return WithdrawnShape.model_validate(done)
