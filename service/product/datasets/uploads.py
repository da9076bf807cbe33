"""Uploaded files: where they are stored, how many bytes they may have together, and their removal."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from learners.passes.sources.lake.snapshots import METADATA
from service.product.audit import record_audit_act
from service.product.datasets.data_sources import check_data_roots
from service.requests.problems import InvalidRequest, QuotaExceeded
from service.workspace import Workspace
from storage.errors import NotFound
from storage.files.atomic_files import (
    delete_abandoned_drafts,
    disk_errors_as_unwritable,
    exclusive_file_lock,
    fsync_directory,
)
from storage.files.workspace_layout import checked_resource_name, is_valid_name

FOLDER = "uploads"
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,127}")
LEAST_BYTES = 4096  # that a file counts for: many empty files fill a disk, too


def upload_folder(workspace: Workspace) -> Path | None:
    """Return the upload folder: below the first data root that is a folder; in the workspace without keys and roots;
    else None.
    """
    settings = workspace.settings
    roots = [root for root in settings.data_roots if "://" not in root]
    if not roots and (settings.data_roots or settings.needs_keys):
        return None
    return Path(roots[0] if roots else settings.workspace).absolute() / FOLDER


def dataset_upload_path(workspace: Workspace, name: str, file: str) -> Path:
    """Return the path for an upload to a data set; InvalidName, or InvalidRequest without a readable folder."""
    checked_resource_name("dataset", name)
    if name == METADATA:
        raise InvalidRequest(
            f"Uploads cannot go to a data set {METADATA!r}: a folder of that name marks an Iceberg table. Use another name.",
            field="name",
        )
    if not FILE.fullmatch(file):
        raise InvalidRequest(
            f"{file!r} is not a valid file name: use letters, digits, '.', '_', '-' and spaces, at most 128, and start with a letter or digit.",
            field="file",
        )
    folder, settings = upload_folder(workspace), workspace.settings
    if folder is None:
        raise InvalidRequest(
            "Uploaded files have no folder: FEWPASS_DATA_ROOTS names none on this machine. Add one, such as FEWPASS_DATA_ROOTS='[\"/data/tables\"]'."
        )
    place = folder / name / file
    check_data_roots([str(place)], settings)
    return place


def reserve_upload_space(workspace: Workspace, draft: Path, least: int, most: int) -> int:
    """Reserve between `least` and `most` bytes for the draft of an upload, and return how many; QuotaExceeded if the
    uploaded files would exceed the quota.

    The draft is extended to the size reserved, so that concurrent uploads count it, in whichever process they are.
    """
    folder, quota = upload_folder(workspace), workspace.settings.upload_quota_bytes
    if quota is None or folder is None:
        return most
    with exclusive_file_lock(folder / FOLDER):
        n_free = quota - sum(_sizes(folder, without=draft))
        if least > n_free and delete_abandoned_drafts(folder):  # of killed processes
            n_free = quota - sum(_sizes(folder, without=draft))
        if max(least, LEAST_BYTES) > n_free:
            raise QuotaExceeded(
                f"The file needs {least:,} bytes, and the uploaded files leave {max(n_free, 0):,} of {quota:,} "
                "(FEWPASS_UPLOAD_QUOTA_BYTES). Delete some: DELETE /v1/datasets/NAME/files/FILE.",
                quota_bytes=quota,
                free_bytes=max(n_free, 0),
            )
        n_bytes = min(most, n_free)
        with disk_errors_as_unwritable(draft):
            os.truncate(draft, n_bytes)
    return n_bytes


def _sizes(folder: Path, without: Path) -> Iterator[int]:
    """Yield the bytes for which each file below a folder counts, drafts included; files that vanish do not count."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                size = path.lstat().st_size
            except FileNotFoundError:
                continue
            if path != without and path.parent != folder:  # the lock is right below it
                yield max(size, LEAST_BYTES)


def record_upload(workspace: Workspace, name: str, file: str, n_bytes: int) -> None:
    """Record the upload of a file to a data set in the audit log."""
    record_audit_act(workspace, "file uploaded", f"{name}/{file}", bytes=n_bytes)


def delete_upload(workspace: Workspace, name: str, file: str) -> None:
    """Delete an uploaded file, NotFound if there is none; data sets that name it stay, and name a missing file."""
    if not is_valid_name(name) or not FILE.fullmatch(file):
        raise NotFound("uploaded file", f"{name}/{file}")
    place = dataset_upload_path(workspace, name, file)
    if place.is_symlink() or not place.is_file():
        raise NotFound("uploaded file", f"{name}/{file}")
    with disk_errors_as_unwritable(place):
        n_bytes = place.stat().st_size
        place.unlink()
        fsync_directory(place.parent)
    record_audit_act(workspace, "file deleted", f"{name}/{file}", bytes=n_bytes)
