"""/v1/keys: API keys; for the role admin."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from service import product
from service.http.api.bodies.shapes import Limit, Ours, PageShape, Shape
from service.http.security import Guard
from service.requests.requests import Name
from service.requests.requests import Request as RequestShape
from storage.control.access import Role

router = APIRouter(prefix="/v1/keys", tags=["keys"])


class KeyRequest(RequestShape):
    """A new key; each role may also do what those before it may: read, predict, train, admin."""

    name: Name
    role: Role
    days: float | None = Field(default=None, gt=0, le=36_500, description="Until it expires; never unless given.")


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


def guard_of(request: Request) -> Guard:
    """The guard of this process, so that who changes a key sees the change at once."""
    guard: Guard = request.app.guard
    return guard


Door = Annotated[Guard, Depends(guard_of)]


@router.post("", status_code=201, summary="Make an API key")
def create(request: KeyRequest, workspace: Ours, guard: Door) -> NewKeyShape:
    """The token is in this answer and never again."""
    key, token = product.create_key(workspace, request.name, request.role, request.days)
    guard.load(workspace.control)
    return NewKeyShape(**vars(key), token=token)


@router.get("", summary="List API keys")
def list_all(workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[KeyShape]:
    """By name, also the revoked ones; never the tokens."""
    return PageShape[KeyShape].model_validate(product.list_keys(workspace, limit, cursor))


@router.delete("/{name}", summary="Revoke an API key")
def revoke(name: str, workspace: Ours, guard: Door) -> KeyShape:
    """Refused at once by the serving process that answers, by others within the poll interval; its name stays taken."""
    key = product.revoke_key(workspace, name)
    guard.load(workspace.control)
    return KeyShape.model_validate(key)
