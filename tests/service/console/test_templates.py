"""Every template stands when whatever may be absent is: empty lists, no values, names that a kind of model lacks."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import service.console
from learners.evaluation.metrics import evaluate
from learners.evaluation.model_report import ColumnRows, Mistake, ModelReport, Point, Share
from service.console.pages import Call, page_template_environment
from service.product.views.reports import LOSSES
from storage.control.api_keys_and_sessions import ApiKey, Role
from storage.control.schedule_records import Schedule
from storage.datasets.dataset_definitions import Dataset
from storage.models.aliases import AliasMove
from storage.models.model_versions import ModelVersion
from storage.models.promotions import Promotion

TEMPLATES = Path(service.console.__file__).parent / "templates"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HALVES = np.full((3, 2), 0.5)
Strategy = st.SearchStrategy


def maybe(value):
    return st.sampled_from([value, None])


def some(each):
    return st.lists(each, max_size=2)


def names(**whole):
    """A mapping of which any name may be absent."""
    return st.sets(st.sampled_from(sorted(whole))).map(lambda kept: {name: whole[name] for name in kept})


def a(**parts):
    """A mapping that has all of its names."""
    return st.fixed_dictionaries({k: v if isinstance(v, Strategy) else st.just(v) for k, v in parts.items()})


region = {"n_sums": 1, "n_products": 2, "n_leaves": 0}
version = st.builds(
    ModelVersion,
    name=st.just("rain"),
    version=st.sampled_from([1, 2]),
    learner=st.just("nb"),
    parameters=names(k=2, m="auto"),
    dataset=maybe("weather"),
    metrics=names(log_loss=0.5, rmse=None),
    job_id=maybe("job-1"),
    files=st.lists(names(n_rows=3).map(lambda file: {"path": "a.parquet", **file}), max_size=2).map(tuple),
    n_rows=st.just(0),
    sha256=st.just("0" * 64),
    duckdb_path=st.just(Path("a")),
    arrow_path=st.just(Path("b")),
    tags=names(note="x" * 300),
    created_at=maybe(NOW),
)
line = a(
    name="rain",
    n_versions=1,
    latest=1,
    aliases=names(champion=1),
    champion=maybe(1),
    served=st.none() | version,
    metrics=names(log_loss=0.5, zero_one_loss=0.1, log_likelihood=None),
    is_of_rows=st.booleans(),
)
state = a(
    version=1,
    looked_at="2026-01-01T00:00:00",
    served=5,
    is_drifting=st.sampled_from([True, False, None]),
    first_cause=maybe("size"),
    log_loss=maybe(0.5),
    log_loss_of=maybe("labels"),
)
states = some(state).map(lambda found: {"rain": found[0]} if found else {})
alert = a(
    id="1",
    model="rain",
    version=1,
    words="size",
    fired_at="now",
    resolved_at=maybe("x"),
    is_muted=st.booleans(),
    acknowledged_at=maybe("x"),
)
rule = a(window="24h", against="training", q=0.01, nats=0.01, points=1.0, rollback_labels=maybe(30), is_muted=False)
column_of_drift = a(
    column="size",
    parents=some(st.just("town")),
    quality="",
    is_alarming=st.booleans(),
    family_nats=maybe(0.5),
    family_q=maybe(0.1),
    marginal_nats=maybe(0.1),
    psi=maybe(0.1),
    js=maybe(0.1),
)
head = {"name": "rain", "reference": "rain@1", "shown": version}
dataset = st.builds(
    Dataset,
    name=st.just("weather"),
    uris=st.just(("a",)),
    target=maybe("class"),
    created_at=maybe(NOW),
    schema_json=maybe("{}"),
    files=st.lists(names(n_rows=3).map(lambda file: {"path": "a.parquet", **file}), max_size=2).map(tuple),
)
schedule = st.builds(
    Schedule,
    name=st.just("nightly"),
    cron=st.just("0 3 * * *"),
    timezone=st.just("UTC"),
    missed=st.just("skip"),
    job=st.just({"kind": "train"}),
    is_paused=st.booleans(),
    next_due_at=maybe(NOW),
)
compared = a(name="k", left=maybe(1), right=maybe("auto"), difference=maybe(0.5), is_equal=st.booleans())
edge = a(column="town", weight=maybe(0.5))
PAGES: dict[str, Strategy] = {
    "overview.html": a(
        models=some(line),
        search=st.sampled_from(["", "rain"]),
        sort=st.sampled_from(["name", "loss"]),
        is_first=st.booleans(),
        states=states,
        n_open=names(rain=2),
        next_cursor=maybe("x"),
        jobs=[],
        n_queued=0,
        workspace_path="w",
    ),
    "monitoring.html": a(models=some(line), states=states, n_open=names(rain=2), alerts=some(alert)),
    "model.html": a(
        **head,
        versions=some(version),
        next_cursor=maybe("x"),
        metrics=some(st.sampled_from(["log_loss", "zero_one_loss"])),
        damage=maybe("gone"),
        report=maybe(
            ModelReport(
                evaluate(HALVES, [0, 1, 0]),
                {"zero_one_loss": 0.5, "log_loss": 0.7, "rmse": 0.5},
                3,
                ("no", "yes"),
                np.eye(2, dtype=np.int64),
                (Mistake("no", "yes", 1),),
                (Point(0.5, 0.5, 3),),
                (Share("x", 1.0),),
                (("station", "it is constant"),),
                (
                    ColumnRows("x", ("a", "b"), ((1, 0), (0, 2)), 0.1, True),
                    ColumnRows("z", ("a",), ((1,), (0,)), None, False),
                ),
            )
        ),
        words=LOSSES,
        most_shares=1,
        state=st.none() | state,
        predict=maybe(Call("POST", "/v1/models/rain/predict", {"records": [{}]})),
        lines=some(a(name="log_loss", last=0.5, points=[(2, 3)], floor=some(st.just((1, 2))), floor_last=maybe(0.7))),
        aliases=names(champion=1),
        history=some(st.just(AliasMove("champion", 1, "", NOW))),
        promotions=some(st.just(Promotion("rain", "champion", 2, None, False, "", {}, None, None, "", "job-1", NOW))),
        retention=maybe(3),
        others=some(st.just("snow")),
    ),
    "compare.html": a(
        name="rain",
        left=version,
        right=version,
        metrics=some(compared),
        parameters=some(compared),
        titles=["version 1", "snow@2"],
        is_of_same_rows=st.booleans(),
        only_left=some(st.just(("a", "b"))),
        only_right=some(st.just(("a", "b"))),
        n_shared=0,
    ),
    "data.html": a(datasets=some(dataset), next_cursor=maybe("x")),
    "dataset.html": a(
        dataset=dataset,
        n_rows=0,
        has_schema=st.booleans(),
        left_out=some(a(name="station", reason="it is constant")),
        classes=some(st.just("yes")),
        columns=some(
            a(name="x", kind="nominal", type="string", n_values=2, has_missing=st.booleans(), n_folded=0, labels=["a"])
        ),
        target=st.sampled_from(["", "class"]),
        names=some(st.just("x")),
        search="",
    ),
    "rows.html": a(
        dataset="weather",
        target=maybe("class"),
        is_sample=st.booleans(),
        has_target=st.booleans(),
        guess=st.sampled_from(["", "x"]),
        n_rows=1,
        names=["x"],
        rows=some(st.just([None])),
        shown_classes=["yes"],
        columns=some(
            a(
                name="x",
                kind="nominal",
                missing=st.sampled_from([0.0, 0.5]),
                bars=some(
                    st.just(
                        {
                            "label": "a",
                            "x": 0,
                            "width": 9,
                            "n": 1,
                            "pieces": [{"series": 1, "y": 0, "height": 9, "n": 1}],
                        }
                    )
                ),
            )
        ),
        n_columns=2,
        left_out=some(a(name="station", reason="it is constant")),
    ),
    "settings.html": a(
        schedules=some(
            a(
                schedule=schedule,
                runs=some(a(due_at=maybe(NOW), outcome="submitted", job_id=maybe("job-1"))),
                next_runs=some(st.just(NOW)),
            )
        ),
        cron="@daily",
        timezone="UTC",
        next_runs=some(st.just(NOW)),
        cron_problem=maybe("no such time"),
        datasets=some(st.just("weather")),
        columns=some(st.just("class")),
        of_dataset=maybe("class"),
        models=some(st.just("rain")),
        learners={"nb": "naive Bayes"},
        webhooks=st.none()
        | some(
            a(
                webhook=a(id="1", url="https://x.y", models=some(st.just("rain")), created_at="now"),
                deliveries=some(a(at="now", type="t", error=maybe("no"), status=maybe(204))),
            )
        ),
        keys=st.none()
        | some(
            st.builds(ApiKey, st.just("1"), st.just("ci"), st.just(Role.READ), st.just(NOW), maybe(NOW), maybe(NOW))
        ),
        roles=["read"],
        needs_keys=st.booleans(),
        data_roots=some(st.just("/data")),
    ),
    "graph.html": a(
        **head,
        start=a(is_of_structures=st.booleans(), has_arcs=st.booleans(), target=maybe("class")),
        regions=st.sampled_from([None, {}, {1: region}]),
        opened=frozenset(),
        columns={1: ["size"]},
        n_nodes=3,
        n_regions=1,
        is_compiled=st.booleans(),
        focus=st.sampled_from(["", "town"]),
        window=st.sampled_from(["", "24h"]),
        drift=st.sampled_from([{}, {"drift": "24h", "until": "2026-01-31T12:00:00+00:00"}]),
        until=maybe(NOW),
        blamed=names(size="changed: 1 of added log loss"),
        steps=1,
        n_columns=3,
        n_shown=3,
        names=["size"],
        unit="log loss",
        picture="",
        outline=some(a(column="size", of_class=maybe(0.1), parents=some(edge))),
        target=maybe("class"),
        around={"size": "/"},
        links=st.sampled_from([{"size": "/", 1: "/"}, {1: None}]),
    ),
    "monitoring_model.html": a(
        **head,
        window="24h",
        windows=["24h"],
        span="24h",
        labels_span="7d",
        step="1h",
        until=maybe(NOW),
        against="training",
        references=["training"],
        reason=maybe("none"),
        alerts=some(alert),
        rule=rule,
        found=a(
            is_drifting=st.booleans(),
            rows=a(served=1, counted=1),
            drift_nats=maybe(0.5),
            gaps=some(st.just({})),
            causes=some(a(words="size")),
            estimated=names(accuracy=0.5, log_loss=None).map(lambda told: {**told, "caveat": "if"}),
        ),
        columns=some(column_of_drift),
        pictures=some(a(column="size", labels=["a"], window_shares=[0.5], expected_shares=[None])),
        timeline=a(
            windows=some(
                names(drift_nats=0.5).map(
                    lambda told: {
                        "since": "2026-01-01T00:00:00+00:00",
                        "until": "2026-01-01T01:00:00+00:00",
                        "rows": {"served": 3},
                        "is_drifting": None,
                        **told,
                    }
                )
            )
        ),
        performance=names(
            why="none",
            accuracy=0.5,
            delay_s={"median": 1.0, "p90": 2.0},
            calibration=[{"n": 5, "confidence": 0.5, "accuracy": 0.5}],
            over_time=[
                {
                    "since": "2026-01-01T00:00:00+00:00",
                    "labelled": 5,
                    "accuracy": 0.5,
                    "expected_accuracy": 0.6,
                    "ece": None,
                }
            ],
        ),
        predicted=st.none() | a(classes=["no"], rows=some(a(**{"from": 0.5}, counts=[None]))),
        column=st.none()
        | a(column="size", labels=["a"], window_shares=some(maybe(0.5)), expected_shares=[None]).filter(
            lambda told: len(told["window_shares"]) == 1
        ),
    ),
}
# Their pages are made from one object that has all names; job.html has a test of its own.
WHOLE = {
    "base.html",
    "macros.html",
    "login.html",
    "problem.html",
    "docs.html",
    "docs_read.html",
    "family.html",
    "what_if.html",
    "train.html",
    "jobs.html",
    "job.html",
    "licences.html",
}


def test_no_template_is_left_out():
    assert {path.name for path in TEMPLATES.glob("*.html")} == PAGES.keys() | WHOLE


@pytest.mark.parametrize("template", PAGES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_page_stands_whatever_is_absent(template, data):
    page = data.draw(PAGES[template])
    may = dict.fromkeys(("read", "predict", "train", "admin"), data.draw(st.booleans()))
    shared = {"path": "/", "role": None, "may": may, "has_session": data.draw(st.booleans()), "calls": ()}
    text = page_template_environment().get_template(template).render(shared | dict(page))
    assert text.count("<h1>") == 1 and "</html>" in text and ">None<" not in text
