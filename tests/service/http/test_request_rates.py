"""Requests a second of each key: what is refused, with what to do, and that others do not suffer."""

import httpx
import pytest
from starlette.responses import PlainTextResponse

from service.http import security
from service.http.middleware import Telemetry
from service.http.security import Guard, RequestRates
from service.requests.problems import TooManyRequests
from service.settings import Settings
from tests.service.asking import run_apart

KEY = "a-key-of-24-characters-x"


class Clock:
    """Time that stands still unless it is moved."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(security, "time", clock)
    return clock


@pytest.mark.parametrize(("per_s", "at_once"), [(4, 4), (0.5, 1), (1.5, 1)])
def test_a_key_makes_so_many_requests_and_others_theirs(clock, per_s, at_once):
    rates, taken = RequestRates(per_s), 0
    for _ in range(at_once):
        rates.take("ana")
    with pytest.raises(
        TooManyRequests, match=f"Key 'ana' may make {per_s:g} requests a second .* Try again in"
    ) as refused:
        rates.take("ana")
    rates.take("ben")
    clock.now += refused.value.fields["retry_after_s"] + 0.001
    rates.take("ana")
    for _ in range(10_000):  # a hundred seconds at a hundred tries a second
        clock.now += 0.01
        try:
            rates.take("ana")
        except TooManyRequests:
            continue
        taken += 1
    assert taken == pytest.approx(100 * per_s, abs=2)


def test_keys_that_wait_for_nothing_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(security, "MAX_KEYS", 3)
    rates = RequestRates(1)
    for number in range(10):
        rates.take(str(number))
        clock.now += 10
    assert len(rates._due) <= 3


def test_the_answer_is_429_with_the_time_to_wait(clock):
    settings = Settings(require_keys=True, admin_key=KEY, requests_per_s=2)
    app = Telemetry(Guard(PlainTextResponse("here"), settings), 1.0)

    async def asked():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8000"
        ) as client:
            held = {"authorization": f"Bearer {KEY}"}
            told = [await client.get("/v1/models", headers=held) for _ in range(3)]
            told += [await client.post("/v1/models/m/predict", headers=held), await client.get("/healthz")]
            clock.now += 1
            return [*told, await client.post("/v1/models/m/predict", headers=held)]

    answers = run_apart(asked())
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429, 200, 200]
    assert answers[2].headers["retry-after"] == "1" and answers[2].json()["title"] == "Too many requests"
    assert answers[2].headers["content-type"] == "application/problem+json"
