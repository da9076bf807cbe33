"""Load a server on loopback with one profile, and leave an HTML and a JSON report.

python -m load_tests.run smoke --reports reports
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.serving import trained_workspace
from service.local_server import local_server
from service.settings import Settings

PROFILES = ("smoke", "steady", "burst")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("--reports", type=Path, default=Path("build/load"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    args.reports.mkdir(parents=True, exist_ok=True)
    html, report = args.reports / f"{args.profile}.html", args.reports / args.profile
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        record = trained_workspace(root, 40, 20_000, model="load")
        records = [record, record | {"attribute_0": "never seen"}, {name: record[name] for name in list(record)[::2]}]
        (root / "records.json").write_text(json.dumps(records))
        with local_server(Settings(workspace=root / "workspace", workers=args.workers, job_workers=0)) as server:
            command = [sys.executable, "-m", "locust", "-f", "load_tests/locustfile.py", "--headless", "--only-summary"]
            command += ["--host", server.url, "--html", str(html), "--json-file", str(report)]
            environment = {"FEWPASS_LOAD_PROFILE": args.profile, "FEWPASS_LOAD_RECORDS": str(root / "records.json")}
            code = subprocess.run(command, env=os.environ | environment, check=False).returncode
    for entry in json.loads(report.with_suffix(".json").read_text()):
        p50, p95, p99 = (percentile(entry["response_times"], share) for share in (0.5, 0.95, 0.99))
        print(f"{entry['name']:18} {entry['num_requests']:7} requests {entry['num_failures']:3} failures", end="")
        print(f"  p50 {p50:g} ms  p95 {p95:g} ms  p99 {p99:g} ms")
    print(f"Reports: {html}, {report}.json")
    return code


def percentile(histogram: dict[str, int], share: float) -> float:
    """A percentile of {milliseconds: how often}."""
    times = sorted((float(ms), count) for ms, count in histogram.items())
    left = share * sum(count for _, count in times)
    for ms, count in times:
        left -= count
        if left <= 0:
            return ms
    return times[-1][0]


if __name__ == "__main__":
    sys.exit(main())
