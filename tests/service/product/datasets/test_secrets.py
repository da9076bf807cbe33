"""A secret that opens data stands nowhere: in no file of a workspace, export, backup, answer or error."""

import base64
from urllib.parse import parse_qs, urlsplit

import pytest

from learners.errors import SourceError, redacted
from learners.passes.sources.opening import filesystem_of
from service import product
from service.operations.backup import back_up
from service.requests.problems import InvalidRequest, problem_of
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings, unknown_variables
from service.workspace import Workspace
from storage.control.control import open_control
from storage.errors import ControlUnavailable
from tests.web import Quiet, serving

MARK = "PASSWORD1marked"
TRAIN = {"target": "class", "learner": "nb", "parameters": {"m": 1.0}, "model": "m", "holdout": 0}


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


@pytest.fixture
def workspace(tmp_path):
    with Workspace(Settings(workspace=tmp_path / "workspace", threads=1)) as opened:
        yield opened


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
    made = product.train(workspace, TrainRequest(uris=[uri], **TRAIN))
    wrong = uri.replace("train", "none")
    job = product.submit(workspace, TrainRequest(uris=[wrong], **TRAIN), is_remote=False)
    with pytest.raises(SourceError) as raised:
        product.train(workspace, TrainRequest(uris=[wrong], **TRAIN))
    product.write_export(workspace, "m", tmp_path / "m.tar")
    back_up(workspace, tmp_path / "copy")
    found = product.find_version(workspace, "m")
    shown = repr([found, job, product.list_models(workspace), made])
    shown += str(problem_of(raised.value).body()) + str(raised.value)
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
@pytest.mark.parametrize("is_remote", [True, False])
def test_a_uri_with_a_secret_is_refused_before_it_is_kept(workspace, uri, is_remote):
    assert redacted(f"of {uri} it says") == f"of {SECRETS[uri]} it says"
    asked = TrainRequest(uris=[uri], **TRAIN)
    for refused in (
        lambda: product.submit(workspace, asked, is_remote=is_remote),
        lambda: product.submit(workspace, TrainRequest(uris=["/a"], test_uris=[uri], **TRAIN), is_remote=is_remote),
        lambda: product.train(workspace, asked),
        lambda: product.register_dataset(workspace, DatasetRequest(name="d", uris=[uri], target="class")),
    ):
        with pytest.raises(InvalidRequest, match="carries a secret") as raised:
            refused()
        assert MARK not in str(problem_of(raised.value).body()) and SECRETS[uri] in str(raised.value)
    with pytest.raises(SourceError) as unread:
        raise SourceError(uri, f"cannot be read ({uri}).")
    assert MARK not in str(unread.value) + unread.value.path


@pytest.mark.parametrize(
    "uri",
    [
        "/data/a@b:c.parquet",
        "https://host:8080/a@b",
        "s3://bucket/x?region=eu",
        "abfs://box@account/x",
        "https://h/x?design=1",
        "delta://s3://bucket/x@12",
        "iceberg://file:///x@2026-01-31T12:00",
    ],
)
def test_a_uri_without_a_secret_is_not_changed(uri):
    assert redacted(uri) == uri


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("credentials://nobody/x", "Set FEWPASS_CREDENTIALS_NOBODY"),
        ("credentials://place/../x", "plain names"),
        ("credentials://place/%2e%2e/x", "plain names"),
        ("credentials://place@evil.org/x", "names no credentials"),
        ("credentials:///x", "names no credentials"),
        ("credentials://broken/x", "cannot be opened with its credentials"),
        ("credentials://empty/x", "hold no URI"),
    ],
)
def test_credentials_lead_to_their_place_only_and_errors_do_not_tell_them(monkeypatch, uri, said):
    monkeypatch.setenv("FEWPASS_CREDENTIALS_PLACE", f"https://ana:{MARK}@host/tables")
    monkeypatch.setenv("FEWPASS_CREDENTIALS_BROKEN", f"nothing://ana:{MARK}@host/tables")
    monkeypatch.setenv("FEWPASS_CREDENTIALS_EMPTY", MARK)
    with pytest.raises(SourceError, match=said) as raised:
        filesystem_of(uri)
    assert MARK not in str(raised.value)
    assert unknown_variables({"FEWPASS_CREDENTIALS_PLACE": "x"}) == []


@pytest.mark.parametrize("url", [f"postgresql//ana:{MARK}@host", f"mysql://ana:{MARK}@host/x"])
def test_the_password_of_a_control_database_that_is_none_is_not_told(url):
    with pytest.raises(ControlUnavailable) as raised:
        open_control(url)
    assert MARK not in str(raised.value)
