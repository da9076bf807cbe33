"""Tables in S3, by moto's server on loopback: trained from, predicted, refreshed, and what goes wrong there told in a sentence."""

import io
import logging
import os
import signal
import time
from functools import partial
from pathlib import Path

import boto3
import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto import settings
from moto.core.responses import ActionAuthenticatorMixin
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner

from learners.errors import SourceError
from learners.passes.sources.file_opening import uri_filesystem
from learners.passes.sources.source import Source
from learners.passes.sources.source_files import store_error_reason
from learners.passes.sources.tabular import inspect_tabular_file
from service import product
from service.cli import app
from service.product.outputs import output_destination
from service.requests.problems import InvalidRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.lake_tables import DeltaHistory, IcebergHistory, anew, people
from tests.service.asking import model_of, training
from tests.service.product.datasets.test_holdout_laws import (  # noqa: F401 (a fixture)
    contents,
    recorded,
    require_partition,
    require_told,
    table_of,
)
from tests.support.passes import same
from tests.support.product import n_read, snapshot_of, train
from tests.web import Quiet, serving


class Bucket:
    """An empty bucket and what is put there."""

    def __init__(self, address):
        self.address = address
        self.client = boto3.client("s3")
        self.client.create_bucket(Bucket="shop")

    def put(self, key, rows):
        written = io.BytesIO()
        pq.write_table(rows, written)
        self.client.put_object(Bucket="shop", Key=key, Body=written.getvalue())
        return f"s3://shop/{key}"

    def read(self, key):
        return pq.read_table(io.BytesIO(self.client.get_object(Bucket="shop", Key=key)["Body"].read()))

    def copy(self, folder, key):
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
        environment.setenv("AWS_ACCESS_KEY_ID", "ana")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "key")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        yield Bucket(f"{host}:{port}")
    server.stop()


class Throttled(Quiet):
    """Passes requests on to the store, but for the first `n_refused`."""

    store: str
    n_refused = 0
    interrupts = False

    def do_GET(self):
        if Throttled.n_refused:
            Throttled.n_refused -= 1
            told = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
            self.answer(503, told, {"Content-Type": "application/xml"})
        else:
            self.pass_on()

    do_HEAD = do_GET

    def do_PUT(self):
        body = self.body()
        if Throttled.interrupts:
            Throttled.interrupts = False
            os.kill(os.getpid(), signal.SIGINT)
        self.pass_on(body)

    do_POST = do_DELETE = do_PUT

    def pass_on(self, body=b""):
        url, headers = f"http://{self.store}{self.path}", dict(self.headers)
        told = httpx.request(self.command, url, headers=headers, content=body or None)
        self.answer(told.status_code, told.content, {k: v for k, v in told.headers.items() if k != "transfer-encoding"})


def test_rows_of_a_store_divide_into_two_parts(bucket, tmp_path, recorded):  # noqa: F811
    uri, kept_back = "s3://shop/divided/*.parquet", []
    with Workspace(Settings(workspace=tmp_path / "workspace")) as place:
        for parts in ((0, 1), (2,)):
            for part in parts:
                bucket.put(f"divided/{part}.parquet", table_of(300 * part, 300))
            recorded.clear()
            request = training(uri, target="y", columns={"id": "drop"}, update=True, holdout_by="random")
            version = product.train_model_version(place, request)
            require_told(version, *require_partition(recorded, 300 * (parts[-1] + 1)))
            kept_back.append(contents(recorded[-1].kept_back).keys())
    assert {row for row in kept_back[1] if row < 600} == kept_back[0]


@pytest.fixture
def throttled(bucket, monkeypatch):
    """The address of a store that refuses requests, as many as `Throttled.n_refused` says."""
    monkeypatch.setattr(Throttled, "store", bucket.address, raising=False)
    monkeypatch.setattr(Throttled, "n_refused", 0)
    with serving(Throttled) as address:
        yield address


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
    output, two = "s3://shop/answers/out.parquet", ["s3://shop/people/day=2/*.parquet"]
    predict = partial(product.predict_files, workspace, "s3@latest", two)
    assert predict(tmp_path / "out.parquet") == predict(output) == 60
    assert bucket.read("answers/out.parquet") == pq.read_table(tmp_path / "out.parquet")
    with pytest.raises(InvalidRequest, match=r"already exists. Choose another name, or replace it with --force"):
        predict(output)
    assert predict(output, replace=True) == 60
    with pytest.raises(SourceError, match=r"the bucket 'shopp' does not exist. Create it first"):
        predict("s3://shopp/out.parquet")


def fewpass(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def written(bucket, workspace):
    """Rows in the bucket that the model `written` has learned."""
    rows = bucket.put("written/a.parquet", people(np.random.default_rng(1), 60))
    train(workspace, rows, model="written")
    return rows


def test_the_command_writes_where_it_reads(bucket, written, workspace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["predict", "written@latest", written, "-o", "s3://shop/answers/b.parquet", "-w"]
    done = fewpass(*asked, workspace.layout.root)
    assert done.exit_code == 0, done.output
    assert bucket.read("answers/b.parquet").num_rows == 60
    again = fewpass(*asked, workspace.layout.root)
    assert again.exit_code != 0 and "already exists" in str(again.exception)
    elsewhere = fewpass(*asked, "s3://shop/workspace")
    assert elsewhere.exit_code == 2 and "Name a folder of this machine" in elsewhere.output
    assert not list(tmp_path.iterdir()), "no folder s3: is left"


def test_an_address_is_told_without_its_secret(bucket, written, workspace):
    options = f"endpoint_override={bucket.address}&scheme=http"
    for output in (f"s3://ana:topsecret@shop/answers/c.parquet?{options}", f"s3://ana:topsecret@shop/c.csv?{options}"):
        for more in ([], ["--json"], ["--force"]):
            done = fewpass("predict", "written@latest", written, "-o", output, "-w", workspace.layout.root, *more)
            said = f"{done.output}{done.exception}{getattr(done.exception, 'fields', '')}"
            assert "***@shop" in said and "topsecret" not in said, said
    with pytest.raises(InvalidRequest, match=r"ana:\*\*\*@host") as refused:
        product.predict_files(workspace, "written@latest", [written], "postgresql://ana:topsecret@host/shop")
    assert "topsecret" not in str(refused.value.fields)


def test_an_interrupted_upload_leaves_all_or_nothing(bucket, throttled, tmp_path):
    """Ctrl-C comes with the first part of three; a stream that was closed then would have published that part alone."""
    draft = tmp_path / "draft"
    draft.write_bytes(bytes(25 << 20))
    place = output_destination(f"s3://shop/interrupted?endpoint_override={throttled}&scheme=http")
    Throttled.interrupts = True
    # A shell that starts the tests in the background has them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            place.put(draft)
            for _ in range(3000):  # which the interruption ends
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
    found = bucket.client.list_objects_v2(Bucket="shop", Prefix="interrupted").get("Contents", [])
    assert [one["Size"] for one in found] in ([], [25 << 20])


def test_an_address_may_name_its_endpoint(bucket, written, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert Source.open(f"{written}?endpoint_override={bucket.address}&scheme=http").n_rows == 60


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
    assert snapshot_of(workspace, version)["format"] == {"deltahistory": "Delta Lake"}.get(name, "Iceberg")


def test_a_file_that_is_replaced_meanwhile_is_told(bucket):
    rng = np.random.default_rng(3)
    source = Source.open(bucket.put("replaced/a.parquet", people(rng, 30)))
    bucket.put("replaced/a.parquet", people(rng, 50))
    with pytest.raises(SourceError, match=r"shop/replaced/a.parquet has changed since it was opened"):
        list(source.batches())
    bucket.client.delete_object(Bucket="shop", Key="replaced/a.parquet")
    with pytest.raises(SourceError, match="was removed while it was being read"):
        list(source.batches())


def test_credentials_that_are_refused_are_told(bucket, written, workspace, monkeypatch):
    bucket.client.put_object(Bucket="shop", Key="text/a.csv", Body=b"a,b\n1,2\n")
    source = Source.open(written)
    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
    monkeypatch.setattr(ActionAuthenticatorMixin, "request_count", 0)
    for refused in (
        lambda: Source.open(written),
        lambda: Source.open("s3://shop/written"),
        lambda: inspect_tabular_file(*uri_filesystem("s3://shop/text/a.csv"), "CSV", {}),
        lambda: Source.open("s3://shop/written/*.parquet"),
        lambda: Source.open("delta://s3://shop/written@3"),
        lambda: list(source.batches()),
        lambda: train(workspace, written, model="refused"),
    ):
        with pytest.raises(SourceError, match=r"was refused by its store .*Renew the credentials"):
            refused()


def test_a_store_that_throttles_is_asked_again(written, throttled):
    Throttled.n_refused = 2
    source = Source.open(f"{written}?endpoint_override={throttled}&scheme=http")
    assert Throttled.n_refused == 0
    Throttled.n_refused = 2
    assert sum(batch.num_rows for batch in source.batches()) == 60


@pytest.mark.faults
def test_a_store_that_throttles_on_is_told(written, throttled):
    source = Source.open(f"{written}?endpoint_override={throttled}&scheme=http")
    Throttled.n_refused = 1000
    with pytest.raises(SourceError, match=r"answers too slowly .*Try again later"):
        list(source.batches())
    assert Throttled.n_refused > 900, "within a bound"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("UNKNOWN (HTTP status 400) during HeadObject operation: No response body.", "Renew the credentials"),
        ("UNKNOWN (HTTP status 503) during HeadObject operation: No response body.", "answers too slowly"),
        ("SLOW_DOWN during GetObject operation: Please reduce", "Try again later"),
        ("NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Could", "Check the network, and the endpoint"),
    ],
)
def test_what_a_store_does_not_say_is_told(error, words):
    """S3 answers a HEAD request with an expired token by 400 and no body."""
    assert words in str(store_error_reason(OSError(f"AWS Error {error}")))
    assert store_error_reason(OSError("Couldn't deserialize thrift")) is None
