"""The dashboard for Grafana and the alerts for Prometheus ask for series that servers have."""

import re
from pathlib import Path

import yaml
from prometheus_client import REGISTRY

from service import telemetry

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-monitoring.json"


MONITORED = {f"fewpass_monitor_{name}" for name in telemetry.SERIES}


UNSHOWN = {"fewpass_monitor_window_end_timestamp_seconds", "fewpass_monitor_label_delay_seconds"}


ENDINGS = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}


def known_series():
    """All that a server has, by the names of Prometheus."""
    own = {f"{metric.name}{end}" for metric in REGISTRY.collect() for end in ENDINGS.get(metric.type, [""])}
    return MONITORED | own


def test_every_series_of_the_dashboard_exists_and_every_monitored_one_is_on_it():
    asked = set(re.findall(r"fewpass_[a-z0-9_]+", DASHBOARD.read_text(encoding="utf-8")))
    assert asked - known_series() == set()
    assert MONITORED - asked <= UNSHOWN


def test_every_series_of_the_alerts_exists():
    (group,) = yaml.safe_load(DASHBOARD.with_name("prometheus-alerts.yml").read_text(encoding="utf-8"))["groups"]
    expressions = " ".join(rule["expr"] for rule in group["rules"])
    asked = set(re.findall(r"\bfewpass_[a-z0-9_]+", expressions))
    assert len(asked) > 4 and asked - known_series() == set()
    recorded = {rule["record"] for rule in group["rules"] if "record" in rule}
    assert set(re.findall(r"fewpass:[a-z0-9_:]+", expressions)) == recorded
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in alerts)
