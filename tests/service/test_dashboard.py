"""The dashboard for Grafana and the alerts for Prometheus ask for series that servers have."""

import json
import re
from pathlib import Path

import yaml
from prometheus_client import REGISTRY

from service import telemetry

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-monitoring.json"


def test_every_series_of_the_dashboard_exists_and_every_monitored_one_is_on_it():
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = set(re.findall(r"fewpass_[a-z0-9_]+", json.dumps(panels)))
    known = {f"fewpass_monitor_{name}" for name in telemetry.SERIES}
    known |= {f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in REGISTRY.collect()}
    assert asked - known == set()
    monitored = {f"fewpass_monitor_{name}" for name in telemetry.SERIES}
    assert monitored - asked <= {"fewpass_monitor_window_end_timestamp_seconds", "fewpass_monitor_label_delay_seconds"}


def test_every_series_of_the_alerts_exists():
    (group,) = yaml.safe_load(DASHBOARD.with_name("prometheus-alerts.yml").read_text(encoding="utf-8"))["groups"]
    asked = set(re.findall(r"\bfewpass_[a-z0-9_]+", " ".join(rule["expr"] for rule in group["rules"])))
    known = {f"fewpass_monitor_{name}" for name in telemetry.SERIES}
    for metric in REGISTRY.collect():
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(metric.type, [""])
        known |= {f"{metric.name}{ending}" for ending in endings}
    assert len(asked) > 4 and asked - known == set()
    recorded = {rule["record"] for rule in group["rules"] if "record" in rule}
    used = set(re.findall(r"fewpass:[a-z0-9_:]+", " ".join(rule["expr"] for rule in group["rules"])))
    assert used == recorded
    assert all(
        rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in group["rules"] if "alert" in rule
    )
