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
either = st.booleans()


def maybe(value):
    return st.sampled_from([value, None])


def may_be(*values):
    return st.sampled_from(values)


def some(each):
    """A list of at most two; of a value, or of what a strategy draws."""
    return st.lists(each if isinstance(each, Strategy) else st.just(each), max_size=2)


def names(**whole):
    """A mapping of which any name may be absent."""
    return st.sets(st.sampled_from(sorted(whole))).map(lambda kept: {name: whole[name] for name in kept})


def a(**parts):
    """A mapping that has all of its names."""
    return st.fixed_dictionaries({k: v if isinstance(v, Strategy) else st.just(v) for k, v in parts.items()})


def built(kind, **parts):
    """An object of these parts."""
    return a(**parts).map(lambda drawn: kind(**drawn))


region = {"n_sums": 1, "n_products": 2, "n_leaves": 0}
files = some(names(n_rows=3).map(lambda file: {"path": "a.parquet", **file})).map(tuple)
version_facts = {"name": "rain", "learner": "nb", "n_rows": 0, "sha256": "0" * 64}
version = built(
    ModelVersion,
    **version_facts,
    version=may_be(1, 2),
    parameters=names(k=2, m="auto"),
    dataset=maybe("weather"),
    metrics=names(log_loss=0.5, rmse=None),
    job_id=maybe("job-1"),
    files=files,
    duckdb_path=Path("a"),
    arrow_path=Path("b"),
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
    is_of_rows=either,
)
state = a(
    version=1,
    looked_at="2026-01-01T00:00:00",
    served=5,
    is_drifting=may_be(True, False, None),
    first_cause=maybe("size"),
    log_loss=maybe(0.5),
    log_loss_of=maybe("labels"),
)
states = some(state).map(lambda drawn: {"rain": drawn[0]} if drawn else {})
shown_alert = {"id": "1", "model": "rain", "version": 1, "words": "size", "fired_at": "now"}
alert = a(**shown_alert, resolved_at=maybe("x"), is_muted=either, acknowledged_at=maybe("x"))
rule = a(window="24h", against="training", q=0.01, nats=0.01, points=1.0, rollback_labels=maybe(30), is_muted=False)
column_of_drift = a(
    column="size",
    parents=some("town"),
    quality="",
    is_alarming=either,
    **{name: maybe(0.1) for name in ("family_nats", "family_q", "marginal_nats", "psi", "js")},
)
head = {"name": "rain", "reference": "rain@1", "shown": version}
left_out = some(a(name="station", reason="it is constant"))
dataset = built(
    Dataset,
    name="weather",
    uris=("a",),
    target=maybe("class"),
    created_at=maybe(NOW),
    schema_json=maybe("{}"),
    files=files,
)
nightly = {"name": "nightly", "cron": "0 3 * * *", "timezone": "UTC", "missed": "skip", "job": {"kind": "train"}}
ends = {"low": 0.1, "high": 0.7, "first_at": NOW, "last_at": NOW}
schedule = built(Schedule, **nightly, is_paused=either, next_due_at=maybe(NOW))
compared = a(name="k", left=maybe(1), right=maybe("auto"), difference=maybe(0.5), is_equal=either)
edge = a(column="town", weight=maybe(0.5))
report = ModelReport(
    evaluate(HALVES, [0, 1, 0]),
    {"zero_one_loss": 0.5, "log_loss": 0.7, "rmse": 0.5},
    3,
    ("no", "yes"),
    np.eye(2, dtype=np.int64),
    (Mistake("no", "yes", 1),),
    (Point(0.5, 0.5, 3),),
    (Share("x", 1.0),),
    (("station", "it is constant"),),
    (ColumnRows("x", ("a", "b"), ((1, 0), (0, 2)), 0.1, True), ColumnRows("z", ("a",), ((1,), (0,)), None, False)),
)
promotion = Promotion("rain", "champion", 2, None, False, "", {}, None, None, "", "job-1", NOW)
piece = {"series": 1, "y": 0, "height": 9, "n": 1}
bar = {"label": "a", "x": 0, "width": 9, "n": 1, "pieces": [piece]}
api_key = st.builds(ApiKey, st.just("1"), st.just("ci"), st.just(Role.READ), st.just(NOW), maybe(NOW), maybe(NOW))
hour = {"since": "2026-01-01T00:00:00+00:00", "until": "2026-01-01T01:00:00+00:00", "rows": {"served": 3}}
labelled_hour = {"since": hour["since"], "labelled": 5, "accuracy": 0.5, "expected_accuracy": 0.6, "ece": None}
PAGES: dict[str, Strategy] = {
    "overview.html": a(
        models=some(line),
        search=may_be("", "rain"),
        sort=may_be("name", "loss"),
        is_first=either,
        states=states,
        n_open=names(rain=2),
        next_cursor=maybe("x"),
        jobs=[],
        n_queued=0,
        workspace_path="w",
        example={"dataset": "customers", "target": "customer"},
        formats="Parquet, CSV",
    ),
    "monitoring.html": a(models=some(line), states=states, n_open=names(rain=2), alerts=some(alert)),
    "model.html": a(
        **head,
        versions=some(version),
        next_cursor=maybe("x"),
        metrics=some(may_be("log_loss", "zero_one_loss")),
        damage=maybe("gone"),
        report=maybe(report),
        words=LOSSES,
        most_shares=1,
        state=st.none() | state,
        predict=maybe(Call("POST", "/v1/models/rain/predict", {"records": [{}]})),
        lines=some(a(name="log_loss", last=0.5, points=[(2, 3)], floor=some((1, 2)), floor_last=maybe(0.7), **ends)),
        aliases=names(champion=1),
        history=some(AliasMove("champion", 1, "", NOW)),
        promotions=some(promotion),
        retention=maybe(3),
        others=some("snow"),
    ),
    "compare.html": a(
        name="rain",
        titles=["version 1", "snow@2"],
        n_shared=0,
        **dict.fromkeys(("left", "right"), version),
        **dict.fromkeys(("metrics", "parameters"), some(compared)),
        **dict.fromkeys(("only_left", "only_right"), some(("a", "b"))),
        is_of_same_rows=either,
    ),
    "data.html": a(formats="Parquet, CSV", datasets=some(dataset), next_cursor=maybe("x")),
    "dataset.html": a(
        dataset=dataset,
        has_schema=either,
        left_out=left_out,
        classes=some("yes"),
        columns=some(
            a(name="x", kind="nominal", type="string", n_values=2, has_missing=either, n_folded=0, labels=["a"])
        ),
        target=may_be("", "class"),
        names=some("x"),
        n_rows=0,
        search="",
    ),
    "rows.html": a(
        dataset="weather",
        target=maybe("class"),
        is_sample=either,
        has_target=either,
        why_not=may_be("", "'class' has nulls"),
        n_rows_of_files=5,
        guess=may_be("", "x"),
        rows=some([None]),
        n_rows=1,
        names=["x"],
        shown_classes=["yes"],
        n_columns=2,
        columns=some(a(name="x", kind="nominal", missing=may_be(0.0, 0.5), bars=some(bar))),
        left_out=left_out,
    ),
    "receipts.html": a(
        receipts=some(a(id="job-1", subject="rain", at=NOW, n_rows=3, proof="proved")), next_cursor=maybe("job-1")
    ),
    "receipt.html": a(
        receipt=a(
            id="job-1",
            subject={"model": "rain"},
            rows={"before": 9, "forgotten": 3, "after": 6},
            proof={"status": "proved"},
            versions=a(trained=some({"version": "rain@2"}), still_holding=some("rain@1")),
        ),
        problem=may_be("", "altered"),
    ),
    "audit.html": a(
        lines=st.none()
        | some(a(id=1, at=NOW, actor="key ana", role="admin", action="x", subject="y", origin="", request_id="")),
        next_cursor=maybe("1"),
        faults=some("Line 1 was changed."),
        actor=may_be("", "key ana"),
    ),
    "settings.html": a(
        schedules=some(
            a(
                schedule=schedule,
                runs=some(a(due_at=maybe(NOW), outcome="submitted", job_id=maybe("job-1"))),
                next_runs=some(NOW),
            )
        ),
        cron="@daily",
        timezone="UTC",
        learners={"nb": "naive Bayes"},
        roles=["read"],
        event_kinds=["alert", "job.failed"],
        next_runs=some(NOW),
        cron_problem=maybe("no such time"),
        datasets=some("weather"),
        columns=some("class"),
        of_dataset=maybe("class"),
        models=some("rain"),
        webhooks=st.none()
        | some(
            a(
                webhook=a(id="1", url="https://x.y", models=some("rain"), events=["alert"], created_at="now"),
                deliveries=some(a(at="now", type="t", error=maybe("no"), status=maybe(204))),
            )
        ),
        keys=st.none() | some(api_key),
        needs_keys=either,
        data_roots=some("/data"),
    ),
    "graph.html": a(
        **head,
        start=a(is_of_structures=either, has_arcs=either, target=maybe("class")),
        regions=may_be(None, {}, {1: region}),
        opened=frozenset(),
        columns={1: ["size"]},
        names=["size"],
        around={"size": "/"},
        n_nodes=3,
        n_regions=1,
        steps=1,
        n_columns=3,
        n_shown=3,
        unit="log loss",
        picture="",
        is_compiled=either,
        focus=may_be("", "town"),
        window=may_be("", "24h"),
        drift=may_be({}, {"drift": "24h", "until": "2026-01-31T12:00:00+00:00"}),
        until=maybe(NOW),
        blamed=names(size="changed: 1 of added log loss"),
        outline=some(a(column="size", of_class=maybe(0.1), parents=some(edge))),
        target=maybe("class"),
        links=may_be({"size": "/", 1: "/"}, {1: None}),
    ),
    "monitoring_model.html": a(
        **head,
        window="24h",
        windows=["24h"],
        span="24h",
        labels_span="7d",
        step="1h",
        against="training",
        references=["training"],
        until=maybe(NOW),
        reason=maybe("none"),
        earlier=some(1),
        alerts=some(alert),
        rule=rule,
        found=a(
            is_drifting=either,
            rows=a(served=1, counted=1),
            since=NOW.isoformat(),
            until=NOW.isoformat(),
            drift_nats=maybe(0.5),
            gaps=some({}),
            causes=some(a(words="size")),
            estimated=names(accuracy=0.5, log_loss=None).map(lambda drawn: {**drawn, "caveat": "if"}),
        ),
        columns=some(column_of_drift),
        pictures=some(a(column="size", labels=["a"], window_shares=[0.5], expected_shares=[None])),
        timeline=a(windows=some(names(drift_nats=0.5).map(lambda drawn: {**hour, "is_drifting": None, **drawn}))),
        performance=names(
            why="none",
            accuracy=0.5,
            delay_s={"median": 1.0, "p90": 2.0},
            calibration=[{"n": 5, "confidence": 0.5, "accuracy": 0.5}],
            over_time=[labelled_hour],
        ),
        predicted=st.none() | a(classes=["no"], rows=some(a(**{"from": 0.5}, counts=[None]))),
        column=st.none()
        | a(column="size", labels=["a"], window_shares=maybe(0.5).map(lambda share: [share]), expected_shares=[None]),
    ),
}
# Their pages are made from one object that has all names; job.html has a test of its own.
WHOLE = "base macros login problem docs docs_read family what_if train jobs job licences"


def test_no_template_is_left_out():
    assert {path.name for path in TEMPLATES.glob("*.html")} == {*PAGES, *(f"{name}.html" for name in WHOLE.split())}


@pytest.mark.parametrize("template", PAGES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_page_stands_whatever_is_absent(template, data):
    page = data.draw(PAGES[template])
    may = dict.fromkeys(("read", "predict", "train", "admin"), data.draw(either))
    shared = {"path": "/", "same_page": "/", "role": None, "may": may, "has_session": data.draw(either), "calls": ()}
    text = page_template_environment().get_template(template).render(shared | dict(page))
    assert text.count("<h1>") == 1 and "</html>" in text and ">None<" not in text
