"""Life cycle of a fitted model: load it from a file, publish it to a registry, open it from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewpass.estimators import estimator_of, fitted_of
from learners.estimators.arguments import with_argument_checks
from service.product.versions import fitted_models
from service.requests.problems import InvalidRequest
from service.settings import Settings
from service.terminal_output import open_existing_workspace
from service.workspace import Workspace
from storage.models.model_versions import ModelVersion


@with_argument_checks
def load(path: str | Path) -> Any:
    """Load the estimator of a network file, or of a file written by `save` or `fewpass models export` after checking
    every byte.

    Nothing of the file is run: it is arrays and JSON. It is tried in this process; `fewpass models import` tries
    untrusted files in a separate process.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    estimator
        An instance of its learner's class: `FewPassClassifier`, `KDB`, …; for a network a `SumProductNetwork`, which answers every query.

    Raises
    ------
    NotFound
    CorruptFile
        If it is another file, is damaged, or needs another version of fewpass.
    NetworkFileError, InvalidNetwork, NetworkTooLarge
        If the file of a network is invalid.
    """
    return estimator_of(fitted_models.load_fitted_model(Path(path)))


@with_argument_checks
def publish(
    model: Any, reference: str, *, workspace: str | Path | None = None, tags: Mapping[str, str] | None = None
) -> ModelVersion:
    """Add a fitted estimator to the registry of a workspace as the next version of a name; use `Client.publish` for a
    server.

    Parameters
    ----------
    model : estimator
    reference : str
        "name", or "name@alias" to point an alias at the version. A server of that workspace follows by itself.
    workspace : str or Path, optional
        Its folder, made if missing; by default that of FEWPASS_WORKSPACE, else ./workspace.
    tags : mapping of str to str, optional

    Returns
    -------
    ModelVersion
        With its `name` and `version`.

    Raises
    ------
    InvalidName, InvalidRequest
    """
    name, alias = name_and_alias(reference)
    settings = Settings() if workspace is None else Settings(workspace=Path(workspace))
    fitted = fitted_of(model)
    with Workspace(settings) as here:
        return fitted_models.publish_fitted_model(here, fitted, name, [] if alias is None else [alias], tags)


def name_and_alias(reference: str) -> tuple[str, str | None]:
    """Split a reference into the name and the alias of a new version.

    Raises
    ------
    InvalidRequest
        If it is a number of a version.
    """
    name, at, alias = reference.partition("@")
    if at and alias.isdecimal():
        raise InvalidRequest(f"{reference!r} names a version, but the registry assigns version numbers: use {name!r}.")
    return name, alias if at else None


@with_argument_checks
def open(reference: str, *, workspace: str | Path | None = None) -> Any:
    """Return the estimator of a registered version of a workspace, whether trained by Python or by the service.

    Parameters
    ----------
    reference : str
        "name", "name@3" or "name@alias".
    workspace : str or Path, optional
        Its folder; by default that of FEWPASS_WORKSPACE, else ./workspace.

    Raises
    ------
    NotFound, CorruptFile
    InvalidRequest
        If there is no workspace.
    """
    with open_existing_workspace(None if workspace is None else Path(workspace)) as here:
        return estimator_of(fitted_models.load_registered_model(here, reference))
