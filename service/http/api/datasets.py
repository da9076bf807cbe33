"""/v1/datasets: files under a name."""

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from service import product
from service.http.api.bodies.shapes import Opening, PageShape, Shape, workspace_of
from service.requests.json_values import JSONObject
from service.requests.requests import DatasetRequest
from service.workspace import Workspace

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])
Ours = Annotated[Workspace, Depends(workspace_of)]


class DatasetShape(Shape):
    """A registered data set; `files` are those that the last pass found, or else registering it."""

    name: str
    uris: list[str]
    target: str | None
    columns: JSONObject
    files: list[JSONObject]
    created_at: datetime | None


@router.post("", status_code=201, summary="Register files")
async def register(request: DatasetRequest, workspace: Ours, opening: Opening, response: Response) -> DatasetShape:
    """Files, globs, folders or object store URIs; repeating the same registration changes nothing."""
    dataset = await opening.of(request.uris).run(partial(product.register_dataset, workspace, request, is_remote=True))
    response.headers["location"] = f"/v1/datasets/{dataset.name}"
    return DatasetShape.model_validate(dataset)


@router.get("", summary="List data sets")
def list_all(
    workspace: Ours, limit: Annotated[int, Query(ge=1, le=1000)] = 100, cursor: str | None = None
) -> PageShape[DatasetShape]:
    """By name."""
    return PageShape[DatasetShape].model_validate(product.list_datasets(workspace, limit, cursor))


@router.get("/{name}", summary="Show a data set")
def show(name: str, workspace: Ours) -> DatasetShape:
    """Its target, overrides, and files as of the last pass over it, or else of its registration."""
    return DatasetShape.model_validate(product.get_dataset(workspace, name))


@router.get("/{name}/schema", summary="Show the inferred schema")
def schema(name: str, workspace: Ours) -> JSONObject:
    """Attributes with their kinds and values, classes, and the columns that are left out and why."""
    return product.dataset_schema(workspace, name)


@router.delete("/{name}", status_code=204, summary="Forget a data set")
def delete(name: str, workspace: Ours) -> None:
    """The files and the models trained on them stay."""
    product.delete_dataset(workspace, name)
