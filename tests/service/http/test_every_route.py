"""One example request for every route of the OpenAPI document, and the shape of its answer, kept as text in `answers.txt`.

The bodies are the examples of the document itself, so that these are requests that succeed; where a body names a file or an id, the
test puts its own in that place. `python -m tests.service.http.test_every_route` writes the text.
"""

import contextlib
import functools
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import pyarrow.parquet as pq

from service.http.app import create_app
from service.settings import Settings
from service.workspace import Workspace
from storage.monitoring.alert_records import edit_alert_records
from tests.service.asking import client_of, job_at_end, learn
from tests.service.conftest import weather
from tests.service.forks import local_server
from tests.support.http import ALERT, CIRCUIT, Receiver
from tests.support.job_worker import job_worker
from tests.web import serving

KEPT = Path(__file__).with_name("answers.txt")
# A model that answers nothing here: what another has answered is counted a while later.
UNSERVED = {"reference": "forgetting"}
NOTHING: Mapping[str, Any] = MappingProxyType({})
MODEL, DATA, JOB = "/v1/models/{name}", "/v1/datasets/{name}", "/v1/jobs/{job_id}"
VERSION, SCHEDULE = "/v1/models/{reference}", "/v1/schedules/{name}"


class Ask(NamedTuple):
    """A request: what stands in its path, in its query, and in its body beyond the example of the document.

    `store` is the name under which later requests find the id of the answer.
    """

    method: str
    path: str
    at: Mapping[str, Any] = NOTHING
    query: Mapping[str, Any] = NOTHING
    body: Mapping[str, Any] = NOTHING
    content: bytes = b""
    store: str = ""


def get(path: str, **more: Any) -> Ask:
    return Ask("GET", path, **more)


def put(path: str, **more: Any) -> Ask:
    return Ask("PUT", path, **more)


def post(path: str, **more: Any) -> Ask:
    return Ask("POST", path, **more)


def delete(path: str, **more: Any) -> Ask:
    return Ask("DELETE", path, **more)


# Before there is a worker: of jobs that none has taken yet, the states are the same in each run.
WAITING = [
    *(post(f"{JOB}/{verb}", at={"job_id": "{waiting}"}) for verb in ("cancel", "retry")),
    post("/v1/datasets", body={"uris": ["{train}"]}),
    put(f"{DATA}/files/{{file}}", content=b"outlook,humidity,play\nsunny,71.5,yes\n"),
    get("/v1/datasets"),
    *(get(f"{DATA}{rest}") for rest in ("", "/schema", "/profile")),
    post("/v1/jobs", store="job_id"),
    post("/v1/schedules"),
    post(f"{SCHEDULE}/run", store="run"),
]
# In an order in which each finds what it needs. {train} and the like are what a request before has left.
REQUESTS = [
    *(get(path) for path in ("/", "/healthz", "/readyz", "/metrics", "/ping", "/version")),
    *(get(f"/v2{path}") for path in ("", "/health/live", "/health/ready")),
    *(get(f"/v2/models/{{name}}{rest}") for rest in ("", "/ready", "/versions/{version}", "/versions/{version}/ready")),
    post(f"{MODEL}/predict", query={"id": "true", "top_k": "1"}),
    *(post(f"{MODEL}/{verb}") for verb in ("explain", "score", "impute", "query", "whatif")),
    *(post(f"/v2/models/{{name}}{rest}/infer") for rest in ("", "/versions/{version}")),
    post("/invocations"),
    get("/v1/jobs", query={"limit": "1"}),
    *(get(f"{JOB}{rest}") for rest in ("", "/events", "/log")),
    get(f"{JOB}/output", at={"job_id": "{scored}"}),
    get("/v1/receipts"),
    get("/v1/receipts/{receipt_id}"),
    post("/v1/receipts/verify", content=b'{"format":"fewpass receipt 1","signature":"00"}'),
    post(f"{DATA}/rules/withdraw", at={"name": "forgetful"}),
    post(f"{MODEL}/rules/withdraw", at={"name": "forgetting"}),
    post("/v1/keys"),
    get("/v1/keys"),
    delete("/v1/keys/{name}", at={"name": "dashboard"}),
    get("/v1/audit", query={"limit": "1"}),
    get("/v1/models"),
    *(get(f"{VERSION}{rest}") for rest in ("", "/metrics", "/report", "/structure", "/structure.svg", "/lineage")),
    get(f"{VERSION}/families/{{column}}"),
    *(get(f"{VERSION}/{rest}") for rest in ("download", "circuit")),
    get(f"{VERSION}/model.sql", query={"table": "plays"}),
    get(f"{VERSION}/graph.{{form}}"),
    *(get(f"{VERSION}/{rest}", at={"reference": "plant"}) for rest in ("edges.svg", "graph.svg")),
    get(f"{VERSION}/trace.svg", at={"reference": "sky"}),
    get(f"{VERSION}/export"),
    post(f"{MODEL}/import", at={"name": "copy"}, content=b"{export}"),
    *(get(f"{MODEL}{rest}") for rest in ("/versions", "/aliases", "/history", "/retention")),
    put(f"{MODEL}/aliases/{{alias}}"),
    post(f"{MODEL}/aliases/{{alias}}/rollback", at={"alias": "champion"}),
    delete(f"{MODEL}/aliases/{{alias}}"),
    put(f"{VERSION}/tags/{{tag}}"),
    delete(f"{VERSION}/tags/{{tag}}"),
    put(f"{MODEL}/retention"),
    post(f"{MODEL}/prune", query={"keep": "10"}),
    get(f"{MODEL}/monitor"),
    put(f"{MODEL}/monitor"),
    *(get(f"{VERSION}/monitoring{rest}", at=UNSERVED) for rest in ("", "/windows", "/families", "/columns/{column}")),
    *(get(f"{VERSION}/monitoring/{rest}", at=UNSERVED) for rest in ("predictions", "slices", "performance")),
    post(f"{VERSION}/labels"),
    get(f"{MODEL}/alert-rule"),
    put(f"{MODEL}/alert-rule"),
    get("/v1/alerts"),
    *(post(f"/v1/alerts/{{alert}}/{verb}") for verb in ("acknowledge", "mute", "unmute", "resolve")),
    post("/v1/webhooks", body={"url": "{receiver}"}, store="webhook"),
    get("/v1/webhooks"),
    post("/v1/webhooks/{webhook}/test"),
    get("/v1/webhooks/{webhook}/deliveries"),
    delete("/v1/webhooks/{webhook}"),
    get("/v1/schedules"),
    get(SCHEDULE),
    Ask("PATCH", SCHEDULE),
    get(f"{SCHEDULE}/runs"),
    get(f"{MODEL}/promotions"),
    *(post(f"{SCHEDULE}/{verb}") for verb in ("pause", "resume")),
    delete(SCHEDULE),
    post("/v1/datasets/example"),
    delete(f"{MODEL}/versions/{{version}}", at={"version": "2"}),
    delete(MODEL, at={"name": "copy"}),
    delete(f"{DATA}/files/{{file}}"),
    delete(DATA, at={"name": "customers"}),
]


def shape(value: Any) -> Any:
    """The keys and types of a JSON value; of a list, those of its first item, as the others are alike."""
    if isinstance(value, Mapping):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    return "null" if value is None else type(value).__name__


class House(NamedTuple):
    """A server, what stands for the names in its paths and bodies, and its OpenAPI document."""

    client: httpx.Client
    names: dict[str, str]
    document: dict[str, Any]

    def named(self, value: Any) -> Any:
        """With what `names` has in the place of a text such as "{train}"."""
        if isinstance(value, Mapping):
            return {key: self.named(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.named(one) for one in value]
        return self.names[value[1:-1]] if isinstance(value, str) and re.fullmatch(r"{\w+}", value) else value

    def submit(self, job: Mapping[str, Any]) -> str:
        """The id of a job that is asked for."""
        return self.client.post("/v1/jobs", json=dict(job)).json()["id"]

    def body(self, ask: Ask) -> dict[str, Any]:
        """The example of the document, and what the test puts into it."""
        operation = self.document["paths"][ask.path][ask.method.lower()]
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if not content or ask.content:
            return (
                {"content": self.names["export"] if ask.content == b"{export}" else ask.content} if ask.content else {}
            )
        examples = (
            [content["example"]] if "example" in content else [one["value"] for one in content["examples"].values()]
        )
        return {"json": self.named(examples[0] | ask.body)}

    def send(self, ask: Ask) -> httpx.Response:
        path = ask.path
        for name, value in (self.names | self.named(ask.at)).items():
            path = path.replace(f"{{{name}}}", str(value))
        kind = {"content-type": "application/x-tar"} if path.endswith("/import") else {}
        answer = self.client.request(ask.method, path, params=ask.query, headers=kind, **self.body(ask))
        if ask.store:
            self.names[ask.store] = answer.json()["id"]
        if ask.path.endswith("/export"):
            self.names["export"] = answer.content
        return answer


def lines_of(house: House, asks: list[Ask]) -> Iterator[str]:
    """Status, type and shape of the answer of each request."""
    for ask in asks:
        answer = house.send(ask)
        media_type = answer.headers.get("content-type", "nothing").split(";")[0]
        assert answer.status_code < 400, (ask, answer.text)
        yield f"{ask.method} {ask.path} -> {answer.status_code} {media_type}"
        if media_type == "application/json" and answer.content:
            yield json.dumps(shape(answer.json()), indent=1)


def answers(house: House) -> str:
    """The answers of all requests: first those of jobs that wait, then, with a worker, the others."""
    score = {"kind": "score", "model": "play", "uris": [house.names["train"]]}
    house.client.post("/v1/datasets", json={"name": "forgetful", "uris": [house.names["train"]]})
    forget = {"kind": "forget", "where": "outlook = 'rain'"}
    house.submit(forget | {"dataset": "forgetful"})
    house.names.update(receipt_id=house.submit(forget | {"model": "forgetting"}), scored=house.submit(score))
    house.names["waiting"] = house.submit(score)
    lines = list(lines_of(house, WAITING))
    with job_worker(Path(house.names["workspace"])):
        for name in ("receipt_id", "scored", "job_id", "run"):
            job = job_at_end(house.client, house.names[name])
            assert job["state"] == "succeeded", job
        lines.extend(lines_of(house, REQUESTS))
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def house_in(folder: Path) -> Iterator[House]:
    """A server with the models, jobs and alerts that the requests name."""
    train = folder / "train.parquet"
    table = weather(1500, 1)
    pq.write_table(table.rename_columns([*table.column_names[:-1], "play"]), train)
    settings = Settings(
        workspace=folder / "workspace",
        default_model="play",
        webhook_hosts=("127.0.0.1",),
        job_workers=0,
    )
    names = {
        "name": "play",
        "reference": "play@champion",
        "version": "1",
        "train": str(train),
        "workspace": str(settings.workspace),
        "column": "outlook",
    }
    names |= {"file": "monday.csv", "form": "bif", "alias": "checked", "tag": "checked-by", "alert": ALERT["id"]}
    with Workspace(settings) as workspace:
        for name in ("play", "play", "forgetting"):
            learn(workspace, train, name, target="play", aliases=["champion"])
        learn(workspace, train, "sky", learner="gibbs", target=None, parameters=CIRCUIT)
        learn(workspace, train, "plant", learner="orders", target=None, columns={"station": "drop"}, parameters={})
    with edit_alert_records(settings.workspace, "alerts") as alerts:
        alerts[ALERT["id"]] = ALERT

    with serving(Receiver) as address, local_server(settings) as server, client_of(server) as client:
        yield House(client, names | {"receiver": f"http://{address}/hook"}, client.get("/openapi.json").json())


@functools.cache
def described_routes() -> dict[str, Any]:
    return create_app(Settings(workspace=Path("unused"))).openapi()["paths"]


def test_every_route_has_one_request():
    operations = {(m.upper(), path) for path, one in described_routes().items() for m in one}
    asked = [(ask.method, ask.path) for ask in (*WAITING, *REQUESTS)]
    assert sorted(asked) == sorted(operations), "give each route of the OpenAPI document a line in REQUESTS"


def test_every_parameter_of_a_path_has_an_example():
    for path, operations in described_routes().items():
        for operation in operations.values():
            own = [one for one in operation.get("parameters", ()) if one["in"] == "path"]
            assert {one["name"] for one in own} == set(re.findall(r"{(\w+)}", path))
            for one in own:
                examples = [one["example"]] if "example" in one else one["schema"]["examples"]
                pattern = one["schema"].get("pattern", "")
                assert all(re.search(pattern, str(example)) for example in examples), (path, one)


def test_the_answers_have_the_shapes_that_are_stored(tmp_path):
    with house_in(tmp_path) as house:
        assert answers(house) == KEPT.read_text(), (
            "read the difference; python -m tests.service.http.test_every_route writes it"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, house_in(Path(place)) as written:
        KEPT.write_text(answers(written))
