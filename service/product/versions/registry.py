"""The registry: models and their versions, aliases, tags and promotions. Nothing here reads a model."""

from functools import partial

from service.workspace import Workspace
from storage.control.paging import Page, pages
from storage.models import aliases, models, promotions, retention
from storage.models.aliases import AliasMove
from storage.models.models import ModelVersion, RegisteredModel
from storage.models.promotions import Promotion


def find_version(workspace: Workspace, reference: str) -> ModelVersion:
    """The version that "name", "name@3" or "name@alias" means."""
    return models.find_version(workspace.control, reference)


def list_models(workspace: Workspace, limit: int = 100, cursor: str | None = None) -> Page[RegisteredModel]:
    """The names in the registry."""
    return models.list_models(workspace.control, limit=limit, cursor=cursor)


def newest_versions(workspace: Workspace, dataset: str) -> list[ModelVersion]:
    """The newest versions of models, of those that were trained on a data set."""
    known = [model for model in pages(partial(list_models, workspace)) if model.n_versions]
    newest = [find_version(workspace, f"{model.name}@latest") for model in known]
    return [version for version in newest if version.dataset == dataset]


def list_versions(workspace: Workspace, name: str, limit: int = 100, cursor: str | None = None) -> Page[ModelVersion]:
    """All versions of a model, newest first."""
    return models.list_versions(workspace.control, name, limit=limit, cursor=cursor)


def aliases_of(workspace: Workspace, name: str) -> dict[str, int]:
    """What each alias of a model means."""
    return dict(models.aliases(workspace.control, name))


def set_alias(workspace: Workspace, name: str, alias: str, version: int) -> None:
    """Let an alias mean a version; every serving process follows within the poll interval."""
    models.set_alias(workspace.control, name, alias, version)


def delete_alias(workspace: Workspace, name: str, alias: str) -> None:
    """Remove an alias; the version stays."""
    models.delete_alias(workspace.control, name, alias)


def set_tag(workspace: Workspace, reference: str, tag: str, value: str | None) -> ModelVersion:
    """Set a tag of a version; None removes it."""
    version = find_version(workspace, reference)
    return models.set_tag(workspace.control, version.name, version.version, tag, value)


def roll_back(workspace: Workspace, name: str, alias: str) -> int:
    """Let an alias mean what it meant before, once more each time; returns the version."""
    return aliases.roll_back(workspace.control, name, alias)


def alias_history(workspace: Workspace, name: str, limit: int = 100, cursor: str | None = None) -> Page[AliasMove]:
    """Where the aliases of a model have pointed, newest first."""
    retention_of(workspace, name)  # so that an unknown model is not found
    return aliases.alias_history(workspace.control, name, limit, cursor)


def list_promotions(workspace: Workspace, name: str, limit: int = 100, cursor: str | None = None) -> Page[Promotion]:
    """The decisions between champions and challengers of a model, newest first."""
    retention_of(workspace, name)  # so that an unknown model is not found
    return promotions.list_promotions(workspace.control, name, limit, cursor)


def retention_of(workspace: Workspace, name: str) -> int | None:
    """How many versions of a model are kept; None for all."""
    return retention.retention(workspace.control, name)


def set_retention(workspace: Workspace, name: str, keep: int | None) -> None:
    """Say how many versions of a model are kept when it is pruned and after each refresh; None for all."""
    retention.set_retention(workspace.control, name, keep)
