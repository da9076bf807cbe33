"""The pages over a real server: what they show, that they run nothing inline, and that names stay text."""

import gzip
import html
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from importlib.resources import files
from types import SimpleNamespace
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from service import product
from service.console.pages import interval_words, page_template_environment
from service.console.screens.job_screens import parse_job_log_line
from service.console.screens.model_screens import version_metric_sparkline
from service.http.app import create_app
from service.jobs.queue import Job, State
from service.product.monitoring.monitoring_states import (
    delete_monitoring_states,
    load_monitoring_states,
    save_monitoring_state,
)
from service.requests.json_values import JSONObject
from service.requests.requests import DatasetRequest, ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.datasets.receipts import Receipts

PATHS = [
    "",
    *(f"/models/weather{page}" for page in ("", "@1", "/compare?left=1&right=1", "/what-if", "/monitoring")),
    *("/monitoring", "/jobs", "/jobs?state=failed", "/train", "/train?learner=kdb", "/data", "/settings", "/login"),
    *("/receipts", "/audit", "/audit?actor=nobody"),
]
PAGES = [*(f"/console{path}" for path in PATHS), "/docs", "/docs/read", "/docs/licences"]
BROWSER = {"accept": "text/html,application/xhtml+xml", "sec-fetch-site": "none"}
HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e{{7*7}}</script>"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REQUEST: JSONObject = {"model": "rain", "dataset": "weather", "train": {"model": "rain"}}
RESULT: JSONObject = {"model": "rain", "version": 2, "is_dry_run": True}


class Reader(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def read(text):
    reader = Reader()
    reader.feed(text)
    return reader


def as_program(client, path):
    """What a page says to a program."""
    return client.get(path, headers={"accept": "application/json"})


def page(client, path):
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == 200, (path, answer.text[:500])
    return answer


@pytest.mark.parametrize("path", PAGES)
def test_a_page_runs_nothing_but_our_files_which_are_there(site, path):
    answer = page(site.client, path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert "frame-ancestors 'none'" in policy and answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
    for tag, attributes in read(answer.text).tags:
        assert tag != "style" and "style" not in attributes, (tag, attributes)
        assert not [name for name in attributes if name.startswith(("on", "hx-on"))], (tag, attributes)
        if tag == "script" and attributes.get("type") != "application/json":
            assert str(attributes.get("src")).startswith("/console/static/"), attributes
        for name in ("href", "src", "action"):
            link = attributes.get(name)
            assert link is None or link.startswith(("/", "#", "?")), (tag, link)
    for url in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', answer.text):
        file = site.client.get(url)
        assert file.status_code == 200 and "immutable" in file.headers["cache-control"], url
        again = site.client.get(url, headers={"if-none-match": file.headers["etag"]})
        assert again.status_code == 304 and not again.content


def test_every_licence_text_that_came_with_a_vendored_file_is_shown(site):
    assert '<a href="/docs/licences">' in page(site.client, "/console").text
    text = " ".join(read(page(site.client, "/docs/licences").text).text.split())
    for path in files("service.console").joinpath("static", "vendor").iterdir():
        if path.name.endswith(".txt"):
            assert " ".join(path.read_text().split()) in text, path.name


def test_a_browser_finds_the_console_at_the_root_and_a_program_what_the_server_is(site):
    answer = site.client.get("/", headers=BROWSER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    assert site.client.get("/").json()["console"] == "/console"
    page(site.client, "/console/models/weather")
    assert 'route="/console/models/{reference}"' in site.client.get("/metrics").text, "pages are counted by their route"


def test_what_is_missing_is_told_on_a_page_and_similar_models_are_named(site):
    for path, status, words in (
        *((f"/console/{path}", 404, "<h1>Not found</h1>") for path in ("models/nobody", "jobs/none", "data/none")),
        ("/console/models/weather/compare", 422, "?left=1"),
        ("/console/modells", 404, "There is no page /console/modells"),
        ("/console/models/wether", 404, "similar: weather"),
    ):
        answer = site.client.get(path, headers=BROWSER)
        assert answer.status_code == status and words in answer.text, path
        assert answer.headers["content-type"].startswith("text/html")
    assert "weather" in [model["name"] for model in as_program(site.client, "/console").json()["models"]]
    for path in ("/console/models/nobody", "/console/modells"):
        missing = as_program(site.client, path)
        assert missing.status_code == 404 and missing.headers["content-type"] == "application/problem+json"
    assert "similar: weather" in site.client.get("/v1/models/wether").json()["detail"]
    alias = "/v1/models/weather/aliases/nearby"
    assert site.client.put(alias, json={"version": 1}).is_success
    assert "similar: weather@nearby" in site.client.get("/v1/models/weather@nearbi").json()["detail"]
    assert site.client.delete(alias).is_success


def test_a_page_is_packed_for_who_takes_it(site):
    with site.client.stream("GET", "/console", headers=BROWSER | {"accept-encoding": "gzip"}) as answer:
        body = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip" and b"<!doctype html>" in gzip.decompress(body)
    plain = site.client.get("/console", headers=BROWSER | {"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("(-inf, 86.35]", "≤ 86.35"),
        ("(12.65, 15.05]", "12.65 to 15.05"),
        ("(837.5, inf]", "> 837.5"),
        ("(-inf, inf]", "any number"),
        ("(missing)", "(missing)"),
        ("Tern", "Tern"),
    ],
)
def test_intervals_are_read_as_people_write_them(label, words):
    assert interval_words(label) == words


def test_the_explorer_starts_with_the_columns_of_the_model(site, circuit):
    for name, target in (("weather", "class"), (circuit.name, None)):
        text = page(site.client, f"/console/models/{name}/what-if").text
        start = json.loads(re.findall(r'id="start">(.*?)</script>', text, re.DOTALL)[0])
        assert start["target"] == target
        assert {"outlook", "humidity", "windy"} <= {column["name"] for column in start["columns"]}


@pytest.mark.parametrize("learner", ["auto", "nb", "spn", "orders"])
def test_the_form_of_a_training_shows_choices_and_sentences(site, learner):
    """One form, which trains what its own field says; no parameter is JSON to type, and one of auto or five are unfolded."""
    text = page(site.client, f"/console/train?learner={learner}").text
    tags = read(text).tags
    assert [tag["name"] for kind, tag in tags if tag.get("name") == "learner"] == ["learner"]
    own = [(kind, tag) for kind, tag in tags if str(tag.get("name")).startswith("parameters.")]
    assert own and not [tag for kind, tag in own if kind != "select" and tag.get("data-as") == "json"]
    assert "Literal[" not in text and "tuple[" not in text
    unfolded = text[text.index('id="parameters"') :].partition("<details>")[0]
    assert unfolded.count('name="parameters.') == (1 if learner == "auto" else 5)


def test_a_column_is_chosen_where_the_data_set_is_known(site):
    made = site.client.post("/v1/datasets", json={"name": "known", "uris": [str(site.train)], "target": "class"})
    assert made.status_code == 201
    for path, field in (
        ("/console/train?dataset=known", "target"),
        ("/console/settings?job.train.dataset=known", "job.train.target"),
        ("/console/data/known", "prediction_key"),
    ):
        text = page(site.client, path).text
        choices = re.findall(rf'<select name="{field}">(.*?)</select>', text, re.DOTALL)
        assert len(choices) == 1 and "<option>windy</option>" in choices[0], path
    assert '<input name="target" list="names"' in page(site.client, "/console/train").text


def test_receipts_are_listed_shown_and_verified(tmp_path, weather_files):
    settings = Settings(workspace=tmp_path / "w", job_workers=0, warm_up=False)
    with Workspace(settings) as workspace:
        train = TrainRequest(uris=[str(weather_files[0])], model="rain", target="class", learner="nb", update=True)
        product.train_model_version(workspace, train)
        asked = ForgetRequest(model="rain", where="outlook = 'rain' AND windy", prove=False)
        receipt = product.forget_rows(workspace, asked)["receipt"]
    path = f"/console/receipts/{receipt['id']}"
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        listed = page(client, "/console/receipts").text
        assert path in listed and f'href="/v1/receipts/{receipt["id"]}" download' in listed
        assert "The signature is valid" in page(client, path).text
        assert as_program(client, path).json()["receipt"] == receipt
        assert client.get("/console/receipts/job-x", headers=BROWSER).status_code == 404
        # Which a form of the list verifies, as sent.
        form = re.search(r"<form[^>]*/v1/receipts/verify.*?</form>", listed, re.DOTALL)
        assert form and '<input type="file" data-in="body"' in form[0]
        data = client.get(f"/v1/receipts/{receipt['id']}").content
        verdict = client.post("/v1/receipts/verify", content=data).json()
        assert (verdict["verdict"], verdict["id"]) == ("valid", receipt["id"])
        n_rows, before = (receipt["rows"][name] for name in ("forgotten", "before"))
        assert f"is valid: this workspace signed that {n_rows:,} of {before:,} rows were forgotten" in verdict["detail"]
        verdict = client.post("/v1/receipts/verify", content=data.replace(b'"before":', b'"before":1')).json()
        assert verdict["verdict"] == "altered" and "was altered or reformatted" in verdict["detail"]
        other = Receipts(tmp_path)
        other.write("job-1", {"files": []})
        verdict = client.post("/v1/receipts/verify", content=other.read("job-1")).json()
        assert verdict["verdict"] == "unknown key" and "Another key signed the receipt" in verdict["detail"]
        for content, words in ((b"", "is empty"), (b"PAR1", "is not a receipt"), (b"[7]", "is not a receipt")):
            refused = client.post("/v1/receipts/verify", content=content)
            assert refused.status_code == 422 and f"The file {words}: choose one" in refused.json()["detail"]
        file = settings.workspace / "receipts" / f"{receipt['id']}.json"
        text = file.read_text().replace('"forgotten":', '"forgotten":1')
        file.unlink()
        file.write_text(text)
        assert "The signature of the receipt is invalid" in page(client, path).text


def test_the_audit_log_is_shown_and_a_removed_line_is_named(tmp_path):
    settings = Settings(workspace=tmp_path / "w", job_workers=0, warm_up=False)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        for name in ("ana", "ben"):
            assert client.post("/v1/keys", json={"name": name, "role": "read"}).status_code == 201
        lines = as_program(client, "/console/audit").json()
        assert [line["subject"] for line in lines["lines"]] == ["ben", "ana"] and lines["faults"] == []
        actor = lines["lines"][0]["actor"]
        assert as_program(client, f"/console/audit?actor={actor}").json()["lines"] == lines["lines"]
        assert as_program(client, "/console/audit?actor=nobody").json()["lines"] == []
        with Workspace(settings) as workspace, workspace.control.writing() as connection:
            connection.execute(sa.text("UPDATE audit_log SET subject = 'eve' WHERE subject = 'ana'"))
        assert "eve" in page(client, "/console/audit").text and as_program(client, "/console/audit").json()["faults"]


def test_rules_and_webhooks_are_shown_as_they_are(site):
    """Set over REST, and refused there: the pages show what holds, and no secret."""
    path, url = "/v1/models/weather/alert-rule", "https://93.184.216.34/hook"
    rule = site.client.put(path, json={"nats": 0.0375, "is_muted": True}).json()
    tags = read(page(site.client, "/console/models/weather/monitoring").text).tags
    fields = {tag["name"]: tag for kind, tag in tags if kind == "input" and tag.get("name")}
    assert fields["nats"]["value"] == "0.0375" and "checked" in fields["is_muted"]
    assert fields["window"]["value"] == rule["window"] and fields["rollback_labels"]["value"] == ""
    refused = site.client.post("/v1/webhooks", json={"url": "http://127.0.0.1:9/"})
    assert refused.status_code == 422 and "127.0.0.1" in refused.json()["detail"]
    made = site.client.post("/v1/webhooks", json={"url": url, "models": ["weather"]}).json()
    text = page(site.client, "/console/settings").text
    assert url in text and made["secret"] not in text
    assert site.client.get(f"/v1/webhooks/{made['id']}/deliveries").json() == []
    assert site.client.delete(f"/v1/webhooks/{made['id']}").status_code == 204
    assert url not in page(site.client, "/console/settings").text
    site.client.put(path, json={"nats": 0.01, "is_muted": False})


def test_lists_say_as_of_when_they_count_what_is_served(site):
    """A check looks every few minutes; the page of the model counts anew."""
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        save_monitoring_state(
            workspace, "weather", {"version": 1, "rows": {"served": 123_456}, "is_drifting": False}, {}
        )
        moment = load_monitoring_states(workspace)["weather"]["looked_at"]
        text = page(site.client, "/console").text
        words = f"{moment[:10]} {moment[11:16]} UTC"
        assert re.search(
            rf'123,456 <small>as of <time datetime="{re.escape(moment)}"[^>]*>{words}</time></small>', text
        )
        listed = read(monitoring := page(site.client, "/console/monitoring").text)
        assert "as of" in listed.text and '<td class="n">123,456</td>' in monitoring
        assert f'<time datetime="{moment}"' in monitoring
        delete_monitoring_states(workspace.layout.root, ["weather"])


def test_every_page_with_counts_says_as_of_when_and_every_time_names_its_zone(site):
    """Lists and pages; a moment is written in one form, and the browser writes the same form in its own zone."""
    made = site.client.post("/v1/datasets", json={"name": "counted", "uris": [str(site.train)], "target": "class"})
    assert made.status_code == 201, made.text
    for path in ("", "/models/weather", "/monitoring", "/jobs", "/data", "/data/counted"):
        text = page(site.client, f"/console{path}").text
        assert re.search(r'class="as-of">As of <time ', text), path
        times = re.findall(r"<time [^>]*>([^<]*)</time>", text)
        assert times and all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC", each) for each in times), path


def test_few_rows_have_no_badge_and_no_loss(site):
    """Two probes are neither a drift nor a loss: the lists show what the version lost when it was trained."""
    report: JSONObject = {"version": 1, "rows": {"served": 2}, "is_drifting": None, "estimated": {"log_loss": 0.123456}}
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        save_monitoring_state(workspace, "weather", report, {"labelled": 2, "log_loss": 0.654321})
        for path in ("/console", "/console/monitoring"):
            text = page(site.client, path).text
            assert "too few rows" in text and 'class="tag bad"' not in text
            assert "0.123" not in text and "0.654" not in text
        many = report | {"rows": {"served": 2_000}, "is_drifting": True}
        save_monitoring_state(workspace, "weather", many, {"labelled": 500, "log_loss": 0.654321})
        assert "0.654 <small>by labels" in page(site.client, "/console/monitoring").text
        delete_monitoring_states(workspace.layout.root, ["weather"])


def test_names_of_others_stay_text(site):
    """A data set whose columns, values and target are markup; the names of models, jobs and keys cannot be."""
    file = site.workspace.parent / "hostile.parquet"
    column = [HOSTILE, "b"] * 50
    pq.write_table(pa.table({HOSTILE: column, "x": column, "y": ["yes", HOSTILE] * 50}), file)
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        product.register_dataset(workspace, DatasetRequest(name="hostile", uris=[str(file)], target="y"))
    answer = page(site.client, "/console/data/hostile")
    assert HOSTILE in read(answer.text).text and "<img" not in answer.text
    part = HOSTILE.replace("/", "")
    form = f"train?dataset={HOSTILE}&model={HOSTILE}&learner={HOSTILE}"
    for path in (form, f"models/{part}", f"jobs/{part}", f"login?next={HOSTILE}"):
        answer = site.client.get(f"/console/{path}", headers=BROWSER)
        assert answer.headers["content-type"].startswith("text/html") and "<img" not in answer.text


def test_the_model_page_opens_with_the_report_that_rest_tells(site):
    report = site.client.get("/v1/models/weather/report").json()
    text = page(site.client, "/console/models/weather").text
    words = read(text).text
    assert report["verdict"] in words and "Reliability diagram" in text
    assert sum(map(sum, report["confusion"])) == report["n_rows"] == sum(point[2] for point in report["calibration"])
    for row in report["confusion"]:
        assert all(f"{n:,}" in words for n in row)
    version = site.client.get("/v1/models/weather").json()
    assert version["sha256"] in words and f"{version['metrics']['log_loss']:.3g}" in words
    assert "No promotion has been decided yet" in words
    assert version["metrics"]["evaluated_on"] == "hold-out" and "Since training" not in words, "they are of training"
    assert report["metrics"] == {name: version["metrics"][name] for name in report["metrics"]}
    assert report["floor"]["log_loss"] == version["metrics"]["class_shares_log_loss"]
    call = re.findall(r"<code>(curl -X POST .*?/predict)</code>", text, re.DOTALL)
    body = json.loads(html.unescape(call[0]).split("-d '")[1].rpartition("'")[0])
    assert site.client.post("/v1/models/weather/predict", json=body).is_success


def test_a_version_without_a_report_says_how_to_have_one(site, circuit):
    refused = site.client.get(f"/v1/models/{circuit.name}/report")
    assert refused.status_code == 422 and "fewpass report" in refused.json()["detail"]
    assert "log likelihood per row" in page(site.client, f"/console/models/{circuit.name}").text


def test_models_are_found_and_sorted(site, circuit):
    def names(query):
        return [model["name"] for model in as_program(site.client, f"/console{query}").json()["models"]]

    everything = names("")
    assert names("?sort=loss").index("weather") < names("?sort=loss").index(circuit.name), "what has none comes last"
    assert sorted(names("?sort=age")) == sorted(everything)
    site.client.put("/v1/models/weather@1/tags/team", json={"value": "north sea"})
    assert names("?q=team: north") == ["weather"] and names("?q=no-such-model") == []
    assert "No model has" in page(site.client, "/console?q=no-such-model").text
    site.client.delete("/v1/models/weather@1/tags/team")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/console/jobs?state=failed", "jobs"),
        ("/console?q=wea&sort=rows", "models"),
        ("/console/models/weather?limit=1", "versions"),
    ],
)
def test_a_part_that_changes_is_fetched_from_the_page_as_it_is(path, part, site):
    """With its search, order and cursor: or else the newest jobs would take the place of older ones."""
    shown = [tag for _, tag in read(page(site.client, path).text).tags if tag.get("id") == part]
    assert [tag.get("hx-get") for tag in shown] == [path]


def test_a_file_is_uploaded_whole_or_not_at_all(site):
    body = b"size,class\n" + b"".join(b"%d,%s\n" % (k % 7, b"yes" if k % 7 > 3 else b"no") for k in range(300))
    sent = site.client.put("/v1/datasets/sizes/files/sizes.csv", content=iter([body[:100], body[100:]]))
    assert sent.status_code == 201 and sent.json()["n_bytes"] == len(body)
    uri = sent.json()["uri"]
    again = site.client.put("/v1/datasets/sizes/files/sizes.csv", content=body)
    assert again.status_code == 409 and "already exists" in again.json()["detail"]
    made = site.client.post("/v1/datasets", json={"name": "sizes", "uris": [uri], "target": "class"})
    assert made.status_code == 201, made.text
    told = site.client.get("/v1/datasets/sizes/profile").json()
    assert told["rows"][0] == ["0", "no"] and told["n_rows"] == 300
    answer = page(site.client, "/console/data/sizes/rows")
    assert 'class="series-2"' in answer.text and "from 300 rows." in read(answer.text).text
    assert "Column to predict" not in page(site.client, "/console/data/sizes").text, "the data set names it"


def test_of_a_data_set_that_was_too_large_to_look_at_a_sample_offers_the_columns(site, tmp_path):
    settings = Settings(workspace=tmp_path / "w", inline_schema_cells=0, job_workers=0, warm_up=False)
    with Workspace(settings) as workspace:
        product.register_dataset(workspace, DatasetRequest(name="huge", uris=[str(site.train)]), is_remote=True)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        text = page(client, "/console/data/huge/rows").text
        assert "This page shows" not in read(text).text, "it shows all of them"
        assert "not known yet: the data was too large" in read(page(client, "/console/data/huge").text).text
        assert "<option selected>class</option>" in text, "the last one of few values"
        assert "Column to predict" not in page(client, "/console/data/huge").text, "it comes with the sample"
        chosen = page(client, "/console/data/huge?target=class").text
        assert "Train a model that predicts class" in chosen and "rows?target=class" in chosen


def test_a_file_whose_last_column_has_nulls_shows_its_rows_and_another_column_to_predict(site):
    rows = "".join(f"{k % 7},{'yes' if k % 7 > 3 else 'no'},{'' if k % 3 else 'ok'}\n" for k in range(300))
    uri = site.client.put("/v1/datasets/notes/files/notes.csv", content=f"size,class,note\n{rows}".encode()).json()[
        "uri"
    ]
    assert site.client.post("/v1/datasets", json={"name": "notes", "uris": [uri]}).status_code == 201
    assert "Train a model that predicts class" in page(site.client, "/console/data/notes").text
    chosen = page(site.client, "/console/data/notes/rows?target=note").text
    words = read(chosen).text
    assert "is null in at least 200 rows" in words and "null_class" in words, "it says what to do"
    assert "from 300 rows." in words and "<td>no</td>" in chosen, "and shows the rows"


def test_settings_tell_when_a_schedule_would_run(site):
    text = page(site.client, "/console/settings?cron=0 3 * * *&timezone=Europe/Berlin").text
    assert "<label>Condition " in text and "Times, as minute, hour, day, month and weekday (cron)" in text
    told = re.findall(r'<p id="next-runs".*?</p>', text, re.DOTALL)[0]
    assert len(re.findall(r"T0[12]:00:00\+00:00", told)) == 3, told
    wrong = page(site.client, "/console/settings?cron=never&timezone=UTC").text
    assert "a cron expression has five" in wrong


PROGRESS: JSONObject = {"step": "learn", "stage": "count", "pass_number": 1, "n_passes": 2}
PROGRESS |= {"rows_total": 10, "rows_done": 4, "rows_per_s": 3.5, "eta_s": None}


def parts_of(whole):
    return st.sets(st.sampled_from(sorted(whole))).map(lambda names: {name: whole[name] for name in names})


@given(
    state=st.sampled_from(get_args(State)),
    request=parts_of(REQUEST),
    progress=st.none() | parts_of(PROGRESS),
    result=st.none() | parts_of(RESULT),
)
def test_a_job_of_any_kind_has_its_page_and_its_row(state, request, progress, result):
    job = Job("job-1", "any", state, request, progress, result, None, 1, NOW, None, None, None)
    shared = {"path": "/", "role": None, "may": {"train": True, "read": True, "admin": True}, "has_session": False}
    own = {"job": job, "calls": (), "log": [], "n_lines": 0, "traceback": None}
    environment = page_template_environment()
    page = environment.get_template("job.html").render(shared, **own)
    assert ("rain, version 2" in page) == (result is not None and {"model", "version"} <= set(result))
    table = environment.from_string("{% from 'macros.html' import jobs_table %}{{ jobs_table(jobs) }}")
    about = "rain" if "model" in request or "train" in request else "weather" if "dataset" in request else ""
    assert f"<td>{about}</td>" in table.render(jobs=[job])


def test_a_line_of_a_log_is_a_sentence_and_its_traceback_stands_apart():
    line = '{"event": "pass started", "number": 2, "of": 3, "stage": "growing trees", "step": "learn", "job": "job-1"}'
    assert parse_job_log_line(line)["words"] == "Pass 2 of 3 started: growing trees"
    line = '{"event": "step failed", "step": "learn", "error": "No rows.", "exception": "Traceback", "level": "error"}'
    told = parse_job_log_line(line)
    assert (told["words"], told["traceback"]) == ("Step failed: learn. No rows.", "Traceback")
    assert parse_job_log_line("killed")["words"] == "killed"


@pytest.mark.parametrize(
    ("name", "values", "low", "high"),
    [
        ("log_loss", (0.465, 0.470), 0.0, 0.470),
        ("log_likelihood", (-10.0, -10.1), -11.06, -9.04),
        ("log_likelihood", (-10.0, -30.0), -30.0, -10.0),
    ],
)
def test_noise_between_versions_does_not_look_like_a_jump(name, values, low, high):
    """The axis begins at 0, or covers a fifth of the size of the values."""
    versions = [SimpleNamespace(metrics={name: value}, created_at=None) for value in values]
    line = version_metric_sparkline(versions[::-1], name)
    assert (line["low"], line["high"]) == pytest.approx((low, high))
    (_, first), (_, last) = line["points"]
    assert abs(first - last) == pytest.approx(24 * abs(values[0] - values[1]) / (high - low), abs=0.15)
