"""`fewpass doctor`: check everything a workspace depends on, and suggest remedies."""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from learners.kernels.cache import kernel_cache_folder, untrusted_cache_reason
from learners.registry.model_kinds import add_derived_arrays
from learners.wording import count_with_noun
from service import product
from service.http.security import check_api_keys_exist
from service.jobs.worker_leases import worker_crew_status
from service.operations.backup import all_model_versions
from service.requests.problems import KeyNeeded
from service.serving.predictor import map_model_version, training_command, translate_model_errors, warm_up_served_model
from service.settings import Settings
from service.workspace import Workspace
from storage.control.migrations import HEAD
from storage.control.paging import iterate_page_items
from storage.control.sqlite import control_database_revision, control_integrity_errors
from storage.errors import CorruptFile, NotFound, OutdatedModel, StorageError
from storage.files.atomic_files import delete_abandoned_drafts, visible_files_below
from storage.files.workspace_layout import world_readable_paths
from storage.models.model_file import rebuild_compiled, verify_model_files
from storage.models.model_versions import ModelVersion, abandoned_version_files

LITTLE_SPACE = 2**30
NO_SPACE = 100 * 2**20
CLOCK_S = 60.0
MOST_FAULTS = 10

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """Result of one check; `remedy` is empty if there is nothing to do."""

    check: str
    state: State
    detail: str
    remedy: str = ""


def run_doctor_checks(settings: Settings, *, is_repairing: bool = False) -> list[Finding]:
    """Run all checks; nothing is changed unless `is_repairing`, and then only files that can be rebuilt.

    That is: damaged compiled forms from their DuckDB files; drafts of dead writers and files of no version are removed.
    """
    root = settings.workspace.absolute()
    findings = list(_folder(root))
    if any(finding.state == "failed" for finding in findings):
        return findings
    findings += _control_file(settings, root)
    findings += _kernels()
    if any(finding.state == "failed" and finding.check == "control database" for finding in findings):
        return findings
    try:
        with Workspace(settings) as workspace:
            of_files = _models(workspace, is_repairing), _rules(workspace), _notes(workspace), _uploads(workspace)
            of_service = (
                _drafts(root, is_repairing),
                _audit(workspace),
                _clock(workspace),
                _workers(workspace),
                _door(workspace),
            )
            for group in (*of_files, *of_service):
                findings += group
    except StorageError as error:
        findings.append(
            Finding("control database", "failed", str(error), "Solve the problems above, then run the doctor again.")
        )
    return findings


def _folder(root: Path) -> Iterator[Finding]:
    if not root.is_dir():
        yield Finding(
            "workspace",
            "failed",
            f"The folder {root} does not exist.",
            "Name another folder with --workspace, or train a model there.",
        )
        return
    probe = root / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        remedy = f"Give the user {os.getuid()} write permission; remount the disk if it is read-only."
        yield Finding("workspace", "failed", f"{root} cannot be written: {error.strerror}.", remedy)
    else:
        yield Finding("workspace", "ok", f"{root} can be written.")
    yield _permissions(root)
    free = shutil.disk_usage(root).free
    state: State = "failed" if free < NO_SPACE else "warning" if free < LITTLE_SPACE else "ok"
    remedy = (
        "" if state == "ok" else "Free the disk: delete old versions (fewpass models delete), or move the workspace."
    )
    yield Finding("disk space", state, f"{free / 2**30:,.1f} GiB free.", remedy)


def _permissions(root: Path) -> Finding:
    exposed = list(world_readable_paths(root))
    if not exposed:
        return Finding(
            "permissions", "ok", "No other user of this machine may enter the workspace or read its secrets."
        )
    what = "write in" if root.stat().st_mode & stat.S_IWOTH else "read"
    others = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
    detail = f"Every user of this machine may {what} {exposed[0]}{others}: rows, models and hashes of keys."
    return Finding("permissions", "warning", detail, f"chmod -R o-rwx {root}")


def _control_file(settings: Settings, root: Path) -> Iterator[Finding]:
    path = root / "control.sqlite"
    if settings.control_url is not None:
        yield Finding(
            "control database",
            "ok",
            "It is outside the workspace (FEWPASS_CONTROL_URL): use the tools of that database.",
        )
        return
    if not path.exists():
        yield Finding("control database", "ok", "Not created yet.")
        return
    if damages := control_integrity_errors(path):
        remedy = "Stop fewpass, move the workspace away, and restore the newest backup: fewpass restore."
        yield Finding("control database", "failed", f"{path} is damaged: {damages[0]}.", remedy)
        return
    revision = control_database_revision(path)
    if revision is not None and revision > HEAD:
        remedy = "Run the release that wrote it, or a later one."
        yield Finding(
            "migrations", "failed", f"The tables have revision {revision}; this release knows up to {HEAD}.", remedy
        )
    else:
        detail = f"The tables have revision {revision}" + (
            "." if revision == HEAD else f"; opening the workspace migrates them to {HEAD}."
        )
        yield Finding("migrations", "ok", detail)
    yield Finding("control database", "ok", "Pages, indexes and references are intact.")


def _kernels() -> Iterator[Finding]:
    folder = kernel_cache_folder()
    why = untrusted_cache_reason(folder) if folder.is_dir() else None
    if why is not None:
        remedy = f"Remove {folder} so that this user creates it again, or set NUMBA_CACHE_DIR to a folder that only this user can write."
        yield Finding(
            "compiled kernels", "warning", f"Not loaded, because {why}: cached code would run as this user.", remedy
        )
        return
    n_kernels = len(list(visible_files_below(folder)))
    if n_kernels:
        yield Finding("compiled kernels", "ok", f"{count_with_noun(n_kernels, 'file')} cached in {folder}.")
        return
    remedy = "Set NUMBA_CACHE_DIR to a folder that this user can write, or accept that each start takes up to a minute."
    yield Finding("compiled kernels", "warning", f"None cached in {folder}: each start compiles them.", remedy)


def _models(workspace: Workspace, is_repairing: bool) -> Iterator[Finding]:
    n_sound = 0
    for version in all_model_versions(workspace.control):
        name = f"{version.name}@{version.version}"
        try:
            verify_model_files(version.duckdb_path)
            warm_up_served_model(map_model_version(version))  # whole files of an older release may make no model
        except CorruptFile as error:
            if _is_registered(workspace, version):  # and was not deleted meanwhile
                yield _mended(name, version, error, is_repairing)
        else:
            n_sound += 1
    yield Finding("models", "ok", f"{count_with_noun(n_sound, 'version')} verified byte for byte and loaded.")
    orphans = abandoned_version_files(workspace.control, workspace.layout, is_removing=is_repairing)
    left = [path for path in orphans if path.exists()]
    if len(left) < len(orphans):
        yield Finding(
            "orphans", "ok", f"Removed {count_with_noun(len(orphans) - len(left), 'file')} that belonged to no version."
        )
    if left:
        detail = f"{count_with_noun(len(left), 'file')} without a version, such as {left[0]}."
        remedy = "fewpass doctor --repair removes those that a crash of fewpass left."
        yield Finding("orphans", "warning", detail, remedy)


def _is_registered(workspace: Workspace, version: ModelVersion) -> bool:
    try:
        product.find_version(workspace, f"{version.name}@{version.version}")
    except NotFound:
        return False
    return True


def _mended(name: str, version: ModelVersion, error: CorruptFile, is_repairing: bool) -> Finding:
    if is_repairing:
        try:
            with translate_model_errors(version):
                rebuild_compiled(version.duckdb_path, add_derived_arrays)
            map_model_version(version)
        except (StorageError, OSError):
            pass
        else:
            return Finding("models", "ok", f"{name}: rebuilt the compiled form ({error}).")
    if isinstance(error, OutdatedModel):
        remedy = f"{training_command(version)}; then fewpass models delete {name}."
        return Finding("models", "failed", str(error), remedy)
    remedy = (
        "fewpass doctor --repair rebuilds a damaged .arrow from its .duckdb. If the .duckdb is damaged, move the alias "
        f"to another version, then fewpass models delete {name}, or restore a backup."
    )
    return Finding("models", "failed", f"{name}: {error}", remedy)


def _rules(workspace: Workspace) -> Iterator[Finding]:
    damaged = product.damaged_forgetting_rules(workspace)
    for error in damaged:
        remedy = "Restore the file from a backup, or forget the rows again. Until then trainings fail."
        yield Finding("rules of forgotten rows", "failed", str(error), remedy)
    if not damaged:
        yield Finding("rules of forgotten rows", "ok", "All rules are present.")


def _notes(workspace: Workspace) -> Iterator[Finding]:
    damaged = product.damaged_dataset_notes(workspace)
    for error in damaged:
        remedy = (
            "Remove the file: the next training counts again. Without columns.json, a data set takes its column order from its first "
            "file; restore the file from a backup to keep the order."
        )
        yield Finding("notes", "warning", str(error), remedy)
    if not damaged:
        yield Finding("notes", "ok", "Notes on data files and running jobs are intact.")


def _uploads(workspace: Workspace) -> Iterator[Finding]:
    folder = product.upload_folder(workspace)
    files = [] if folder is None else list(visible_files_below(folder))
    where = f"{count_with_noun(len(files), 'file')} in {folder}"
    if files and folder is not None and not folder.is_relative_to(workspace.layout.root):
        yield Finding("uploads", "ok", f"{where}, outside the workspace: back up that folder separately.")
    elif files:
        yield Finding("uploads", "ok", f"{where}, included in backups.")
    for name, uri in _lost_uploads(workspace):
        detail = f"The uploaded file {uri} of data set {name!r} does not exist."
        yield Finding(
            "uploads", "warning", detail, f"Restore the file, or register the data set with the file in {folder}."
        )


def _lost_uploads(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield data sets with uploaded files that are missing, as after a restore to another folder."""
    for dataset in iterate_page_items(partial(product.list_datasets, workspace)):
        for uri in dataset.uris:
            is_file = not ("://" in uri or set("*?[") & set(uri))
            if is_file and Path(uri).parts[-3:-1] == ("uploads", dataset.name) and not Path(uri).exists():
                yield dataset.name, uri


def _drafts(root: Path, is_repairing: bool) -> Iterator[Finding]:
    if is_repairing:
        removed = [
            path for folder in ("models", "datasets", "scratch") for path in delete_abandoned_drafts(root / folder)
        ]
        yield Finding("drafts", "ok", f"Removed {count_with_noun(len(removed), 'draft')} of crashed writers.")


def _audit(workspace: Workspace) -> Iterator[Finding]:
    faults = product.audit_log_faults(workspace)
    for fault in faults[:MOST_FAULTS]:
        remedy = "Find out who wrote to the control database; a backup has the original log."
        yield Finding("audit log", "failed", fault, remedy)
    if not faults:
        yield Finding("audit log", "ok", "No entry was changed or removed.")


def _clock(workspace: Workspace) -> Iterator[Finding]:
    newest = max((v.created_at.timestamp() for v in all_model_versions(workspace.control) if v.created_at), default=0.0)
    if newest > time.time() + CLOCK_S:
        ahead = f"The newest version was created {newest - time.time():,.0f} s in the future."
        yield Finding("clock", "warning", ahead, "Set the clock of this machine (NTP): schedules and expiry follow it.")
    else:
        yield Finding("clock", "ok", "No version was created in the future.")


def _workers(workspace: Workspace) -> Iterator[Finding]:
    crew = worker_crew_status(workspace)
    if crew.problem is not None:
        yield Finding("jobs" if crew.alive else "workers", "warning", *crew.problem)
    if crew.alive or crew.problem is None:
        n_workers, n_waiting = count_with_noun(len(crew.alive), "worker"), count_with_noun(crew.n_waiting, "job")
        yield Finding("workers", "ok", f"{n_workers} running, {n_waiting} waiting.")


def _door(workspace: Workspace) -> Iterator[Finding]:
    try:
        check_api_keys_exist(workspace.settings, workspace.control)
    except KeyNeeded as error:
        yield Finding("API keys", "failed", str(error), "Create a key: fewpass keys create admin --role admin.")
        return
    where = "needs" if workspace.settings.needs_keys else "on loopback needs no"
    yield Finding("API keys", "ok", f"A server {where} key.")
