"""The registry: models and their versions, aliases, tags and promotions. Only `load_served_model` loads a model."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from service.workspace import Workspace, bind_control_to_workspace
from storage.control.paging import DEFAULT_LIMIT, Page, iterate_page_items
from storage.models import aliases, model_versions, promotions, removal
from storage.models.aliases import AliasMove
from storage.models.model_versions import ModelVersion
from storage.models.promotions import Promotion

if TYPE_CHECKING:
    from service.serving.predictor import Served

find_version = bind_control_to_workspace(model_versions.find_model_version)
list_models = bind_control_to_workspace(model_versions.list_models)
list_versions = bind_control_to_workspace(model_versions.list_model_versions)
alias_moves = bind_control_to_workspace(aliases.alias_moves)
aliases_of = bind_control_to_workspace(aliases.versions_by_alias)
set_alias = bind_control_to_workspace(aliases.set_alias)
delete_alias = bind_control_to_workspace(aliases.delete_alias)
roll_back = bind_control_to_workspace(aliases.roll_back)
retention_of = bind_control_to_workspace(removal.get_version_retention)
set_retention = bind_control_to_workspace(removal.set_version_retention)


def load_served_model(workspace: Workspace, reference: str) -> "Served":
    """Map the model of "name", "name@3" or "name@alias" for use in this process."""
    from service.serving.predictor import map_model_version  # which loads what models need, and lists do not

    return map_model_version(find_version(workspace, reference))


def newest_versions_of_dataset(workspace: Workspace, dataset: str) -> list[ModelVersion]:
    """Return the newest version of each model trained on a data set."""
    known = [model for model in iterate_page_items(partial(list_models, workspace)) if model.n_versions]
    newest = [find_version(workspace, f"{model.name}@latest") for model in known]
    return [version for version in newest if version.dataset == dataset]


def set_version_tag(
    workspace: Workspace,
    reference: str,
    tag: str,
    value: str | None,
    check: Callable[[ModelVersion], None] | None = None,
) -> ModelVersion:
    """Set a tag of a version; None removes it. `check` looks at the version within the transaction, and may raise."""
    version = find_version(workspace, reference)
    return model_versions.store_version_tag(workspace.control, version.name, version.version, tag, value, check)


def alias_history(
    workspace: Workspace, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[AliasMove]:
    """Return the past targets of a model's aliases, newest first."""
    retention_of(workspace, name)  # so that an unknown model is not found
    return aliases.alias_history(workspace.control, name, limit, cursor)


def list_promotions(
    workspace: Workspace, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[Promotion]:
    """Return the decisions between champions and challengers of a model, newest first."""
    retention_of(workspace, name)  # so that an unknown model is not found
    return promotions.list_promotions(workspace.control, name, limit, cursor)
