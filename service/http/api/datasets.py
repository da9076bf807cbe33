"""/v1/datasets: named sets of files."""

from datetime import datetime
from functools import partial
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from service import product
from service.http.api.resources import BYTES_BODY, BodyRoute, Limit, Opening, Ours, PageShape, Shape, write_body_to_file
from service.requests.json_values import JSONObject, ShownObject
from service.requests.requests import DatasetRequest
from service.requests.roles import needs_role
from storage.control.api_keys_and_sessions import Role
from storage.files.atomic_files import write_file_atomically

router = APIRouter(route_class=BodyRoute, prefix="/v1/datasets", tags=["datasets"])


class DatasetShape(Shape):
    """A registered data set; `files` are those found by the last pass, or by the registration before any pass."""

    name: str
    uris: list[str]
    target: str | None
    columns: ShownObject
    files: list[JSONObject]
    created_at: datetime | None


class UploadShape(Shape):
    """An uploaded file, and the URI under which it can be registered."""

    uri: str
    n_bytes: int


class ColumnProfile(Shape):
    """Profile of a column: its share of missing rows, and its rows by class and label."""

    name: str
    kind: str
    type: str
    missing: float
    labels: list[str]
    counts: list[list[int]]


class LeftOutShape(Shape):
    """A column excluded from models, and the reason."""

    name: str
    reason: str


class ProfileShape(Shape):
    """Rows of a data set, and the distribution of its columns over the classes."""

    dataset: str
    target: str | None
    n_rows: int = Field(description="Number of rows in the profile.")
    names: list[str]
    rows: list[list[str | None]]
    classes: list[str]
    columns: list[ColumnProfile]
    n_columns: int
    left_out: list[LeftOutShape]


@router.post("", name="register", status_code=201, summary="Register files")
async def register_dataset_endpoint(
    request: DatasetRequest, workspace: Ours, opening: Opening, response: Response
) -> DatasetShape:
    """Register files, globs, folders or object store URIs under a name. Repeating the same registration changes
    nothing.
    """
    dataset = await opening.of(request.uris, are_read=True).run(
        partial(product.register_dataset, workspace, request, is_remote=True)
    )
    response.headers["location"] = f"/v1/datasets/{dataset.name}"
    return DatasetShape.model_validate(dataset)


@router.post("/example", name="example", status_code=201, summary="Load the example")
async def load_example_dataset_endpoint(workspace: Ours, opening: Opening) -> DatasetShape:
    """Write a table of 4,000 customers who leave or stay beside uploaded files, and register it as `customers`."""
    return DatasetShape.model_validate(await opening.of([]).run(partial(product.register_example_dataset, workspace)))


@router.put("/{name}/files/{file}", name="upload", status_code=201, summary="Upload a file", openapi_extra=BYTES_BODY)
async def upload_dataset_file_endpoint(
    name: str, file: Annotated[str, Path(max_length=128)], workspace: Ours, request: Request
) -> UploadShape:
    """Upload a file, streamed into a folder below the first data root; then register it by its URI. An existing file of
    that name is not replaced.
    """
    place = product.dataset_upload_path(workspace, name, file)
    with write_file_atomically(place) as draft:
        reserve = partial(product.reserve_upload_space, workspace, draft)
        n_bytes = await write_body_to_file(request, draft, workspace.settings.max_upload_bytes, reserve)
    await anyio.to_thread.run_sync(product.record_upload, workspace, name, file, n_bytes)
    return UploadShape(uri=str(place), n_bytes=n_bytes)


@needs_role(Role.ADMIN)
@router.delete("/{name}/files/{file}", name="delete_upload", status_code=204, summary="Delete an uploaded file")
def delete_uploaded_file_endpoint(name: str, file: str, workspace: Ours) -> None:
    """Delete an uploaded file. Data sets that name it stay; their next training needs another file."""
    product.delete_upload(workspace, name, file)


@router.get("", name="list_all", summary="List data sets")
def list_datasets_endpoint(workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[DatasetShape]:
    """List the data sets by name."""
    return PageShape[DatasetShape].model_validate(product.list_datasets(workspace, limit, cursor))


@router.get("/{name}", name="show", summary="Show a data set")
def show_dataset_endpoint(name: str, workspace: Ours) -> DatasetShape:
    """Show the target, the overrides and the files of a data set, as of the last pass over it or else its registration."""
    return DatasetShape.model_validate(product.get_dataset(workspace, name))


@router.get("/{name}/schema", name="schema", summary="Show the inferred schema")
def show_dataset_schema_endpoint(name: str, workspace: Ours) -> JSONObject:
    """Show the attributes with their kinds and values, the classes, and the excluded columns with the reasons."""
    return product.dataset_schema(workspace, name)


@needs_role(Role.TRAIN)
@router.get("/{name}/profile", name="profile", summary="Show rows and columns")
async def profile_dataset_endpoint(
    name: str, workspace: Ours, opening: Opening, target: str | None = None, search: str = ""
) -> ProfileShape:
    """Show ten rows, and for each column its share of missing values and its values by class, over at most 5,000 rows."""
    look = partial(product.dataset_profile, workspace, name, target, search)
    uris = product.get_dataset(workspace, name).uris
    return ProfileShape.model_validate(await opening.of(uris, are_read=True).run(look))


@needs_role(Role.ADMIN)
@router.delete("/{name}", name="delete", status_code=204, summary="Forget a data set")
def delete_dataset_endpoint(name: str, workspace: Ours) -> None:
    """Delete a data set. Its files and the models trained on them stay."""
    product.delete_dataset(workspace, name)
