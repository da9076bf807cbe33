"""Versions as mapped models, for use in this process."""

from service.product.versions.registry import find_version
from service.serving.predictor import Served, map_version
from service.workspace import Workspace


def served(workspace: Workspace, reference: str) -> Served:
    """The mapped model of "name", "name@3" or "name@alias"."""
    return map_version(find_version(workspace, reference))
