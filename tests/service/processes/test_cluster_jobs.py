"""Jobs that a server's worker hands to a cluster."""

import pyarrow as pa
import pyarrow.parquet as pq

from service.settings import Settings
from tests.service.asking import client_of, job_at_end
from tests.service.forks import local_server


def test_a_job_over_rest_learns_a_stream_in_shards(tmp_path):
    """One for each worker of the cluster of FEWPASS_CLUSTER, once the first 20,000 rows are learned."""
    rows = [i * i % 7 % 2 for i in range(22_000)]
    (tmp_path / "data").mkdir()
    pq.write_table(
        pa.table({"a": rows, "b": rows[1:] + rows[:1]}), tmp_path / "data" / "rows.parquet", row_group_size=1000
    )
    settings = Settings(
        workspace=tmp_path / "workspace", data_roots=(str(tmp_path / "data"),), cluster="local:2", warm_up=False
    )
    request = {
        "kind": "train",
        "uris": [str(tmp_path / "data" / "rows.parquet")],
        "model": "pairs",
        "learner": "spn",
        "parameters": {"learning": "bmm", "states": 2},
        "holdout": 0,
    }
    with local_server(settings) as server, client_of(server) as client:
        answer = client.post("/v1/jobs", json=request)
        assert answer.status_code == 202, answer.text
        job = job_at_end(client, answer.json()["id"])
        assert job["state"] == "succeeded", job["error"]
        assert client.get("/v1/models/pairs/structure").json()["facts"] == {"shards": 2}
