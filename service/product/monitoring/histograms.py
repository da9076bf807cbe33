"""How the values of a column are spread in each class, as training has counted them."""

from functools import lru_cache
from pathlib import Path

from learners.monitoring.count_layout import Watched
from learners.monitoring.reference import training_reference
from learners.registry.model_kinds import load_model
from service.product.training.scored_counts import scored_counts
from service.product.versions.registry import find_version, newest_versions
from service.requests.problems import InvalidRequest
from service.workspace import Workspace
from storage.models.compiled import map_compiled
from storage.models.models import ModelVersion


def counting_version(workspace: Workspace, dataset: str) -> ModelVersion | None:
    """The newest version of a model of a data set that keeps counts of its training; None if there is none."""
    own = sorted(newest_versions(workspace, dataset), key=lambda one: str(one.created_at), reverse=True)
    return next((one for one in own if _watched(one.arrow_path, one.sha256).member is not None), None)


def class_histogram(workspace: Workspace, reference: str, column: str) -> dict[str, object]:
    """Rows of each value of a column, by class, as a version's training has counted them.

    Returns
    -------
    dict
        `labels` of the values, the last one for what is in none; `classes`; `counts` of each class and value.

    Raises
    ------
    InvalidRequest
        If the model keeps no counts of its training, or has no such column.
    NotFound
    """
    version = find_version(workspace, reference)
    watched = _watched(version.arrow_path, version.sha256)
    if column not in watched.names:
        raise InvalidRequest(f"Model {version.name!r} has no column {column!r}.", column=column)
    if watched.member is None:
        raise InvalidRequest(f"A model of kind {watched.model.kind!r} keeps no counts of its training.")
    found = training_reference(watched, scored_counts(version, watched))
    assert found is not None
    i = watched.names.index(column)
    counts = found.families[i].sum(axis=1)
    classes = list(watched.schema.class_values()) if watched.schema.target is not None else []
    if len(counts) != len(classes):  # a column that the network leaves out is counted over all classes together
        classes = ["all classes"]
    return {
        "model": version.name,
        "version": version.version,
        "column": column,
        "labels": [*watched.codes.attributes[i].labels(), "(unknown)"],
        "classes": classes,
        "counts": counts.tolist(),
    }


@lru_cache(maxsize=16)
def _watched(arrow_path: Path, sha256: str) -> Watched:
    """Of a version; its files never change."""
    del sha256
    return Watched(load_model(*map_compiled(arrow_path)))
