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
            return subprocess.run(command, env=os.environ | environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
