"""Tables in S3, by moto's server on loopback: trained from, predicted, refreshed, and what goes wrong there told in a sentence."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto import settings
from moto.core.responses import ActionAuthenticatorMixin
from moto.server import ThreadedMotoServer

from learners.errors import SourceError
from learners.passes.sources.file_sets import of_store
from learners.passes.sources.source import Source
from service import product
from service.requests.problems import InvalidRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.lake_tables import DeltaHistory, IcebergHistory, anew, people
from tests.passes.test_engine import same
from tests.service.product.datasets.test_lake_refresh import model_of, n_read, train


class Bucket:
    """An empty bucket and what is put there."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = boto3.client("s3")
        self.client.create_bucket(Bucket="shop")

    def put(self, key: str, rows: pa.Table) -> str:
        written = io.BytesIO()
        pq.write_table(rows, written)
        self.client.put_object(Bucket="shop", Key=key, Body=written.getvalue())
        return f"s3://shop/{key}"

    def copy(self, folder: str | Path, key: str) -> str:
        """Put what is not there yet: nothing of a lake table changes."""
        there = {one["Key"] for one in self.client.list_objects_v2(Bucket="shop", Prefix=key).get("Contents", ())}
        for path in sorted(Path(folder).rglob("*")):
            name = f"{key}/{path.relative_to(folder)}"
            if path.is_file() and name not in there:
                self.client.upload_file(str(path), "shop", name)
        return f"s3://shop/{key}"


@pytest.fixture(scope="module")
def bucket():
    """The endpoint and the credentials are in the environment, as users have them."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "ana",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }.items():
            environment.setenv(name, value)
        yield Bucket(f"{host}:{port}")
    server.stop()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    with Workspace(Settings(workspace=tmp_path_factory.mktemp("s3") / "workspace", threads=1)) as here:
        yield here


def test_trained_refreshed_and_predicted(bucket, workspace, tmp_path):
    """Of folders day=…, one of which comes later: just it is read."""
    rng = np.random.default_rng(1)
    days = [people(rng, 60) for _ in range(3)]
    for day, rows in enumerate(days[:2]):
        bucket.put(f"people/day={day}/part.parquet", rows)
    train(workspace, "s3://shop/people", model="s3")
    bucket.put("people/day=2/part.parquet", days[2])
    version, passes = train(workspace, "s3://shop/people", model="s3")
    assert n_read(passes) == 60
    local = [rows.append_column("day", pa.array([day] * 60)) for day, rows in enumerate(days)]
    pq.write_table(pa.concat_tables(local), tmp_path / "all.parquet")
    expected, _ = train(workspace, tmp_path / "all.parquet", model="local")
    assert same(model_of(version), model_of(expected))
    n_rows = product.predict_files(
        workspace, "s3@latest", ["s3://shop/people/day=2/*.parquet"], tmp_path / "out.parquet"
    )
    with pytest.raises(InvalidRequest, match="only local files are written"):
        product.predict_files(workspace, "s3@latest", ["s3://shop/people/day=2"], Path("s3://shop/out.parquet"))
    assert n_rows == 60 == pq.read_metadata(tmp_path / "out.parquet").num_rows


def test_an_address_may_name_its_endpoint(bucket, monkeypatch):
    bucket.put("one/a.parquet", people(np.random.default_rng(2), 30))
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert Source.open(f"s3://shop/one/a.parquet?endpoint_override={bucket.address}&scheme=http").n_rows == 30


@pytest.mark.parametrize("kind", [DeltaHistory, IcebergHistory])
def test_lake_tables_are_read_and_followed(kind, bucket, workspace, tmp_path):
    history = kind(tmp_path / "table", np.random.default_rng(4))
    name = kind.__name__.lower()
    train(workspace, bucket.copy(history.path, name), model=name)
    history.append()
    _, passes = train(workspace, bucket.copy(history.path, name), model=name)
    assert n_read(passes) == 40
    history.delete()
    version, _ = train(workspace, bucket.copy(history.path, name), model=name)
    assert same(model_of(version), anew(history.rows(), tmp_path))


def test_a_file_that_is_replaced_meanwhile_is_told(bucket):
    rng = np.random.default_rng(3)
    source = Source.open(bucket.put("replaced/a.parquet", people(rng, 30)))
    bucket.put("replaced/a.parquet", people(rng, 50))
    with pytest.raises(SourceError, match=r"shop/replaced/a.parquet: has changed since it was opened"):
        list(source.batches())
    bucket.client.delete_object(Bucket="shop", Key="replaced/a.parquet")
    with pytest.raises(SourceError, match="was removed while it was being read"):
        list(source.batches())


def test_credentials_that_are_refused_are_told(bucket, workspace, monkeypatch):
    uri = bucket.put("kept/a.parquet", people(np.random.default_rng(3), 30))
    source = Source.open(uri)
    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
    monkeypatch.setattr(ActionAuthenticatorMixin, "request_count", 0)
    for refused in (
        lambda: Source.open(uri),
        lambda: Source.open("s3://shop/kept"),
        lambda: Source.open("s3://shop/kept/*.parquet"),
        lambda: Source.open("delta://s3://shop/kept@3"),
        lambda: list(source.batches()),
        lambda: train(workspace, uri, model="refused"),
    ):
        with pytest.raises(SourceError, match=r"is refused by its store .*Renew the credentials"):
            refused()


def test_what_a_store_does_not_say_is_told():
    """S3 answers a HEAD request with an expired token by 400 and no body."""
    error = OSError("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body.")
    assert "Renew the credentials" in str(of_store(error))
    gone = OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Could not connect to server")
    assert "Check the network, and the endpoint" in str(of_store(gone))
    assert of_store(OSError("Couldn't deserialize thrift")) is None
