"""Files that come with a request: into a data root, whole or not at all."""

import re
from pathlib import Path

import pyarrow.parquet as pq

from service.product.datasets.data_roots import check_roots
from service.product.datasets.datasets import get_dataset, register_dataset
from service.product.datasets.example import TARGET, customers
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest
from service.workspace import Workspace
from storage.datasets.datasets import Dataset
from storage.errors import NotFound
from storage.files.workspace_layout import publish
from storage.names import checked_name

FOLDER = "uploads"
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,127}")
EXAMPLE, EXAMPLE_ROWS = "customers", 4_000


def upload_folder(workspace: Workspace) -> Path | None:
    """Where uploaded files go: below the first data root that is a folder; without keys and roots, in the workspace; or nowhere."""
    settings = workspace.settings
    roots = [root for root in settings.data_roots if "://" not in root]
    if not roots and (settings.data_roots or settings.needs_keys):
        return None
    return Path(roots[0] if roots else settings.workspace).absolute() / FOLDER


def upload_place(workspace: Workspace, name: str, file: str) -> Path:
    """Where the file of a data set is to be uploaded; InvalidName, or InvalidRequest without a folder that may be read."""
    checked_name("dataset", name)
    if not FILE.fullmatch(file):
        raise InvalidRequest(
            f"{file!r} is no name for a file here: use letters, digits, '.', '_', '-' and spaces, at most 128, and begin with a "
            "letter or digit.",
            field="file",
        )
    folder, settings = upload_folder(workspace), workspace.settings
    if folder is None:
        raise InvalidRequest(
            "There is no folder for uploaded files: FEWPASS_DATA_ROOTS names none on this machine. Add one, "
            "as in FEWPASS_DATA_ROOTS='[\"/data/tables\"]'."
        )
    place = folder / name / file
    check_roots([str(place)], settings)
    return place


def load_example(workspace: Workspace) -> Dataset:
    """Register the example's table, written if it is not there; repeated, nothing changes. InvalidRequest, Conflict."""
    try:
        return get_dataset(workspace, EXAMPLE)
    except NotFound:
        place = upload_place(workspace, EXAMPLE, f"{EXAMPLE}.parquet")
    if not place.exists():
        with publish(place) as draft:
            pq.write_table(customers(EXAMPLE_ROWS, 1), draft)
    request = DatasetRequest(name=EXAMPLE, uris=[str(place)], target=TARGET)
    return register_dataset(workspace, request, is_remote=True)
