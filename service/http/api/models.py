"""/v1/models: the model registry."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from service import product
from service.http.api.preconditions import OnlyIf, Preconditions, aliases_tag, version_tag
from service.http.api.resources import (
    TAR,
    TAR_BODY,
    BodyRoute,
    File,
    Limit,
    ModelVersionShape,
    Ours,
    PageShape,
    Shape,
    Upload,
    media_type_responses,
)
from service.requests.column_paths import COLUMN
from service.requests.first_findings import Body
from service.requests.json_values import JSONObject
from service.requests.roles import needs_role
from service.serving.predictor import Predictor
from storage.control.api_keys_and_sessions import Role
from storage.models.model_versions import ModelVersion

router = APIRouter(route_class=BodyRoute, prefix="/v1/models", tags=["models"])
Member = Annotated[int | None, Query(description="Number of a member, for an ensemble.", ge=0)]
Tag = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$", examples=["checked-by"])]


class ModelShape(Shape):
    """A model in the registry."""

    name: str
    latest_version: int
    n_versions: int
    aliases: dict[str, int]
    created_at: datetime


class AliasRequest(Body):
    """The version that an alias should point to."""

    version: int = Field(ge=1)


class AliasesShape(Shape):
    """The version that each alias of a model points to."""

    aliases: dict[str, int] = Field(examples=[{"champion": 3}])


class MoveShape(Shape):
    """One move of an alias."""

    alias: str
    version: int
    reason: str
    moved_at: datetime


class PromotionShape(Shape):
    """A decision between a champion and a challenger, measured on the same rows."""

    alias: str
    challenger: int
    champion: int | None
    is_promoted: bool
    reason: str = Field(
        examples=["version 4 replaces 3 as champion: log_loss 0.301 against 0.312 less 0.001, on 812 rows"]
    )
    rule: JSONObject
    challenger_metrics: JSONObject | None
    champion_metrics: JSONObject | None
    measured_on: JSONObject
    job_id: str
    decided_at: datetime


class TagRequest(Body):
    """The value of a tag."""

    value: str = Field(max_length=10_000, examples=["checked by Ana"])


class Retention(Body):
    """Number of versions of a model to keep, besides those that an alias points to; null for all."""

    keep: int | None = Field(ge=1, le=1_000_000, examples=[10])


class Pruned(BaseModel):
    """The removed versions."""

    removed: list[int]


class ContextShape(Shape):
    """One context of the parents: their values, and the rows and the probability of each value of the column."""

    given: dict[str, str] = Field(examples=[{"class": "yes", "outlook": "sunny"}])
    n_rows: list[int]
    probability: list[float]


class FamilyShape(Shape):
    """A column of a network given its parents."""

    column: str
    parents: list[str]
    values: list[str]
    contexts: list[ContextShape]
    n_contexts: int = Field(description="Total number of contexts; the answer has at most `limit`.")


class LineageShape(Shape):
    """Origin of a version: files, job, schema, request and libraries."""

    name: str
    version: int
    sha256: str
    created_at: datetime
    job_id: str | None
    dataset: str | None
    n_rows: int
    files: list[JSONObject]
    model_schema: JSONObject = Field(alias="schema")
    provenance: JSONObject
    libraries: dict[str, str]


def predictor_from_request(request: Request) -> Predictor:
    """Return the predictor of this process, which applies moved aliases at once."""
    predictor: Predictor = request.app.state.predictor
    return predictor


Ahead = Annotated[Predictor, Depends(predictor_from_request)]


@router.get("", name="list_all", summary="List models")
def list_models_endpoint(workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[ModelShape]:
    """List the models by name."""
    return PageShape[ModelShape].model_validate(product.list_models(workspace, limit, cursor))


@router.get("/{reference}", name="show", summary="Show a model version")
def show_model_endpoint(reference: str, workspace: Ours, response: Response) -> ModelVersionShape:
    """Show a version: `name`, `name@3` or `name@champion`. The bare name is the champion, or the latest version without
    one.
    """
    version = product.find_version(workspace, reference)
    response.headers["etag"] = version_tag(version)
    return ModelVersionShape.model_validate(version)


@router.get("/{name}/versions", name="versions", summary="List the versions of a model")
def list_model_versions_endpoint(
    name: str, workspace: Ours, limit: Limit = 100, cursor: str | None = None
) -> PageShape[ModelVersionShape]:
    """List the versions of a model, newest first."""
    return PageShape[ModelVersionShape].model_validate(product.list_versions(workspace, name, limit, cursor))


@router.get("/{reference}/metrics", name="metrics", summary="Show the metrics of a version")
def show_model_metrics_endpoint(reference: str, workspace: Ours) -> JSONObject:
    """Show the metrics of a version, as measured when it was trained."""
    return dict(product.find_version(workspace, reference).metrics)


@router.get("/{reference}/report", name="report", summary="Show the quality report of a version")
def show_model_report_endpoint(reference: str, workspace: Ours) -> JSONObject:
    """Show the quality report of a version on the rows its training was measured on: verdict, losses, calibration, confusion,
    column importances.
    """
    return product.version_report(workspace, reference)


@router.get("/{reference}/structure", name="structure", summary="Show the graph of a version")
def show_model_structure_endpoint(reference: str, workspace: Ours, member: Member = None) -> JSONObject:
    """Show nodes and edges; for an ensemble, the member that answers queries and all families with their weights."""
    return product.version_structure(workspace, reference, member)


@router.get(f"/{{reference}}/families/{COLUMN}", name="family", summary="Show the probability table of a column")
def show_model_family_endpoint(
    reference: str, column: str, workspace: Ours, limit: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> FamilyShape:
    """Show rows and probabilities of each value in each context of the parents, largest contexts first; for networks."""
    return FamilyShape.model_validate(product.version_family_table(workspace, reference, column, limit))


@router.get("/{reference}/download", name="download", summary="Download a version", response_class=File)
def download_model_endpoint(reference: str, workspace: Ours) -> File:
    """Download the DuckDB file of a version, which `fewpass` and any DuckDB can read."""
    version = product.find_version(workspace, reference)
    return File(
        version.duckdb_path, media_type="application/vnd.duckdb", filename=f"{version.name}-{version.version}.duckdb"
    )


@router.get("/{name}/aliases", name="aliases", summary="List the aliases of a model")
def list_model_aliases_endpoint(name: str, workspace: Ours, response: Response) -> AliasesShape:
    """The version that each alias points at. The `ETag` is the `If-Match` of a change that shall follow this state."""
    return _aliases(workspace, name, response)


def _aliases(workspace: Ours, name: str, response: Response) -> AliasesShape:
    product.retention_of(workspace, name)  # NotFound if there is no such model
    moves = product.alias_moves(workspace, name)  # first: a move in between makes the ETag out of date, not the answer
    response.headers["etag"] = aliases_tag(moves)
    return AliasesShape(aliases=product.aliases_of(workspace, name))


def _check(only_if: Preconditions, name: str, alias: str) -> Callable[[Mapping[str, int]], None]:
    """Check the preconditions of a change of an alias: `If-Match` is of all aliases of the model."""

    def check(moves: Mapping[str, int]) -> None:
        only_if.check_is_new(f"Alias {name}@{alias}", exists=alias in moves)
        only_if.check_matches(f"The aliases of {name}", aliases_tag(moves))

    return check


@router.put("/{name}/aliases/{alias}", name="set_alias", summary="Point an alias at a version")
def set_model_alias_endpoint(
    name: str, alias: str, request: AliasRequest, workspace: Ours, predictor: Ahead, only_if: OnlyIf, response: Response
) -> AliasesShape:
    """Point an alias at a version. This serving process follows at once, the others within the poll interval."""
    product.set_alias(workspace, name, alias, request.version, check=_check(only_if, name, alias))
    predictor.refresh()
    return _aliases(workspace, name, response)


@router.delete("/{name}/aliases/{alias}", name="delete_alias", status_code=204, summary="Remove an alias")
def delete_model_alias_endpoint(name: str, alias: str, workspace: Ours, predictor: Ahead, only_if: OnlyIf) -> None:
    """Delete an alias. Its version stays."""
    product.delete_alias(workspace, name, alias, _check(only_if, name, alias))
    predictor.refresh()


@needs_role(Role.ADMIN)
@router.delete("/{name}/versions/{version}", name="delete_version", status_code=204, summary="Delete a version")
def delete_model_version_endpoint(name: str, version: int, workspace: Ours, predictor: Ahead) -> None:
    """Delete a version; refused while an alias points to it."""
    product.delete_version(workspace, name, version)
    predictor.refresh()


@needs_role(Role.ADMIN)
@router.delete("/{name}", name="delete_model", summary="Delete a model")
def delete_model_endpoint(name: str, workspace: Ours, predictor: Ahead) -> Pruned:
    """Delete a model with all its versions, aliases and history; refused while a job is working on it."""
    removed = product.delete_model(workspace, name)
    predictor.refresh()
    return Pruned(removed=removed)


@router.get("/{reference}/lineage", name="lineage", summary="Show the lineage of a version")
def show_model_lineage_endpoint(reference: str, workspace: Ours) -> LineageShape:
    """Show the lineage of a version: files, job, schema, request and library versions."""
    return LineageShape.model_validate(product.version_lineage(workspace, reference))


@router.put("/{reference}/tags/{tag}", name="set_tag", summary="Set a tag of a version")
def set_model_tag_endpoint(
    reference: str, tag: Tag, request: TagRequest, workspace: Ours, only_if: OnlyIf, response: Response
) -> ModelVersionShape:
    """Set one tag of a version. Its other tags stay."""
    return _tagged(workspace, reference, tag, request.value, only_if, response)


def _tagged(
    workspace: Ours, reference: str, tag: str, value: str | None, only_if: Preconditions, response: Response
) -> ModelVersionShape:
    def check(version: ModelVersion) -> None:
        only_if.check_is_new(f"Tag {tag!r} of {version.name}@{version.version}", exists=tag in version.tags)
        only_if.check_matches(f"{version.name}@{version.version}", version_tag(version))

    changed = product.set_version_tag(workspace, reference, tag, value, check)
    response.headers["etag"] = version_tag(changed)
    return ModelVersionShape.model_validate(changed)


@router.delete("/{reference}/tags/{tag}", name="delete_tag", summary="Remove a tag of a version")
def delete_model_tag_endpoint(
    reference: str, tag: Tag, workspace: Ours, only_if: OnlyIf, response: Response
) -> ModelVersionShape:
    """Delete one tag of a version. Its other tags stay."""
    return _tagged(workspace, reference, tag, None, only_if, response)


@router.post("/{name}/aliases/{alias}/rollback", name="roll_back", summary="Move an alias back to its previous version")
def roll_back_model_endpoint(
    name: str, alias: str, workspace: Ours, predictor: Ahead, only_if: OnlyIf, response: Response
) -> AliasesShape:
    """Move the alias to its previous version. Repeat to go back further; deleted versions are passed over."""
    product.roll_back(workspace, name, alias, check=_check(only_if, name, alias))
    predictor.refresh()
    return _aliases(workspace, name, response)


@router.get("/{name}/history", name="history", summary="List the moves of a model's aliases")
def list_model_alias_history_endpoint(
    name: str, workspace: Ours, limit: Limit = 100, cursor: str | None = None
) -> PageShape[MoveShape]:
    """List the moves of a model's aliases, newest first, each with its reason."""
    return PageShape[MoveShape].model_validate(product.alias_history(workspace, name, limit, cursor))


@router.get("/{name}/promotions", name="promotions", summary="List the decisions about a model")
def list_model_promotions_endpoint(
    name: str, workspace: Ours, limit: Limit = 100, cursor: str | None = None
) -> PageShape[PromotionShape]:
    """List the decisions between champion and challenger, newest first, with the numbers, the rule and the reason."""
    return PageShape[PromotionShape].model_validate(product.list_promotions(workspace, name, limit, cursor))


@router.get("/{name}/retention", name="retention", summary="Show the retention of a model")
def show_model_retention_endpoint(name: str, workspace: Ours) -> Retention:
    """Show the retention of a model; null for all."""
    return Retention(keep=product.retention_of(workspace, name))


@needs_role(Role.ADMIN)
@router.put("/{name}/retention", name="set_retention", summary="Set the retention of a model")
def set_model_retention_endpoint(name: str, request: Retention, workspace: Ours) -> Retention:
    """Set how many versions of a model are kept. Nothing is removed until the model is pruned, by request or after its
    next refresh.
    """
    product.set_retention(workspace, name, request.keep)
    return request


@needs_role(Role.ADMIN)
@router.post("/{name}/prune", name="prune", summary="Remove old versions of a model")
def prune_model_versions_endpoint(
    name: str, workspace: Ours, predictor: Ahead, keep: Annotated[int | None, Query(ge=1, le=1_000_000)] = None
) -> Pruned:
    """Remove all versions but the newest `keep`, by default the retention; never one that an alias points to."""
    removed = product.prune_model_versions(workspace, name, keep)
    predictor.refresh()
    return Pruned(removed=removed)


@router.get(
    "/{reference}/export",
    name="export",
    summary="Export a version as one file",
    response_class=StreamingResponse,
    responses=media_type_responses(TAR),
)
def export_model_version_endpoint(reference: str, workspace: Ours) -> StreamingResponse:
    """Export a version as a tar of its DuckDB file and a manifest with the SHA-256, which `import` accepts."""
    version, n_bytes, chunks = product.export_version(workspace, reference)
    name = f"{version.name}-{version.version}.fewpass.tar"
    headers = {"content-length": str(n_bytes), "content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(chunks, media_type=TAR, headers=headers)


@needs_role(Role.ADMIN)
@router.post(
    "/{name}/import",
    name="import_version",
    status_code=201,
    summary="Import an exported version",
    openapi_extra=TAR_BODY,
)
def import_model_version_endpoint(
    name: str, workspace: Ours, upload: Upload, response: Response, predictor: Ahead
) -> ModelVersionShape:
    """Import an exported version as the next version of the model; refused unless every byte is unchanged and the model
    answers.
    """
    version = product.import_version(workspace, upload, name, is_remote=True)
    predictor.refresh()
    response.headers["location"] = f"/v1/models/{name}@{version.version}"
    return ModelVersionShape.model_validate(version)
