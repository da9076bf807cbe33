"""The registry: models and their versions, aliases, tags and promotions. Nothing here reads a model."""

from functools import partial

from service.workspace import Workspace, on_control
from storage.control.paging import DEFAULT_LIMIT, Page, pages
from storage.models import aliases, models, promotions, removal
from storage.models.aliases import AliasMove
from storage.models.models import ModelVersion
from storage.models.promotions import Promotion

find_version = on_control(models.find_version)
list_models = on_control(models.list_models)
list_versions = on_control(models.list_versions)
aliases_of = on_control(aliases.aliases)
set_alias = on_control(aliases.set_alias)
delete_alias = on_control(aliases.delete_alias)
roll_back = on_control(aliases.roll_back)
retention_of = on_control(removal.retention)
set_retention = on_control(removal.set_retention)


def newest_versions(workspace: Workspace, dataset: str) -> list[ModelVersion]:
    """The newest versions of models, of those that were trained on a data set."""
    known = [model for model in pages(partial(list_models, workspace)) if model.n_versions]
    newest = [find_version(workspace, f"{model.name}@latest") for model in known]
    return [version for version in newest if version.dataset == dataset]


def set_tag(workspace: Workspace, reference: str, tag: str, value: str | None) -> ModelVersion:
    """Set a tag of a version; None removes it."""
    version = find_version(workspace, reference)
    return models.set_tag(workspace.control, version.name, version.version, tag, value)


def alias_history(
    workspace: Workspace, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[AliasMove]:
    """Where the aliases of a model have pointed, newest first."""
    retention_of(workspace, name)  # so that an unknown model is not found
    return aliases.alias_history(workspace.control, name, limit, cursor)


def list_promotions(
    workspace: Workspace, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[Promotion]:
    """The decisions between champions and challengers of a model, newest first."""
    retention_of(workspace, name)  # so that an unknown model is not found
    return promotions.list_promotions(workspace.control, name, limit, cursor)
