"""Backup and restore of a workspace: a snapshot of the control database, then the files that it names.

The order makes a copy complete while servers and jobs run: a file is published before its row and removed after it,
so every file that the copied database names existed when it was copied.
"""

import errno
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from service.requests.problems import Conflict, InvalidRequest
from service.version import VERSION
from service.workspace import Workspace
from storage.control.control import Control, open_control
from storage.control.paging import iterate_page_items
from storage.control.sqlite import control_integrity_errors, copy_control_database
from storage.errors import CorruptFile, Unwritable
from storage.files.atomic_files import (
    draft_path_beside,
    publish_draft_folder,
    read_manifest,
    sha256_of_file,
    verify_file_sha256,
    visible_files_below,
    write_file_atomically,
)
from storage.files.workspace_layout import Layout, world_readable_paths
from storage.models import model_versions
from storage.models.model_versions import ModelVersion

MANIFEST = "MANIFEST.sha256"
ABOUT = "backup.json"
FOLDERS = ("models", "datasets", "uploads", "receipts")
ATTEMPTS = 3


@dataclass(frozen=True)
class Backup:
    """Contents of a backup, or of a workspace restored from one."""

    path: str
    n_files: int
    n_bytes: int
    n_versions: int
    has_control: bool
    created_at: str


def back_up_workspace(workspace: Workspace, target: Path) -> Backup:
    """Copy a workspace to a new folder or .tar file and check every byte; Conflict if it exists, CorruptFile for a
    damaged model.
    """
    target = target.absolute()
    if target.exists():
        raise Conflict(f"{target} already exists. Name a new folder, or a new file ending in .tar.", path=str(target))
    if target.is_relative_to(workspace.layout.root):
        raise InvalidRequest(f"{target} is inside the workspace. Name a folder outside it.", path=str(target))
    with draft_path_beside(target) as draft:
        done = _collect(workspace, draft, target)
        if target.suffix == ".tar":
            with write_file_atomically(target, mode=0o400) as file, tarfile.open(file, "w") as archive:
                archive.add(draft, arcname=".")
        else:
            publish_draft_folder(draft, target)
    return done


def _collect(workspace: Workspace, folder: Path, target: Path) -> Backup:
    has_control = workspace.settings.control_url is None
    for attempt in range(1, ATTEMPTS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        if has_control:
            copy_control_database(workspace.layout.control_path, folder / "control.sqlite")
        named = _versions(folder) if has_control else list(all_model_versions(workspace.control))
        files = _copy_files(workspace.layout, folder)
        missing = [v for v in named if not (folder / _relative(workspace.layout, folder, v.duckdb_path)).exists()]
        if not missing:
            break
        if attempt == ATTEMPTS:  # deleted while we copied, three times: rather a file that is gone for good
            raise CorruptFile(missing[0].duckdb_path, "it is missing. Delete the version, or restore it from a backup.")
    for version in named:
        copied = folder / _relative(workspace.layout, folder, version.duckdb_path)
        verify_file_sha256(copied, version.sha256)
        manifest = read_manifest(copied.with_suffix(".sha256"))
        verify_file_sha256(copied.with_suffix(".arrow"), manifest.get(copied.with_suffix(".arrow").name, ""))
    if has_control:
        files.append(folder / "control.sqlite")
    n_bytes = sum(file.stat().st_size for file in files)
    done = Backup(str(target), len(files), n_bytes, len(named), has_control, created_at)
    about = msgspec.json.encode({"fewpass": VERSION, **vars(done)})
    (folder / ABOUT).write_bytes(about)
    hashes = {str(file.relative_to(folder)): sha256_of_file(file) for file in [*files, folder / ABOUT]}
    (folder / MANIFEST).write_text("".join(f"{sha256}  {name}\n" for name, sha256 in sorted(hashes.items())))
    return done


def _copy_files(layout: Layout, folder: Path) -> list[Path]:
    """Copy all published files; drafts in hidden folders are skipped, and files that vanish meanwhile were deleted."""
    copied = []
    for name in FOLDERS:
        for source in visible_files_below(layout.root / name):
            target = folder / source.relative_to(layout.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy2(source, target)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Unwritable(target, f"{error.strerror}. Free the disk, then try again.") from error
            copied.append(target)
    return copied


def _relative(layout: Layout, folder: Path, path: Path) -> Path:
    return path.relative_to(folder if path.is_relative_to(folder) else layout.root)


def _versions(root: Path) -> list[ModelVersion]:
    with open_control(f"sqlite:///{root / 'control.sqlite'}", root) as control:
        return list(all_model_versions(control))


def all_model_versions(control: Control) -> Iterator[ModelVersion]:
    """Yield every version of every model."""
    for model in iterate_page_items(partial(model_versions.list_models, control)):
        yield from iterate_page_items(partial(model_versions.list_model_versions, control, model.name))


def restore_workspace(source: Path, root: Path) -> Backup:
    """Create a workspace from a backup after checking every byte of it; an existing workspace is never touched.

    Raises Conflict if the workspace exists and is not empty; CorruptFile if the backup is not whole, names a file that is
    not in it, or holds a link or file that its manifest does not name.
    """
    root = root.absolute()
    if root.exists() and any(root.iterdir()):
        raise Conflict(f"{root} is not empty. Move it away, or restore to a new folder.", path=str(root))
    with draft_path_beside(root) as folder:
        _unpack(source, folder)
        manifest = read_manifest(folder / MANIFEST)
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (path.is_dir() or name in manifest or name == MANIFEST):
                raise CorruptFile(source, f"it holds {name!r}, which its manifest does not name. Remove that from it.")
        for name, sha256 in manifest.items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise CorruptFile(folder / MANIFEST, f"it names {name!r}. Use another backup.")
            verify_file_sha256(folder / name, sha256)
        try:
            about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=Backup)
        except (msgspec.DecodeError, OSError, RecursionError) as error:
            raise CorruptFile(folder / ABOUT, f"{error}. Use another backup.") from error
        if about.has_control:
            damages = control_integrity_errors(folder / "control.sqlite")
            if damages:
                raise CorruptFile(folder / "control.sqlite", f"{damages[0]}. Use another backup.")
            _check_named(folder, manifest)
        for name in (MANIFEST, ABOUT):
            (folder / name).unlink()
        folder.chmod(0o700)
        for path in world_readable_paths(folder):  # earlier releases left them so
            path.chmod(0o600)
        publish_draft_folder(folder, root)
    Layout(root).create()
    return replace(about, path=str(root))


def _check_named(folder: Path, manifest: dict[str, str]) -> None:
    """Check that the backup holds each model that its database names, with the same hash."""
    for version in _versions(folder):
        name = version.duckdb_path.relative_to(folder).as_posix()
        if manifest.get(name) != version.sha256:
            reason = f"it names {version.name}@{version.version}, which the backup lacks. Use another backup."
            raise CorruptFile(folder / "control.sqlite", reason)


def _unpack(source: Path, folder: Path) -> None:
    """Unpack a private copy of a backup on the file system of the workspace, so that one rename publishes it."""
    if not source.exists():
        raise InvalidRequest(f"No backup found at {source}.", path=str(source))
    if source.is_dir():
        try:
            shutil.copytree(source, folder, symlinks=True)  # or a link would bring in what it leads to
        except shutil.Error as error:  # it holds what copying the files has raised
            path, _, reason = error.args[0][0]
            raise Unwritable(folder, f"{path} cannot be copied: {reason}. Free the disk, then try again.") from error
        return
    folder.mkdir()
    try:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        reason = str(error).partition(":\n")[0]  # without what each method of unpacking says
        raise CorruptFile(source, f"{reason}. Use another backup.") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EFBIG):
            raise Unwritable(folder, f"{error.strerror}. Free the disk, then try again.") from error
        raise CorruptFile(source, f"{error}. Use another backup.") from error
