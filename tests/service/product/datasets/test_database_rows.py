"""Rows of DuckDB files and of PostgreSQL, learned from as those of files."""

import json
import math

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fewpass import NB
from learners.errors import SourceError
from service import product
from service.product.datasets.data_roots import open_source
from service.product.datasets.database_rows import database_query, is_database, with_rows_of_databases
from service.requests.problems import InvalidRequest
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service.cli.test_cli import fewpass

N_ROWS = 3000


@pytest.fixture(scope="module")
def orders():
    rng = np.random.default_rng(0)
    late = rng.random(N_ROWS) < 0.3
    size = rng.normal(np.where(late, 6.0, 4.0), 1.0)
    where = rng.choice(["north", "south"], N_ROWS)
    return pa.table({"size": size, "where": pa.array(where, mask=rng.random(N_ROWS) < 0.1), "late": late.astype(str)})


@pytest.fixture(scope="module")
def shop(orders, tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    with duckdb.connect(str(path)) as database:
        database.register("rows", orders)
        database.execute('CREATE SCHEMA web; CREATE TABLE web."all orders" AS FROM rows')
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
    query = database_query(uri)
    assert is_database(uri) and (query.place, query.sql) == (place, sql)
    assert "sesame" not in query.uri and database_query(query.uri) == query
    assert "***" in query.reason(ValueError("no role sesame")) or "sesame" not in place


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("duckdb:///data/shop.db", SourceError, "asks for nothing. End it with \\?table=NAME or \\?query=SELECT"),
        ("duckdb:///data/shop.db?query=", SourceError, "asks for nothing"),
        ("postgresql://ana:sesame@host/shop?table=a", InvalidRequest, r"ana:\*\*\*@host.* carries a secret"),
        ("credentials://nobody?table=a", SourceError, "there are no credentials 'nobody'"),
        ("credentials://lake?table=a", SourceError, "is no database: its credentials hold neither"),
    ],
)  # fmt: skip
def test_uris_that_name_none_are_refused(uri, error, message, monkeypatch):
    monkeypatch.setenv("FEWPASS_CREDENTIALS_LAKE", "https://lake.example/tables")
    with pytest.raises(error, match=message):
        database_query(uri)


def test_a_duckdb_file_is_learned_from_as_its_rows(shop, orders, place, tmp_path):
    pq.write_table(orders, tmp_path / "orders.parquet")
    asked = {"target": "late", "learner": "nb", "holdout": 0}
    uri = f"duckdb://{shop}?table=web.all orders"
    of_database, _ = product.train_with_passes(place, TrainRequest(uris=[uri], model="late", **asked))
    of_file, _ = product.train_with_passes(
        place, TrainRequest(uris=[str(tmp_path / "orders.parquet")], model="f", **asked)
    )
    assert of_database.n_rows == of_file.n_rows == N_ROWS
    beside = product.evaluate_beside(place, ["late@1", "f@1"], [uri], lambda _: None)
    assert beside["models"][0]["log_loss"] == beside["models"][1]["log_loss"]
    provenance = product.lineage(place, "late@1")["provenance"]
    assert list(provenance["databases"].values()) == [uri]
    assert (
        list(provenance["databases"]) == [file["path"] for file in of_database.files] == provenance["request"]["uris"]
    )


def test_a_refresh_counts_the_rows_that_a_query_gives_now(orders, tmp_path):
    workspace, path = tmp_path / "workspace", tmp_path / "shop.db"
    with duckdb.connect(str(path)) as database:
        database.register("rows", orders)
        database.execute("CREATE TABLE orders AS FROM rows LIMIT 1000")
    uri = f"duckdb://{path}?query=SELECT size, late FROM orders WHERE size > 0"
    command = ["train", uri, "-t", "late", "--name", "late", "-l", "nb", "--update", "--holdout", 0]
    fewpass(*command, workspace=workspace)
    assert "1,000 rows" in fewpass(*command, workspace=workspace).stdout
    with duckdb.connect(str(path)) as database:
        database.register("rows", orders)
        database.execute("INSERT INTO orders FROM rows OFFSET 1000")
    assert "3,000 rows" in fewpass(*command, workspace=workspace).stdout
    told = json.loads(fewpass("evaluate", "late", uri, "--json", workspace=workspace).stdout)
    assert told["n_test_rows"] == N_ROWS
    fewpass("predict", "late", uri, "--out", tmp_path / "scored.parquet", workspace=workspace)
    assert pq.read_table(tmp_path / "scored.parquet").num_rows == N_ROWS
    assert len(list((workspace / "queries").glob("*.parquet"))) == 1
    assert (workspace / "queries").stat().st_mode & 0o007 == 0


def test_what_a_database_refuses_is_told_and_nothing_is_kept(shop, place):
    kept = sorted(place.layout.queries.iterdir())
    for query, message in (
        ("SELECT nothing FROM web.orders", "cannot be read (Catalog Error: Table with name orders does not exist"),
        ("DROP TABLE web.orders", "cannot be read ("),
        ("SELECT INTERVAL 1 DAY AS days, 1 AS a", "Leave that column out of the query, or CAST it"),
    ):
        with pytest.raises(SourceError) as raised:
            with_rows_of_databases(place, [f"duckdb://{shop}?query={query}"])
        assert message in str(raised.value)
    with pytest.raises(SourceError, match="database does not exist"):
        with_rows_of_databases(place, [f"duckdb://{shop}.gone?table=a"])
    assert sorted(place.layout.queries.iterdir()) == kept
    with pytest.raises(SourceError, match=r"is a database. The commands train, .* read it"):
        open_source(place, [f"duckdb://{shop}?table=a"])


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
    paths = with_rows_of_databases(place, [f"{postgres}&query={query}", f"credentials://pg?query={query}"])
    expected = orders.filter(pc.greater(orders["size"], 3.0)).sort_by("size")
    for path in paths:
        found = pq.read_table(path)
        assert found.schema.field("size").type == pa.float64()  # `numeric`, which the driver gives as text
        assert found["size"].to_pylist() == pytest.approx(expected["size"].to_pylist(), rel=1e-14)
        assert found["late"].to_pylist() == expected["late"].to_pylist()
    request = TrainRequest(uris=["credentials://pg?table=orders"], target="late", learner="nb", model="pg")
    version, _ = product.train_with_passes(place, request)
    assert version.n_rows == round(N_ROWS * 0.8) or math.isclose(version.n_rows, N_ROWS * 0.8, rel_tol=0.1)
    assert list(product.lineage(place, "pg@1")["provenance"]["databases"].values()) == ["credentials://pg?table=orders"]
    with pytest.raises(SourceError, match='relation "gone" does not exist'):
        with_rows_of_databases(place, [f"{postgres}&table=gone"])
    with_rows_of_databases(place, [f"{postgres}&query=DELETE FROM orders RETURNING size"])
    (path,) = with_rows_of_databases(place, [f"{postgres}&query=SELECT count(*) AS n FROM orders"])
    assert pq.read_table(path)["n"].to_pylist() == [N_ROWS]  # what a query writes is rolled back
