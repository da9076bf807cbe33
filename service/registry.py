"""The verbs of the registry beyond listing: tags, lineage, rollback, retention, export and import."""

from typing import TYPE_CHECKING

from storage import models, retention
from storage.model_file import remove_model
from storage.models import ModelVersion

if TYPE_CHECKING:
    from service.workspace import Workspace


class Registry:
    """The registry of a workspace.

    Parameters
    ----------
    workspace : Workspace
    """

    def __init__(self, workspace: "Workspace") -> None:
        self.workspace = workspace

    def set_tag(self, reference: str, tag: str, value: str | None) -> ModelVersion:
        """Set a tag of a version; None removes it."""
        version = self.workspace.model(reference)
        return models.set_tag(self.workspace.control, version.name, version.version, tag, value)

    def retention(self, name: str) -> int | None:
        """How many versions of a model are kept; None for all."""
        return retention.retention(self.workspace.control, name)

    def set_retention(self, name: str, keep: int | None) -> None:
        """Say how many versions of a model are kept when it is pruned and after each refresh; None for all."""
        retention.set_retention(self.workspace.control, name, keep)

    def prune(self, name: str, keep: int) -> list[int]:
        """Remove all but the newest versions and their files, never one that an alias points at; returns which."""
        gone = models.retain_versions(self.workspace.control, name, keep)
        for version in gone:
            remove_model(version.duckdb_path)
        return [version.version for version in gone]

    def prune_by_rule(self, name: str) -> list[int]:
        """Prune as the model's retention says; a model without one is left as it is."""
        keep = self.retention(name)
        return [] if keep is None else self.prune(name, keep)
