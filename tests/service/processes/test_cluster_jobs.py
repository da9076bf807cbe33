"""Jobs that a server's worker hands to a cluster."""

import pyarrow as pa
import pyarrow.parquet as pq

from service.settings import Settings
from tests.service.asking import client_of, run_job
from tests.service.forks import local_server


def test_a_job_over_rest_learns_a_stream_in_shards(tmp_path):
    """One for each worker of the cluster of FEWPASS_CLUSTER, once the first 20,000 rows are learned."""
    values = [i * i % 7 % 2 for i in range(22_000)]
    (data := tmp_path / "data").mkdir()
    rows = pa.table({"a": values, "b": values[1:] + values[:1]})
    pq.write_table(rows, data / "rows.parquet", row_group_size=1000)
    place = {"workspace": tmp_path / "workspace", "data_roots": (str(data),)}
    body = {"kind": "train", "uris": [str(data / "rows.parquet")], "model": "pairs", "learner": "spn", "holdout": 0}
    body |= {"parameters": {"learning": "bmm", "states": 2}}
    with local_server(Settings(cluster="local:2", warm_up=False, **place)) as server, client_of(server) as client:
        job = run_job(client, body)
        assert job["state"] == "succeeded", job["error"]
        assert client.get("/v1/models/pairs/structure").json()["facts"] == {"shards": 2}
