"""Files that are not on this disk: in memory, and on a server of the web."""

import gzip
import sys

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import NB
from learners.errors import SourceError
from learners.passes.sources.source import Source, file_identity
from tests.web import Quiet, serving


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2, 3000)
    return pa.table(
        {"size": rng.normal(y, 1.0), "count": rng.integers(0, 5, 3000) + y, "class": np.array(["no", "yes"])[y]}
    )


class Server(Quiet):
    """Files with their length and ranges, redirections, and a file without ranges."""

    files: dict[str, bytes]

    def do_GET(self):
        content = self.files.get(self.path.partition("?")[0])
        if self.path == "/moved.parquet":
            self.send_response(302)
            self.send_header("Location", "/a.parquet")
            self.end_headers()
        elif content is None:
            self.send_error(404)
        elif "plain" in self.path:
            self.answer(200, content, {"Accept-Ranges": "none"})
        else:
            self.answer_with_ranges(content)

    do_HEAD = do_GET


@pytest.fixture(scope="module")
def web(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1000)
    parquet = sink.getvalue().to_pybytes()
    text = table.to_pandas().to_csv(index=False).encode()
    Server.files = {
        "/a.parquet": parquet,
        "/day=2026-01-01/b.parquet": parquet,
        "/plain.parquet": parquet,
        "/a.csv": text,
        "/plain.csv.gz": gzip.compress(text),
    }
    with serving(Server) as address:
        yield f"http://{address}"


@pytest.fixture
def memory(table):
    place = fsspec.filesystem("memory")
    with place.open("/set/a.parquet", "wb") as file:
        pq.write_table(table, file, row_group_size=1000)
    with place.open("/set/deep/day=2026-01-01/b.parquet", "wb") as file:
        pq.write_table(table, file)
    with place.open("/text/a.csv", "wb") as file:
        file.write(table.to_pandas().to_csv(index=False).encode())
    yield place
    for name in ("/set", "/text"):
        place.rm(name, recursive=True)


def rows_of(source):
    return pa.Table.from_batches(list(source.batches())).select(["size", "count", "class"])


@pytest.mark.parametrize(
    "uri", ["memory://set/a.parquet", "memory:///set/a.parquet", "memory://text/a.csv", "memory://set/*.parquet"]
)
def test_files_in_memory(uri, memory, table):
    source = Source.open(uri)
    assert source.n_rows == 3000
    assert rows_of(source)["count"].to_pylist() == table["count"].to_pylist()
    assert file_identity(source.files[0]) == file_identity(Source.open(uri).files[0])


def test_a_folder_in_memory_with_a_partition(memory):
    source = Source.open("memory://set/deep")
    assert source.n_rows == 3000 and "day" in source.arrow_schema.names


@pytest.mark.parametrize("path", ["/a.parquet", "/a.parquet?version=3", "/a.csv", "/plain.csv.gz"])
def test_files_of_a_web_server(path, web, table):
    uri = web + path
    source = Source.open(uri)
    assert rows_of(source)["count"].to_pylist() == table["count"].to_pylist()
    expected = NB(m=1.0).fit(table, "class").predict_proba(table)
    assert np.array_equal(NB(m=1.0).fit(uri, "class").predict_proba(uri), expected)


def test_folders_of_a_web_server_are_columns_too(web):
    assert Source.open(f"{web}/day=2026-01-01/b.parquet").arrow_schema.names[-1] == "day"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/none.parquet", "no such file"),
        ("/plain.parquet", "cannot be read as Parquet"),
        ("/moved.parquet", "or redirects. Name the new address"),
        ("/*.parquet", "matches no file|cannot be listed|no such file"),
    ],
)
def test_what_a_web_server_does_not_give_is_told(path, message, web):
    with pytest.raises(SourceError, match=message) as raised:
        Source.open(web + path)
    assert "\n" not in str(raised.value)


def test_a_server_that_does_not_answer_is_told():
    with pytest.raises(SourceError, match=r"127.0.0.1:9/a.parquet"):
        Source.open("http://127.0.0.1:9/a.parquet")


@pytest.mark.parametrize(
    "uri",
    ["local:///etc/passwd", "fsspec+file:///etc/passwd", "ftp://host/a.parquet", "://a", "simplecache::memory://a"],
)
def test_other_schemes_are_refused(uri):
    with pytest.raises(
        SourceError, match=r"is not a usable URI\. Give a path, or one of file://, s3://.*memory://, http://"
    ):
        Source.open(uri)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(SourceError, match=r"needs more libraries .*pip install 'fewpass\[remote\]'"):
        Source.open("memory://a.parquet")
