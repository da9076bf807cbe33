"""No file outside the data roots is opened, whatever leads to it, and no error carries its content."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from learners.errors import SourceError
from learners.passes.sources.source import Source
from service import product
from service.jobs.steps import Run, ignore_report
from service.product.datasets.data_sources import open_data_source
from service.product.datasets.uploads import dataset_upload_path
from service.requests.problems import OutsideRoots
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.datasets.dataset_definitions import Dataset, register_dataset
from tests.lake_tables import DeltaHistory, IcebergHistory, WrittenTable
from tests.security.watching import opened_files
from tests.service.asking import learn

SECRET = "daemon-of-nobody"
TABLE = pa.table({"a": [f"{i % 3}" for i in range(12)], "class": ["yes", "no"] * 6})
KINDS = ("csv", "jsonl", "parquet", "feather", "orc", "txt")
OUTSIDE = "outside the folders that this server may read|is a system path"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A root with a model, and a folder outside of it that holds the secret in every format."""
    top = tmp_path_factory.mktemp("places")
    root, outside = top / "root", top / "outside"
    (root / "good").mkdir(parents=True)
    outside.mkdir()
    pq.write_table(TABLE, root / "good" / "a.parquet")
    secret = pa.table({"a": [SECRET] * 12, "class": ["yes", "no"] * 6})
    (outside / "z.csv").write_text(f"{SECRET}/x\n1/2/{SECRET}/3\n")
    (outside / "z.txt").write_text(f"{SECRET}/x\n1/2/{SECRET}/3\n")
    (outside / "z.jsonl").write_text(json.dumps({"a": SECRET}) + f"\n{SECRET}")
    pq.write_table(secret, outside / "z.parquet")
    feather.write_feather(secret, outside / "z.feather")
    orc.write_table(secret, outside / "z.orc")
    with Workspace(Settings(workspace=top / "workspace", data_roots=(str(root),))) as workspace:
        learn(workspace, root / "good", "known", learner="nb", target="class")
        yield workspace, root, outside


def laid_out(root, outside, number):
    """A folder below the root with links that lead out of it in one of many ways; the URIs that reach them, and options."""
    rng = random.Random(number)
    top = root / f"layout-{number}"
    folder = top.joinpath(*(rng.choice(["x", "y=1", "deep"]) for _ in range(rng.randrange(3))))
    folder.mkdir(parents=True)
    kind = rng.choice(KINDS)
    name = f"z.{kind}"
    how = rng.choice(["file", "folder", "chain", "relative", "above", "good beside", "loop"])
    if how in {"file", "good beside", "loop"}:
        (folder / name).symlink_to(outside / name)
    elif how == "chain":
        (folder / "one").symlink_to(outside / name)
        (folder / name).symlink_to(folder / "one")
    elif how == "relative":
        (folder / name).symlink_to(os.path.relpath(outside / name, folder))
    elif how == "folder":
        (folder / "within").symlink_to(outside)
    else:
        (folder / "within").symlink_to(os.path.relpath(outside.parent, folder))
    if how == "loop":
        (folder / "again").symlink_to(folder)
    if how == "good beside":
        pq.write_table(TABLE, folder / "a.parquet")
    below = {"folder": f"within/{name}", "above": f"within/outside/{name}"}.get(how, name)
    uris = [
        f"{folder}/{below}",
        f"{folder}/{Path(below).parent}/z.*",
        f"{folder}/{Path(below).parent}/[yz].{kind}",
        f"{top}/**",
    ]
    if how in {"file", "chain", "relative"} and kind != "txt":
        uris.append(str(folder))
    uri = rng.choice(uris)
    return f"file://{uri}" if rng.random() < 0.2 and "*" not in uri else uri, {"*": {"delimiter": rng.choice("/:,")}}


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_no_layout_of_links_leads_out_of_the_roots(places, first):
    workspace, root, outside = places
    with opened_files(outside) as opened:
        for number in range(first, first + 25):
            uri, columns = laid_out(root, outside, number)
            with pytest.raises(OutsideRoots, match=OUTSIDE) as refused:
                open_data_source(workspace, [uri], columns=columns)
            assert SECRET not in str(refused.value) and str(outside) not in str(refused.value), uri
    assert opened == []


def link_out(root, outside, name):
    folder = root / name
    folder.mkdir(exist_ok=True)
    if not (folder / "z.parquet").is_symlink():
        (folder / "z.parquet").symlink_to(outside / "z.parquet")
    return str(folder)


@pytest.mark.parametrize("pattern", ["{}", "{}/*.parquet", "{}/**", "{}/z.parquet"])
@pytest.mark.parametrize("kind", ["train", "evaluate", "score", "impute", "schema", "test rows", "retrained"])
def test_every_kind_of_job_looks_where_its_files_lead(places, kind, pattern):
    """Where they led when the job was submitted does not count."""
    workspace, root, outside = places
    uris = [pattern.format(link_out(root, outside, "jobs"))]
    request: dict = {"model": "known", "uris": uris}
    if kind in {"train", "test rows", "retrained"}:
        request = {"model": "m", "learner": "nb", "target": "class", "uris": uris}
    if kind == "test rows":
        request |= {"uris": [f"{root}/good"], "test_uris": uris}
    if kind == "schema":
        name = f"set{len(pattern)}{pattern.count(chr(42))}"
        register_dataset(workspace.control, Dataset(name, tuple(uris), None, {}))
        request = {"dataset": name}
    if kind == "retrained":
        request = {"train": request}
    steps = product.job_steps_by_kind(workspace)
    own = steps[{"test rows": "train", "retrained": "refresh"}.get(kind, kind)]
    receipts: dict = {}
    with opened_files(outside) as opened, pytest.raises(OutsideRoots, match=OUTSIDE):
        for name, step in own.items():
            receipts[name] = step(Run("job-1", request, receipts, ignore_report))
    assert opened == []


@pytest.mark.parametrize("name", ["circuit.json", "circuit.txt"])
def test_a_circuit_is_read_within_the_roots(places, name):
    workspace, root, outside = places
    (outside / name).write_text(SECRET)
    link = root / name
    link.symlink_to(outside / name)
    fields = {"uris": [f"{root}/good"], "learner": "spn", "model": "m", "target": "class"}
    fields["parameters"] = {"structure": "file", "circuit": str(link)}
    with opened_files(outside) as opened:
        with pytest.raises(OutsideRoots, match=OUTSIDE):
            product.submit_job(workspace, TrainRequest(**fields), is_remote=True)
        steps, receipts = product.job_steps_by_kind(workspace)["train"], dict[str, dict]()
        with pytest.raises(OutsideRoots, match=OUTSIDE):
            for step_name, step in steps.items():
                receipts[step_name] = step(Run("job-2", fields | {"holdout": 0.0}, receipts, ignore_report))
    assert opened == []
    link.unlink()


def test_uploads_and_registered_data_sets_stay_within_the_roots(places):
    workspace, root, outside = places
    (root / "uploads").symlink_to(outside)
    with pytest.raises(OutsideRoots, match=OUTSIDE):
        dataset_upload_path(workspace, "name", "file.csv")
    (root / "uploads").unlink()
    request = DatasetRequest(name="linked", uris=[link_out(root, outside, "sets")])
    with opened_files(outside) as opened, pytest.raises(OutsideRoots, match=OUTSIDE):
        product.register_dataset(workspace, request, is_remote=True)
    assert opened == []


# Lake tables


def written_table(folder):
    table = WrittenTable(folder, pa.schema([("a", pa.int64())]))
    table.append("x.parquet", pa.table({"a": [1, 2, 3]}))
    return table


def vector(text, kind="p", **more):
    return {"storageType": kind, "pathOrInlineDv": text, "offset": 0, "sizeInBytes": 200, "cardinality": 2} | more


def add_vector(table, own, escaped=False):
    old = table.adds["x.parquet"]
    added = {"add": old | {"deletionVector": own}}
    table.commit({"remove": {"path": "x.parquet", "dataChange": True, "deletionTimestamp": 1}}, added)
    if escaped:
        log = table.root / "_delta_log" / f"{table.version:020}.json"
        log.write_text(log.read_text().replace("deletionVector", "deletion\\u0056ector"))


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize(
    "own",
    [
        vector("file:///etc/passwd"),
        vector("file://{outside}/z.txt"),
        vector("{outside}/z.txt"),
        vector("file://{table}/../../outside/z.txt"),
        vector("file://{table}/%2e%2e/%2e%2e/outside/z.txt"),
        vector("file://elsewhere{outside}/z.txt"),
        vector("http://127.0.0.1:1/x"),
        vector("../../outside/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("{outside}/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("file://{table}/\\..\\..\\..\\outside\\z.txt"),
        vector("file://{table}/.\t./.\t./outside/z.txt"),
        vector("..\\..\\outside/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector(".\t./.\n./outside/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("FILE:{outside}/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("fi\tle:{outside}/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("\\\\localhost{outside}/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("http:\\127.0.0.1:1\\ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("link?/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("link#/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
        vector("%6cink?/ab^-aqEH.-t@S}K{{vb[*k^", "u"),
    ],
)
@pytest.mark.parametrize("is_remote", [True, False])
def test_vectors_of_deleted_rows_lie_in_their_table(places, tmp_path_factory, own, escaped, is_remote):
    workspace, root, outside = places
    table = written_table(root / f"vectors-{tmp_path_factory.mktemp('n').name}")
    text = (
        own["pathOrInlineDv"].replace("{{", "{").replace("{outside}", str(outside)).replace("{table}", str(table.root))
    )
    (table.root / "link").symlink_to(outside / "z.txt")
    add_vector(table, own | {"pathOrInlineDv": text}, escaped)
    # Not /etc, too: there others open files meanwhile.
    with opened_files(outside) as opened, pytest.raises(SourceError, match="has a file outside its folder"):
        open_data_source(workspace, [str(table.root)], is_remote=is_remote)
    assert set(opened) & set(os.listdir(outside)) == set()


@pytest.mark.parametrize("part", ["_delta_log", "commit", "vector", "checkpoint", "hint", "sidecar"])
def test_a_link_in_the_log_of_a_table_leads_nowhere(places, tmp_path_factory, part):
    workspace, root, outside = places
    table = written_table(root / f"log-{tmp_path_factory.mktemp('n').name}")
    log = table.root / "_delta_log"
    if part == "_delta_log":
        log.rename(outside / f"{table.root.name}-log")
        log.symlink_to(outside / f"{table.root.name}-log")
    elif part == "vector":
        table.delete("x.parquet", [1])
        (own,) = table.root.glob("deletion_vector_*.bin")
        own.unlink()
        own.symlink_to(outside / "z.txt")
    else:
        names = {"commit": f"{2:020}.json", "checkpoint": f"{1:020}.checkpoint.parquet", "hint": "_last_checkpoint"}
        own = log / names.get(part, "_sidecars/x.parquet")
        own.parent.mkdir(exist_ok=True)
        own.symlink_to(outside / "z.parquet")
    with opened_files(outside) as opened, pytest.raises(OutsideRoots, match=OUTSIDE):
        open_data_source(workspace, [str(table.root)])
    assert opened == []


@pytest.mark.parametrize(
    "named", ["file://{}/z.parquet", "FILE:{}/z.parquet", "\\{}/z.parquet", "..\\..\\..\\outside\\z.parquet", ".\t./x"]
)
def test_a_sidecar_of_a_checkpoint_lies_in_the_log(places, tmp_path_factory, named):
    workspace, root, outside = places
    table = written_table(root / f"sidecars-{tmp_path_factory.mktemp('n').name}")
    path = named.replace("{}", str(outside))
    actions = [{"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1, "tags": {}}}]
    name = f"{1:020}.checkpoint.0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b.json"
    (table.root / "_delta_log" / name).write_text("\n".join(map(json.dumps, actions)))
    with opened_files(outside) as opened, pytest.raises(SourceError, match="has a file outside its folder"):
        open_data_source(workspace, [str(table.root)])
    assert opened == []


def test_files_of_an_earlier_version_are_looked_at_as_well(places):
    workspace, root, outside = places
    history = DeltaHistory(root / "history", np.random.default_rng(1))
    history.overwrite()
    assert open_data_source(workspace, [history.path]).n_rows == 70
    for name in DeltaTable(history.path, version=0).file_uris():
        Path(name).unlink()
        Path(name).symlink_to(outside / "z.parquet")
    with opened_files(outside) as opened, pytest.raises(OutsideRoots, match=OUTSIDE):
        open_data_source(workspace, [history.path], at="0")
    assert opened == []


@pytest.mark.parametrize("part", ["metadata.json", "snap-", "-m0.avro", "version-hint.text", ".parquet"])
def test_a_link_in_an_iceberg_table_leads_nowhere(places, part):
    workspace, root, outside = places
    history = IcebergHistory(root / f"iceberg-{part.strip('.-')}", np.random.default_rng(2))
    folder = Path(history.path)
    names = [path for path in folder.rglob("*") if path.is_file() and part in path.name]
    for path in names or [folder / "metadata" / part]:
        path.unlink(missing_ok=True)
        path.symlink_to(outside / "z.txt")
    with opened_files(outside) as opened, pytest.raises(OutsideRoots, match=OUTSIDE):
        open_data_source(workspace, [history.path])
    assert opened == []


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.mknod(path, 0o140644)])
def test_what_is_no_file_is_never_opened(places, tmp_path_factory, make):
    """A pipe would hold its reader until somebody writes."""
    workspace, root, _ = places
    table = written_table(root / f"pipes-{tmp_path_factory.mktemp('n').name}")
    (table.root / "x.parquet").unlink()
    make(table.root / "x.parquet")
    with pytest.raises(SourceError, match=r"is not a regular file. Replace it by one"):
        open_data_source(workspace, [str(table.root)])
    plain = root / f"plain-{tmp_path_factory.mktemp('n').name}"
    plain.mkdir()
    for name in ("a.csv", "b.parquet", "c.arrow"):
        make(plain / name)
        with pytest.raises(SourceError, match="is a pipe, a socket or a device, not a file or folder"):
            open_data_source(workspace, [str(plain / name)])
    with pytest.raises(SourceError, match="without files of a known format"):
        open_data_source(workspace, [str(plain)])


# Links that stay within the roots


@pytest.mark.parametrize("pattern", ["{}", "{}/**", "{}/**/*.csv"])
@pytest.mark.parametrize("how", ["itself", "above", "each other", "twice", "a file"])
def test_links_within_a_folder_count_each_file_once(places, tmp_path, how, pattern):
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.csv").write_text("x\n" + "1\n2\n" * (number + 1))
    links = {
        "itself": [("a/again", "a")],
        "above": [("a/up", "."), ("b/up", ".")],
        "each other": [("a/other", "b"), ("b/other", "a")],
        "twice": [("c", "a"), ("d", "a"), ("a/up", ".")],
        "a file": [("a/same.csv", "a/rows.csv"), ("c.csv", "b/rows.csv")],
    }
    for name, target in links[how]:
        (tmp_path / name).symlink_to(tmp_path / target)
    assert Source.open(pattern.format(tmp_path)).n_rows == 6


def test_an_error_of_a_file_quotes_no_row_of_it(tmp_path):
    (tmp_path / "ragged.csv").write_text(f"a,b\n1,2\n{SECRET},3,4\n")
    with pytest.raises(SourceError, match=r"Row #3: Expected 2 columns, got 3\)") as refused:
        Source.open(tmp_path / "ragged.csv")
    assert SECRET not in str(refused.value)
