"""The smoke profile of the load tests runs, fails no request, and leaves its reports."""

import json

import pytest

from load_tests.__main__ import main


def test_the_smoke_profile_leaves_reports_and_fails_nothing(tmp_path):
    assert main(["smoke", "--reports", str(tmp_path), "--rows", "2000"]) == 0
    report = json.loads((tmp_path / "smoke.json").read_text())
    one_row = next(entry for entry in report["requests"] if entry["name"] == "predict 1 row")
    assert one_row["requests"] > 0 and one_row["failures"] == 0
    assert 0 < one_row["p50_ms"] <= one_row["p95_ms"] <= one_row["p99_ms"]
    assert report["server_memory_mb"][0]["rss"] > 50 and len(report["server_memory_mb"]) >= 2
    assert "<html" in (tmp_path / "smoke.html").read_text()[:500].lower()


@pytest.mark.faults  # takes many seconds
def test_requests_at_a_fixed_rate_do_not_wait_for_each_other(tmp_path):
    arguments = ["fixed-rate", "--rate", "50", "--seconds", "3", "--reports", str(tmp_path), "--rows", "2000"]
    assert main(arguments) == 0
    (one_row,) = json.loads((tmp_path / "fixed-rate.json").read_text())["requests"]
    assert one_row["failures"] == 0 and 50 <= one_row["requests"] <= 200
    assert 0 < one_row["p50_ms"] <= one_row["p99_ms"]
