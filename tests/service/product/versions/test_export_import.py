"""Models that come in as files of somebody else: what kernels would follow astray is refused before anything is kept."""

import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from service import product
from service.requests.problems import InvalidRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import NotFound
from storage.files.atomic_files import sha256_of_file
from storage.models.bundle import check_decoded_model_size
from storage.models.model_file import read_model_file, write_model
from tests.service.asking import learned
from tests.support.product import parts_of, rebuilt


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, weather_files):
    with Workspace(Settings(workspace=tmp_path_factory.mktemp("import") / "workspace")) as workspace:
        for name, learner, target in (("lookup", "tan", "class"), ("joint", "spn", None)):
            learned(workspace, weather_files[0], name, learner, target, holdout=0)
        yield workspace


def bundle_with(workspace, folder, name, **arrays):
    """An export of which some arrays are others, with all checksums as they should be."""
    bundle = folder / "bundle.tar"
    product.write_export(workspace, "lookup", bundle, replace=True)
    manifest, _ = parts_of(bundle)
    header, written = read_model_file(product.find_version(workspace, "lookup").duckdb_path)
    files = write_model(folder / name, "made-up", 1, header, written | arrays, {})
    bundle.write_bytes(rebuilt(manifest | {"sha256": files.sha256}, files.duckdb_path.read_bytes()))
    return bundle


def test_a_model_whose_arrays_lead_elsewhere_is_refused_by_their_name(workspace, tmp_path):
    _, arrays = read_model_file(product.find_version(workspace, "lookup").duckdb_path)
    assert "table_dense_starts" not in arrays  # compiled here, from arrays that are looked at
    for name, change in (("tree_n_cells", -1), ("tree_branch", 99), ("tree_levels", 10**9)):
        other = (arrays[name].astype(np.int64) + change).astype(arrays[name].dtype)
        bundle = bundle_with(workspace, tmp_path, name, **{name: other})
        with pytest.raises(InvalidRequest, match=r"Nothing was imported.*Array 'tree_\w+' of the model"):
            product.import_version(workspace, bundle, "bad")
    with pytest.raises(NotFound, match="There is no"):
        product.find_version(workspace, "bad")
    assert product.import_version(workspace, bundle_with(workspace, tmp_path, "sound"), "good").version == 1


def test_a_model_without_classes_is_imported_and_answers(workspace, tmp_path):
    product.write_export(workspace, "joint", tmp_path / "joint.tar")
    product.import_version(workspace, tmp_path / "joint.tar", "copy")
    ours, theirs = (read_model_file(product.find_version(workspace, name).duckdb_path) for name in ("joint", "copy"))
    assert ours[0] == theirs[0] and all(np.array_equal(ours[1][name], theirs[1][name]) for name in ours[1])


def export(workspace, folder):
    """The manifest and the model of an export, and where a changed one may be written."""
    product.write_export(workspace, "lookup", folder / "bundle.tar")
    return *parts_of(folder / "bundle.tar"), folder / "bundle.tar"


def assert_refused(workspace, bundle, manifest, model, words):
    bundle.write_bytes(rebuilt(manifest, model))
    with pytest.raises(InvalidRequest, match=f"Nothing was imported: .*{words}"):
        product.import_version(workspace, bundle, "bad")


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("tags", {"half": "\ud800"}, "manifest cannot be read"),
        ("files", [{"uri": "\ud800"}], "manifest cannot be read"),
        ("parameters", {"m": float("inf")}, "manifest cannot be stored"),
    ],
)
def test_a_manifest_that_no_answer_could_hold_is_refused(workspace, tmp_path, member, value, words):
    manifest, model, bundle = export(workspace, tmp_path)
    assert_refused(workspace, bundle, manifest | {member: value}, model, words)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE header SET json = NULL", "its header has changed since it was written. Restore it from a backup"),
        ("UPDATE header SET json = '{', sha256 = sha256('{')", "header is not JSON"),
        ("UPDATE provenance SET value = '{'", "provenance cannot be read"),
        (
            "UPDATE libraries SET version = NULL",
            "'libraries' does not contain names and texts. Restore it from a backup",
        ),
    ],
)
def test_a_file_whose_tables_are_others_is_refused(workspace, tmp_path, statement, words):
    manifest, content, bundle = export(workspace, tmp_path)
    model = tmp_path / "model.duckdb"
    model.write_bytes(content)
    with duckdb.connect(str(model)) as connection:
        connection.execute(statement)
    assert_refused(workspace, bundle, manifest | {"sha256": sha256_of_file(model)}, model.read_bytes(), words)


SIZE = "INSERT INTO arrays SELECT * REPLACE ({} AS n_bytes) FROM arrays LIMIT 1"
NINE_TIMES = "INSERT INTO arrays SELECT a.* REPLACE (16_000_000 AS n_bytes) FROM (FROM arrays LIMIT 1) AS a, range(9)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("CREATE TABLE extra AS SELECT 1 AS one FROM range(5_000_000)", "tables up to 'extra' take 80,"),
        (
            "INSERT INTO provenance SELECT 'x', repeat('y', 1000) FROM range(20_000)",
            "tables up to 'provenance' take 20,",
        ),
        ("CREATE TABLE extra AS SELECT repeat('y', 1000) AS text FROM range(20_000)", "tables up to 'extra' take 20,"),
        ("CREATE TABLE extra AS SELECT range(5_000_000) AS list", "tables up to 'extra' take"),
        (SIZE.format(1_000_000_000_000), "from 0 to 16,777,216"),
        (SIZE.format(-1), "from 0 to 16,777,216"),
        (NINE_TIMES, "tables up to 'arrays' take 144,"),
    ],
)
def test_a_model_that_unpacks_to_much_is_refused_before_it_is_read(tmp_path, change, words):
    with Workspace(Settings(workspace=tmp_path / "workspace", max_model_bytes=16 << 20)) as workspace:
        header, arrays = {"format": "any"}, {"a": np.zeros(1000)}
        files = write_model(tmp_path, "made-up", 1, header, arrays, {"provenance": pa.table({"n": ["a"], "v": ["b"]})})
        draft = tmp_path / "model.duckdb"
        draft.write_bytes(files.duckdb_path.read_bytes())
        assert 8000 <= check_decoded_model_size(draft, 16 << 20) < 16_000
        with duckdb.connect(str(draft)) as connection:
            connection.execute(change)
        assert draft.stat().st_size < 8 << 20
        told = {"format": "fewpass-model", "format_version": 1, "name": "m", "version": 1, "learner": "nb"}
        told |= {"parameters": {}, "dataset": None, "metrics": {}, "files": [], "n_rows": 1, "tags": {}}
        told |= {"sha256": sha256_of_file(draft)}
        assert_refused(workspace, tmp_path / "bundle.tar", told, draft.read_bytes(), re.escape(words))
