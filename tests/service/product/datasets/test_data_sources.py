"""Databases as data, and secrets of stores, which no answer shows."""

import base64
import json
import math
import re
from urllib.parse import parse_qs, urlsplit

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fewpass import NB
from learners.errors import SourceError, redact_uri_secrets
from learners.passes.sources.file_opening import uri_filesystem
from service import product
from service.operations.backup import back_up_workspace
from service.product.datasets.data_sources import (
    is_database_uri,
    materialise_database_uris,
    open_data_source,
    parse_database_uri,
)
from service.requests.problems import InvalidRequest, problem_from_error
from service.requests.requests import DatasetRequest
from service.settings import Settings, unknown_setting_warnings
from service.workspace import Workspace
from storage.control.control import open_control
from storage.errors import ControlUnavailable
from tests.service.asking import learned, training
from tests.support.cli import fewpass
from tests.web import Quiet, serving

N_ROWS = 3000


@pytest.fixture(scope="module")
def orders():
    rng = np.random.default_rng(0)
    late = rng.random(N_ROWS) < 0.3
    size = rng.normal(np.where(late, 6.0, 4.0), 1.0)
    where = rng.choice(["north", "south"], N_ROWS)
    return pa.table({"size": size, "where": pa.array(where, mask=rng.random(N_ROWS) < 0.1), "late": late.astype(str)})


def put(database, statement, orders):
    with duckdb.connect(str(database)) as opened:
        opened.register("rows", orders)
        opened.execute(statement)


@pytest.fixture(scope="module")
def shop(orders, tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    put(path, 'CREATE SCHEMA web; CREATE TABLE web."all orders" AS FROM rows', orders)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with Workspace(Settings(workspace=tmp_path_factory.mktemp("workspace"))) as opened:
        yield opened


@pytest.mark.parametrize(
    ("uri", "place", "sql"),
    [
        ("duckdb:///data/shop.db?table=main.orders", "/data/shop.db", 'SELECT * FROM "main"."orders"'),
        ("duckdb:///data/a%20shop.db?table=all%20orders", "/data/a shop.db", 'SELECT * FROM "all orders"'),
        ("duckdb:///shop.db?query=SELECT a+1 AS b FROM t WHERE c LIKE '%ab&#?%'", "/shop.db",
         "SELECT a+1 AS b FROM t WHERE c LIKE '%ab&#?%'"),
        ("duckdb:///shop.db?query=FROM%20t", "/shop.db", "FROM t"),
        ("postgresql://ana@host/shop?sslmode=require&query=SELECT 1 AS a", "postgresql://ana@host/shop?sslmode=require", "SELECT 1 AS a"),
        ("credentials://shop?table=orders", "postgresql://ana:sesame@host/shop?sslmode=require", 'SELECT * FROM "orders"'),
    ],
)  # fmt: skip
def test_uris_name_a_database_and_what_is_asked_of_it(uri, place, sql, monkeypatch):
    monkeypatch.setenv("FEWPASS_CREDENTIALS_SHOP", "postgresql://ana:sesame@host/shop?sslmode=require")
    query = parse_database_uri(uri)
    assert is_database_uri(uri) and (query.place, query.sql) == (place, sql)
    assert "sesame" not in query.uri and parse_database_uri(query.uri) == query
    assert "***" in query.reason(ValueError("no role sesame")) or "sesame" not in place


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("duckdb:///data/shop.db", SourceError, "names no table or query. End it with \\?table=NAME or \\?query=SELECT"),
        ("duckdb:///data/shop.db?query=", SourceError, "names no table or query"),
        ("postgresql://ana:sesame@host/shop?table=a", InvalidRequest, r"ana:\*\*\*@host.* contains a secret"),
        ("credentials://nobody?table=a", SourceError, "credentials 'nobody'"),
        ("credentials://lake?table=a", SourceError, "is not a database: its credentials contain neither duckdb:// nor postgresql://"),
    ],
)  # fmt: skip
def test_uris_that_name_none_are_refused(uri, error, message, monkeypatch):
    monkeypatch.setenv("FEWPASS_CREDENTIALS_LAKE", "https://lake.example/tables")
    with pytest.raises(error, match=message):
        parse_database_uri(uri)


def test_a_duckdb_file_is_learned_from_as_its_rows(shop, orders, place, tmp_path):
    pq.write_table(orders, tmp_path / "orders.parquet")
    uri = f"duckdb://{shop}?table=web.all orders"
    of_database = learned(place, uri, "late", target="late", holdout=0)
    of_file = learned(place, tmp_path / "orders.parquet", "f", target="late", holdout=0)
    assert of_database.n_rows == of_file.n_rows == N_ROWS
    beside = product.evaluate_versions(place, ["late@1", "f@1"], [uri], lambda _: None)
    assert beside["models"][0]["log_loss"] == beside["models"][1]["log_loss"]
    provenance = product.version_lineage(place, "late@1")["provenance"]
    (path,) = provenance["request"]["uris"]
    assert provenance["databases"] == {path: uri} and [file["path"] for file in of_database.files] == [path]


def test_a_refresh_counts_the_rows_that_a_query_gives_now(orders, tmp_path):
    workspace, path = tmp_path / "workspace", tmp_path / "shop.db"
    put(path, "CREATE TABLE orders AS FROM rows LIMIT 1000", orders)
    uri = f"duckdb://{path}?query=SELECT size, late FROM orders WHERE size > 0"
    command = ["train", uri, "-t", "late", "--name", "late", "-l", "nb", "--update", "--holdout", 0]
    fewpass(*command, workspace=workspace)
    assert "1,000 rows" in fewpass(*command, workspace=workspace).stdout
    put(path, "INSERT INTO orders FROM rows OFFSET 1000", orders)
    assert "3,000 rows" in fewpass(*command, workspace=workspace).stdout
    told = json.loads(fewpass("evaluate", "late", uri, "--json", workspace=workspace).stdout)
    assert told["n_test_rows"] == N_ROWS
    fewpass("predict", "late", uri, "--out", tmp_path / "scored.parquet", workspace=workspace)
    assert pq.read_table(tmp_path / "scored.parquet").num_rows == N_ROWS
    assert len(list((workspace / "queries").glob("*.parquet"))) == 1
    assert (workspace / "queries").stat().st_mode & 0o007 == 0


def test_what_a_database_refuses_is_told_and_nothing_is_kept(shop, place):
    kept = sorted(place.layout.queries.iterdir())
    for query, message in {
        "?query=SELECT nothing FROM web.orders": "(Catalog Error: Table with name orders does not exist",
        "?query=DROP TABLE web.orders": "cannot be read (",
        "?query=SELECT INTERVAL 1 DAY AS days, 1 AS a": "Leave that column out of the query, or CAST it",
        ".gone?table=a": "database does not exist",
    }.items():
        with pytest.raises(SourceError, match=re.escape(message)):
            materialise_database_uris(place, [f"duckdb://{shop}{query}"])
    assert sorted(place.layout.queries.iterdir()) == kept
    with pytest.raises(SourceError, match=r"is a database. Use it with the commands train, "):
        open_data_source(place, [f"duckdb://{shop}?table=a"])


def test_estimators_take_the_stream_of_a_database(shop, orders):
    with duckdb.connect(str(shop), read_only=True) as database:
        model = NB().fit(database.sql('FROM web."all orders"'), "late")
    assert model.predict_proba(orders).tolist() == NB().fit(orders, "late").predict_proba(orders).tolist()


def test_postgresql_is_learned_from_by_adbc(postgres, orders, place, monkeypatch):
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")

    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS orders")
        cursor.adbc_ingest("orders", orders)
        cursor.execute("ALTER TABLE orders ALTER COLUMN size TYPE numeric")
        connection.commit()
    monkeypatch.setenv("FEWPASS_CREDENTIALS_PG", postgres)
    query = """SELECT size, "where", late FROM orders WHERE size > 3 ORDER BY size"""
    paths = materialise_database_uris(place, [f"{postgres}&query={query}", f"credentials://pg?query={query}"])
    expected = orders.filter(pc.greater(orders["size"], 3.0)).sort_by("size")
    for path in paths:
        found = pq.read_table(path)
        assert found.schema.field("size").type == pa.float64()  # `numeric`, which the driver gives as text
        assert found["size"].to_pylist() == pytest.approx(expected["size"].to_pylist(), rel=1e-14)
        assert found["late"].to_pylist() == expected["late"].to_pylist()
    version = learned(place, "credentials://pg?table=orders", "pg", target="late")
    assert math.isclose(version.n_rows, N_ROWS * 0.8, rel_tol=0.1)
    databases = product.version_lineage(place, "pg@1")["provenance"]["databases"]
    assert list(databases.values()) == ["credentials://pg?table=orders"]
    with pytest.raises(SourceError, match='relation "gone" does not exist'):
        materialise_database_uris(place, [f"{postgres}&table=gone"])
    materialise_database_uris(place, [f"{postgres}&query=DELETE FROM orders RETURNING size"])
    (path,) = materialise_database_uris(place, [f"{postgres}&query=SELECT count(*) AS n FROM orders"])
    assert pq.read_table(path)["n"].to_pylist() == [N_ROWS]  # what a query writes is rolled back


MARK = "PASSWORD1marked"
TRAIN = {"parameters": {"m": 1.0}, "holdout": 0}


class Guarded(Quiet):
    """Gives files to whoever sends the password, or the signature."""

    files: dict[str, bytes]

    def do_GET(self):
        asked = urlsplit(self.path)
        basic = "Basic " + base64.b64encode(f"ana:{MARK}".encode()).decode()
        is_known = self.headers.get("Authorization") == basic or parse_qs(asked.query).get("X-Amz-Signature") == [MARK]
        if not is_known or asked.path not in self.files:
            self.send_error(403 if not is_known else 500)
        else:
            self.answer_with_ranges(self.files[asked.path])

    do_HEAD = do_GET


@pytest.fixture
def host(weather_files):
    Guarded.files = {"/tables/train.parquet": weather_files[0].read_bytes()}
    with serving(Guarded) as address:
        yield address


@pytest.mark.parametrize("kind", ["password", "signature", "file"])
def test_a_secret_opens_the_data_and_stands_nowhere(workspace, host, tmp_path, monkeypatch, kind):
    signed = f"http://{host}/tables?X-Amz-Signature={MARK}"
    if kind == "file":
        (tmp_path / "secret").write_text(signed + "\n")
        monkeypatch.setenv("FEWPASS_CREDENTIALS_OUR_SHOP_FILE", str(tmp_path / "secret"))
    else:
        place = signed if kind == "signature" else f"http://ana:{MARK}@{host}/tables"
        monkeypatch.setenv("FEWPASS_CREDENTIALS_OUR_SHOP", place)
    uri = "credentials://our-shop/train.parquet"
    product.register_dataset(workspace, DatasetRequest(name="d", uris=[uri], target="class"))
    made = learned(workspace, uri, **TRAIN)
    wrong = training(uri.replace("train", "none"), **TRAIN)
    job = product.submit_job(workspace, wrong, is_remote=False)
    with pytest.raises(SourceError) as raised:
        product.train_model_version(workspace, wrong)
    product.write_export(workspace, "m", tmp_path / "m.tar")
    back_up_workspace(workspace, tmp_path / "copy")
    found = product.find_version(workspace, "m")
    shown = repr([found, job, product.list_models(workspace), made])
    shown += str(problem_from_error(raised.value).body()) + str(raised.value)
    assert f"http://{host}/tables/train.parquet" in shown and MARK not in shown
    for path in [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "secret"]:
        assert MARK.encode() not in path.read_bytes(), path


SECRETS = {
    f"delta://s3://ana:{MARK}@bucket/x": "delta://s3://ana:***@bucket/x",
    f"http://ana:{MARK}@host/x.parquet": "http://ana:***@host/x.parquet",
    f"https://:{MARK}@host:8080/x.parquet": "https://:***@host:8080/x.parquet",
    f"s3://KEY:{MARK}/with+slash@bucket/x.parquet": "s3://KEY:***@bucket/x.parquet",
    f"https://host/x?X-Amz-Date=1&X-Amz-Signature={MARK}&a=b": "https://host/x?X-Amz-Date=1&X-Amz-Signature=***&a=b",
    f"https://host/x?sv=2&sig={MARK}": "https://host/x?sv=2&sig=***",
    f"https://host/x?AWSAccessKeyId={MARK}": "https://host/x?AWSAccessKeyId=***",
    f"abfs://box@account.dfs.core.windows.net/x?account_key={MARK}": "abfs://box@account.dfs.core.windows.net/x?account_key=***",
    f"hdfs://host/x?access_token={MARK}": "hdfs://host/x?access_token=***",
}


@pytest.mark.parametrize("uri", SECRETS)
def test_a_uri_with_a_secret_is_refused_before_it_is_kept(workspace, uri):
    assert redact_uri_secrets(f"of {uri} it says") == f"of {SECRETS[uri]} it says"
    for refused in (
        lambda: product.submit_job(workspace, training(uri, **TRAIN), is_remote=True),
        lambda: product.submit_job(workspace, training("/a", test_uris=[uri], **TRAIN), is_remote=False),
        lambda: learned(workspace, uri, **TRAIN),
        lambda: product.register_dataset(workspace, DatasetRequest(name="d", uris=[uri], target="class")),
    ):
        with pytest.raises(InvalidRequest, match="contains a secret") as raised:
            refused()
        assert MARK not in str(problem_from_error(raised.value).body()) and SECRETS[uri] in str(raised.value)
    unread = SourceError(uri, f"cannot be read ({uri}).")
    assert MARK not in str(unread) + unread.path


PLAIN = ["/data/a@b:c.parquet", "https://host:8080/a@b", "s3://bucket/x?region=eu", "abfs://box@account/x"]
PLAIN += ["https://h/x?design=1", "delta://s3://bucket/x@12", "iceberg://file:///x@2026-01-31T12:00"]


@pytest.mark.parametrize("uri", PLAIN)
def test_a_uri_without_a_secret_is_not_changed(uri):
    assert redact_uri_secrets(uri) == uri


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("credentials://nobody/x", "Set FEWPASS_CREDENTIALS_NOBODY"),
        ("credentials://place/../x", "plain names"),
        ("credentials://place/%2e%2e/x", "plain names"),
        (
            "credentials://place@evil.org/x",
            "lacks the name of credentials. Write credentials://name/path for FEWPASS_CREDENTIALS_NAME",
        ),
        (
            "credentials:///x",
            "lacks the name of credentials. Write credentials://name/path for FEWPASS_CREDENTIALS_NAME",
        ),
        ("credentials://broken/x", "cannot be opened with its credentials"),
        ("credentials://empty/x", "its credentials contain no folder URI. Set"),
    ],
)
def test_credentials_lead_to_their_place_only_and_errors_do_not_tell_them(monkeypatch, uri, said):
    monkeypatch.setenv("FEWPASS_CREDENTIALS_PLACE", f"https://ana:{MARK}@host/tables")
    monkeypatch.setenv("FEWPASS_CREDENTIALS_BROKEN", f"nothing://ana:{MARK}@host/tables")
    monkeypatch.setenv("FEWPASS_CREDENTIALS_EMPTY", MARK)
    with pytest.raises(SourceError, match=said) as raised:
        uri_filesystem(uri)
    assert MARK not in str(raised.value)
    assert unknown_setting_warnings({"FEWPASS_CREDENTIALS_PLACE": "x"}) == []


@pytest.mark.parametrize("url", [f"postgresql//ana:{MARK}@host", f"mysql://ana:{MARK}@host/x"])
def test_the_password_of_a_control_database_that_is_none_is_not_told(url):
    with pytest.raises(ControlUnavailable) as raised:
        open_control(url)
    assert MARK not in str(raised.value)
