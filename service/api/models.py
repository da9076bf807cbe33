"""/v1/models: the registry."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from service.api.shapes import ModelVersionShape, PageShape, Shape, workspace_of
from service.predictor import Predictor
from service.workspace import Workspace

router = APIRouter(prefix="/v1/models", tags=["models"])
Ours = Annotated[Workspace, Depends(workspace_of)]
Limit = Annotated[int, Query(ge=1, le=1000)]


class ModelShape(Shape):
    """A name in the registry."""

    name: str
    latest_version: int
    n_versions: int
    aliases: dict[str, int]
    created_at: datetime


class AliasRequest(BaseModel):
    """Where an alias shall point."""

    version: int = Field(ge=1)


class AliasesShape(Shape):
    """What each alias of a model means."""

    aliases: dict[str, int] = Field(examples=[{"champion": 3}])


def follow(request: Request) -> Predictor:
    """The predictor of this process, so that who moved an alias sees the move at once."""
    predictor: Predictor = request.app.state.predictor
    return predictor


Ahead = Annotated[Predictor, Depends(follow)]


@router.get("", summary="List models")
def list_all(workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[ModelShape]:
    """By name."""
    return PageShape[ModelShape].model_validate(workspace.models(limit, cursor))


@router.get("/{reference}", summary="Show a model version")
def show(reference: str, workspace: Ours) -> ModelVersionShape:
    """`name`, `name@3` or `name@champion`; the bare name means the champion, or else the latest version."""
    return ModelVersionShape.model_validate(workspace.model(reference))


@router.get("/{name}/versions", summary="List the versions of a model")
def versions(name: str, workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[ModelVersionShape]:
    """Newest first."""
    return PageShape[ModelVersionShape].model_validate(workspace.versions(name, limit, cursor))


@router.get("/{reference}/metrics", summary="Show the metrics of a version")
def metrics(reference: str, workspace: Ours) -> dict[str, Any]:
    """As measured when it was trained."""
    return dict(workspace.model(reference).metrics)


@router.get("/{reference}/structure", summary="Show the graph of a version")
def structure(reference: str, workspace: Ours) -> dict[str, Any]:
    """Nodes and edges."""
    return workspace.structure(reference)


@router.get("/{reference}/download", summary="Download a version", response_class=FileResponse)
def download(reference: str, workspace: Ours) -> FileResponse:
    """Its DuckDB file, which `fewpass` and any DuckDB can read."""
    version = workspace.model(reference)
    return FileResponse(
        version.duckdb_path, media_type="application/vnd.duckdb", filename=f"{version.name}-{version.version}.duckdb"
    )


@router.get("/{name}/aliases", summary="List the aliases of a model")
def aliases(name: str, workspace: Ours) -> AliasesShape:
    """What each alias means."""
    return AliasesShape(aliases=workspace.aliases(name))


@router.put("/{name}/aliases/{alias}", summary="Point an alias at a version")
def set_alias(name: str, alias: str, request: AliasRequest, workspace: Ours, predictor: Ahead) -> AliasesShape:
    """Every serving process follows within the poll interval, this one at once."""
    workspace.set_alias(name, alias, request.version)
    predictor.refresh()
    return AliasesShape(aliases=workspace.aliases(name))


@router.delete("/{name}/aliases/{alias}", status_code=204, summary="Remove an alias")
def delete_alias(name: str, alias: str, workspace: Ours, predictor: Ahead) -> None:
    """The version stays."""
    workspace.delete_alias(name, alias)
    predictor.refresh()


@router.delete("/{name}/versions/{version}", status_code=204, summary="Delete a version")
def delete_version(name: str, version: int, workspace: Ours, predictor: Ahead) -> None:
    """Refused while an alias points at it."""
    workspace.delete_version(name, version)
    predictor.refresh()
