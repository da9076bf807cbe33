"""Deletion of versions and whole models, with their files."""

from typing import TYPE_CHECKING

from service.jobs.steps import LOCAL, owning_job
from service.product.datasets.dataset_statistics import DATA, remove_dataset_statistics
from service.product.versions.registry import retention_of
from service.requests.problems import Conflict
from service.workspace import Workspace
from storage.errors import NotFound
from storage.files.workspace_layout import delete_model_files
from storage.models import removal
from storage.models.model_versions import ModelVersion
from storage.monitoring.monitoring_files import MonitoringFiles

if TYPE_CHECKING:
    from service.jobs.queue import Job, JobQueue


def delete_version(workspace: Workspace, name: str, version: int) -> None:
    """Delete a version and its files; refused while an alias points to it."""
    delete_model_files(removal.delete_model_version(workspace.control, name, version).duckdb_path)
    MonitoringFiles(workspace.layout.root, name).remove(version)


def delete_model(workspace: Workspace, name: str) -> list[int]:
    """Delete a model's versions with their files, its aliases and history; return the versions. Conflict while a job
    works on it.
    """
    busy = [job.id for job in _queue(workspace).unfinished() if _model_and_version(job)[0] == name]
    if busy:
        raise Conflict(f"Job {busy[0]} is using {name!r}. Wait until it ends, or cancel it.", job=busy[0])
    gone = removal.delete_model(workspace.control, name)
    for version in gone:
        delete_model_files(version.duckdb_path)
    remove_dataset_statistics(workspace.layout.model_directory(name) / DATA)
    MonitoringFiles(workspace.layout.root, name).remove()
    return [version.version for version in gone]


def prune_model_versions(
    workspace: Workspace, name: str, keep: int | None = None, *, job_id: str | None = None
) -> list[int]:
    """Delete all but the newest `keep` versions with their files, by default the retention; return the deleted
    versions.

    Versions with an alias stay, and so do those that an unfinished job created or names, since it may be comparing or
    promoting them. The job `job_id`, which prunes, needs its own no more.
    """
    if keep is None:
        keep = retention_of(workspace, name)
    if keep is None:
        return []
    named = _named_by_jobs(workspace, name)

    def is_spared(version: ModelVersion) -> bool:
        owner = owning_job(version.job_id or "")
        return version.version in named or (owner != owning_job(job_id or "") and _is_unfinished(workspace, owner))

    gone = removal.delete_unretained_versions(workspace.control, name, keep, is_spared)
    for version in gone:
        delete_model_files(version.duckdb_path)
        MonitoringFiles(workspace.layout.root, name).remove(version.version)
    return [version.version for version in gone]


def _is_unfinished(workspace: Workspace, job_id: str) -> bool:
    # Asked after the version was seen: its job is older than it, and one that has ended never goes on.
    if not job_id or job_id.startswith(LOCAL):
        return False
    try:
        return not _queue(workspace).get(job_id).is_finished
    except NotFound:
        return False


def _named_by_jobs(workspace: Workspace, name: str) -> set[int]:
    """Return the versions that unfinished jobs name by number, such as "name@3"."""
    references = map(_model_and_version, _queue(workspace).unfinished())
    return {int(number) for model, number in references if model == name and number.isdecimal()}


def _queue(workspace: Workspace) -> "JobQueue":
    from service.jobs.queue import job_queue  # takes half a second, which a command that trains should not wait for

    return job_queue(workspace)


def _model_and_version(job: "Job") -> tuple[str, str]:
    """Return the model of a job, and its version if the job names one."""
    model, _, version = str(job.request.get("model")).partition("@")
    return model, version
