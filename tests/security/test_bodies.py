"""Without a key no body is read beyond what its path needs, and what a request has begun ends when nobody waits for it."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import anyio.to_thread
import numpy as np
import pytest
from starlette.testclient import TestClient

from learners.circuits.map.solvers import look_up
from learners.errors import Cancelled
from learners.models.explanation import explain
from learners.passes.threads import available_cores
from learners.schema.encoding.json_records import encode_json_records
from service.http.api import resources
from service.http.api.bodies import InFlight
from service.http.api.resources import Openings
from service.http.api.scoring.predict import Predict
from service.http.app import create_app
from service.http.middleware import MAX_QUERY_BYTES, SIGN_IN_BYTES, BodyLimit, Deadlines
from service.http.security import OPEN
from service.product.datasets import registration
from service.product.inference import what_if_answers
from service.product.inference.queries import answer_model_queries, query_deadline_check
from service.product.inference.what_if_answers import PARTS, WhatIfRequest
from service.requests.abandonment import ASKED, Asked, check_still_asked
from service.requests.requests import MOST_CONDITION_CHARACTERS, ForgetRequest
from service.serving import predictor
from service.settings import Settings
from tests.processes import wait_for

CHUNK = 64 << 10


class Client:
    """Sends a body for as long as it is asked for, then leaves when it is told to; counts what was taken of it."""

    def __init__(self, n_bytes, announces=True):
        self.n_bytes, self.n_taken = n_bytes, 0
        self.headers = [(b"content-length", str(n_bytes).encode())] if announces else []
        self.leaves, self.sent = asyncio.Event(), []

    async def receive(self):
        if self.n_taken >= self.n_bytes:
            await self.leaves.wait()
            return {"type": "http.disconnect"}
        piece = min(CHUNK, self.n_bytes - self.n_taken)
        self.n_taken += piece
        return {"type": "http.request", "body": b"x" * piece, "more_body": self.n_taken < self.n_bytes}

    async def send(self, message):
        self.sent.append(message)

    @property
    def status(self):
        return self.sent[0]["status"]


def scope_of(client, method, path, **more):
    """A request as it comes from `Telemetry`, which reads the headers once for all."""
    headers = {"headers": client.headers, "fewpass.headers": dict(client.headers)}
    return {"type": "http", "method": method, "path": path, **headers, **more}


async def answering(scope, receive, send):
    """What a route does that reads its body, and one that does not."""
    if scope["path"] == "/console/session":
        await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("announces", [True, False])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("path", sorted({*OPEN, "/console/static/x.js", "/console/session/"}))
def test_paths_that_are_open_to_all_read_no_body_but_that_of_the_sign_in(path, method, announces):
    async def asked(n_bytes):
        client, held = Client(n_bytes, announces), InFlight(1 << 40)
        await BodyLimit(answering, Settings(), held)(scope_of(client, method, path), client.receive, client.send)
        assert held.n_bytes == 0
        return client

    client = asyncio.run(asked(33_000_000))
    signs_in = path == "/console/session" and method == "POST"
    assert client.n_taken == (0 if not signs_in or announces else CHUNK)
    assert client.status == (413 if signs_in else 200)
    if signs_in:
        assert asyncio.run(asked(SIGN_IN_BYTES)).status == 200


def test_with_a_key_a_body_is_read_as_far_as_its_path_may():
    async def asked(path):
        client = Client(MAX_QUERY_BYTES + 1, announces=False)
        app = BodyLimit(answering, Settings(), InFlight(1 << 40))
        await app(scope_of(client, "POST", path, **{"fewpass.role": "predict"}), client.receive, client.send)
        return client

    assert asyncio.run(asked("/v1/models/m/query")).status == 413
    assert asyncio.run(asked("/v1/datasets")).n_taken > MAX_QUERY_BYTES


# What is begun ends


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("end", ["client leaves", "deadline", "server stops"])
def test_a_thread_ends_when_nobody_waits_for_its_answer(end, method):
    steps, has_begun, has_ended = [], threading.Event(), threading.Event()

    def work():
        has_begun.set()
        try:
            while len(steps) < 100_000:
                steps.append(1)
                check_still_asked()
                threading.Event().wait(0.001)
        finally:
            has_ended.set()

    async def app(scope, receive, send):
        del scope, receive, send
        await anyio.to_thread.run_sync(work)

    async def asked():
        client = Client(1 if method == "POST" else 0)
        limited = BodyLimit(app, Settings(), InFlight(1 << 40))
        outer = Deadlines(limited, 0.05) if end == "deadline" else limited
        scope = scope_of(client, method, "/v1/models/m/whatif", **{"fewpass.role": "predict", "fewpass.started": 0.0})
        request = asyncio.create_task(outer(scope, client.receive, client.send))
        request.add_done_callback(lambda _: has_begun.set())  # what is refused begins no work
        assert await asyncio.to_thread(has_begun.wait, 60)
        assert not request.done(), f"The request ended before its work began: {request.result()} {client.sent}"
        if end == "deadline":
            sweeping = asyncio.create_task(outer.sweep())
        elif end == "client leaves":
            client.leaves.set()
        else:
            request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        if end == "deadline":
            sweeping.cancel()
            assert client.status == 503
        await asyncio.to_thread(has_ended.wait, 60)

    asyncio.run(asked())
    assert has_ended.is_set() and len(steps) < 100_000


@pytest.fixture
def abandoned():
    asked = Asked()
    token = ASKED.set(asked)
    asked.is_abandoned = True
    yield
    ASKED.reset(token)


@pytest.mark.usefixtures("abandoned")
def test_queries_what_ifs_and_searches_look_whether_somebody_waits():
    with pytest.raises(Cancelled, match="The client no longer waits for this answer"):
        query_deadline_check(float("inf"), 10.0)()
    with pytest.raises(Cancelled, match="The client no longer waits for this answer"):
        check_still_asked()


def test_a_search_looks_up_while_it_goes_on(site):
    model = site.learn("searched", "kdb", k=2)
    looks = []
    from learners.models.query import Map

    answer_model_queries(model_of(model), [Map(solver="exact", time_limit_s=5.0)], lambda: looks.append(1))
    assert looks and look_up.get() is not None


def model_of(version):
    from learners.registry.model_kinds import load_model
    from storage.models.compiled import map_compiled

    return load_model(*map_compiled(version.arrow_path))


@pytest.mark.parametrize("member", ["parts", "columns", "present", "absent"])
def test_lists_of_a_what_if_are_sets_of_bounded_size(member):
    value = "completion" if member == "parts" else "a"
    most = len(PARTS) if member == "parts" else what_if_answers.MOST_NAMES
    assert getattr(WhatIfRequest(**{member: [value] * most}), member) == [value]
    with pytest.raises(ValueError, match=f"at most {most}"):
        WhatIfRequest(**{member: [value] * (most + 1)})


def test_a_what_if_of_many_equal_parts_is_refused_by_the_server(site):
    body = {"parts": ["completion"] * 100_000}
    answer = site.client.post("/v1/models/weather/whatif", json=body)
    assert answer.status_code in (413, 422), json.dumps(answer.json())[:200]
    assert site.client.post("/v1/models/weather/whatif", json={"parts": ["posterior"] * 6}).json()["parts"].keys() == {
        "posterior"
    }


def test_a_name_is_registered_by_one_process_at_a_time():
    running, most, names = [0], [0], ["one"] * 6 + ["other"]

    def register(name):
        with registration._one_at_a_time(name):
            running[0] += name == "one"
            most[0] = max(most[0], running[0])
            threading.Event().wait(0.005)
            running[0] -= name == "one"

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(register, names))
    assert most == [1] and not registration._names


def test_what_ifs_that_compute_leave_the_threads_of_lists_free():
    """Fifty of them, which nobody could tell from honest ones, run four at a time and hold no thread while they wait."""
    running, most, n_threads, gate = [0], [0], [0], threading.Event()
    n_places = max(resources.LEAST_COMPUTING, available_cores())

    def work():
        running[0] += 1
        most[0] = max(most[0], running[0])
        gate.wait(60)
        running[0] -= 1

    async def asked():
        computing = Openings(8).computing
        what_ifs = [asyncio.create_task(computing.run(work)) for _ in range(50)]
        async with asyncio.timeout(60):
            while running[0] < n_places:
                await asyncio.sleep(0.001)
        await anyio.to_thread.run_sync(lambda: None)  # what a list needs
        n_threads[0] = anyio.to_thread.current_default_thread_limiter().borrowed_tokens
        gate.set()
        await asyncio.gather(*what_ifs)

    asyncio.run(asked())
    assert most[0] == n_places and n_threads == [0]


def test_what_takes_long_computes_beside_queries_and_not_beside_lists(site):
    model, calls = site.learn("beside", "kdb", k=1), []

    class Recording:
        async def run(self, work, *arguments):
            calls.append(1)
            return await anyio.to_thread.run_sync(work, *arguments)

    settings = Settings(workspace=site.workspace, warm_up=False, job_workers=0)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        wait_for(lambda: client.get("/readyz").status_code == 200)
        client.app.state.opening.computing = Recording()
        for n, path in enumerate(["explain", "score", "impute"]):
            answer = client.post(f"/v1/models/{model.name}/{path}", json={"records": [{}]})
            assert (answer.status_code, len(calls)) == (200, n + 1), answer.text
        calls.clear()
        for n, path in enumerate(
            ["structure.svg", "graph.bif", "model.sql?table=t", "circuit", "edges.svg", "trace.svg"]
        ):
            answer = client.get(f"/v1/models/{model.name}/{path}")
            assert answer.status_code == (422 if path in ("edges.svg", "trace.svg") else 200), answer.text
            assert len(calls) == n + 1


def test_an_explanation_ends_when_nobody_waits_for_it(site):
    model = model_of(site.learn("explained", "tan", average=True))
    chunk = encode_json_records([{}, {"outlook": "rain"}], model.schema)
    looks = []
    whole = explain(model, chunk).contributions
    np.testing.assert_array_equal(explain(model, chunk, lambda: looks.append(1)).contributions, whole)
    n_looks = len(looks)
    assert n_looks >= 2

    def leave():
        looks.append(1)
        raise Cancelled("gone")

    with pytest.raises(Cancelled, match="gone"):
        explain(model, chunk, leave)
    assert len(looks) == n_looks + 1


def test_many_rows_are_predicted_in_parts_as_long_as_somebody_waits(site, monkeypatch):
    version = site.learn("in-parts", "kdb", k=1, estimator="hdp-map")
    served = predictor.map_model_version(version)
    chunk = encode_json_records([{"outlook": word} for word in ("rain", "sunny", None)] * 7, served.schema)
    whole = served.predict_proba(chunk), *served.credible_intervals(chunk, 0.9)
    monkeypatch.setattr(predictor, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(predictor, "INTERVALS_AT_ONCE", 5)
    for one, other in zip(whole, (served.predict_proba(chunk), *served.credible_intervals(chunk, 0.9)), strict=True):
        np.testing.assert_array_equal(one, other)
    asked = Asked()
    token = ASKED.set(asked)
    try:
        asked.is_abandoned = True
        for ask in (lambda: served.predict_proba(chunk), lambda: served.credible_intervals(chunk, 0.9)):
            with pytest.raises(Cancelled):
                ask()
    finally:
        ASKED.reset(token)


def test_a_large_prediction_ends_when_its_client_leaves(monkeypatch):
    has_begun, steps = threading.Event(), []

    def work(*_given):
        has_begun.set()
        while len(steps) < 60_000:
            steps.append(1)
            check_still_asked()
            threading.Event().wait(0.001)

    async def served(_reference):
        return SimpleNamespace(schema=SimpleNamespace(n_classes=2))

    async def asked():
        predict, client = Predict(Settings(), InFlight(1 << 40)), Client(100_000)
        monkeypatch.setattr(predict, "served", served)
        monkeypatch.setattr(predict, "answer_batch", work)
        more = {"query_string": b"", "fewpass.is_hot": True}
        scope = scope_of(client, "POST", "/v1/models/m/predict", **more)
        scope["fewpass.headers"][b"content-type"] = b"application/json"
        request = asyncio.create_task(predict(scope, client.receive, client.send))
        assert await asyncio.to_thread(has_begun.wait, 60)
        client.leaves.set()
        await request

    asyncio.run(asked())
    assert 0 < len(steps) < 60_000


def test_conditions_of_one_job_have_a_bounded_length_together():
    conditions = [f"a = '{number:0>992}'" for number in range(50)]
    assert sum(map(len, conditions)) <= MOST_CONDITION_CHARACTERS
    assert len(ForgetRequest(dataset="d", where=conditions).conditions) == 50
    with pytest.raises(ValueError, match="50,000 characters together; forget in several jobs"):
        ForgetRequest(dataset="d", where=[*conditions, "b = " + "1" * 1_000])
