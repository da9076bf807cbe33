"""Train and predict on a server in a container: python3 client.py PORT. Standard library only."""

import json
import sys
import time
import urllib.error
import urllib.request

PORT = int(sys.argv[1])


def ask(method, path, body=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read() or b"null")


def wait_until_ready():
    started = time.monotonic()
    while time.monotonic() - started < 120:
        try:
            ask("GET", "/readyz")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
        else:
            return time.monotonic() - started
    raise SystemExit("the server was not ready after two minutes")


def main():
    print(f"         ready after {wait_until_ready():.1f} s")
    parameters = {"k": 2, "estimator": "hdp-map"}
    uris = ["/data/train.parquet"]
    request = {
        "kind": "train",
        "uris": uris,
        "target": "class",
        "learner": "kdb",
        "parameters": parameters,
        "model": "m",
    }
    job = ask("POST", "/v1/jobs", request)
    while job["state"] in {"queued", "running"}:
        time.sleep(0.1)
        job = ask("GET", f"/v1/jobs/{job['id']}")
    if job["state"] != "succeeded":
        raise SystemExit(f"the job {job['state']}: {job['error']}")
    answer = ask("POST", "/v1/models/m/predict", {"records": [{"x0": 1}, {}]})
    assert len(answer["probabilities"]) == 2, answer
    assert all(abs(sum(row) - 1) < 1e-9 for row in answer["probabilities"]), answer


if __name__ == "__main__":
    main()
