"""Says which kernels requests still have to compile in a process where all tasks of `precompile` have run; a process of its own.

python -m tests.service.operations.endpoints_after_precompiling FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numba.core.registry import CPUDispatcher
from starlette.testclient import TestClient

from service.http.api.scoring.predict import ARROW
from service.http.app import create_app
from service.http.warm_up import TABLE
from service.operations.precompile import NUMBERS, TASKS
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learned
from tests.support.http import stream_of

MODELS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "nb": ("nb", {"m": 0.0}, "class"),
    "kdb": ("kdb", {"k": 1, "estimator": "hdp", "iterations": 20}, "class"),
    "wide": ("kdb", {"k": 2, "estimator": "hdp-map"}, "class"),
    "spn": ("spn", {}, "class"),
    "learnspn": ("spn", {"structure": "learnspn", "learning": "adf"}, "class"),
    "gauss": ("spn", {"leaves": "gaussian", "learning": "em"}, "class"),
    "average": ("tan", {"average": True}, "class"),
    "nominal": ("orders", {}, None),
    "numbers": ("orders", {}, None),
    "joint": ("spn", {"structure": "random", "learning": "bmm"}, None),
}
ROW = {"word": "a", "number": 1.0}
QUERIES: list[dict[str, Any]] = [
    {"kind": "marginal", "evidence": ROW},
    {"kind": "conditional", "variables": ["class"], "evidence": {"word": "a"}},
    {"kind": "conditional", "variables": ["number"], "evidence": {"word": "a"}},
    {"kind": "conditional", "variables": ["class", "word"], "joint": True},
    {"kind": "moments", "variables": ["number"], "evidence": {"word": "a"}},
    {"kind": "sample", "n": 3, "evidence": {"number": 1.5}},
    {"kind": "map"},
    {"kind": "map", "variables": ["number"]},
]
SOLVERS = ("bt", "ng", "amap", "beam", "kbt", "exact")
QUERIES += [{"kind": "map", "variables": ["word", "class"], "solver": solver} for solver in SOLVERS]
OF_GRAPHS, PRIORS = ("edges", "graphs", "paths", "effects"), ("order", "graph")
QUERIES += [{"kind": kind, "prior": prior, "n": 5} for kind in OF_GRAPHS for prior in PRIORS]
QUERIES += [{"kind": "graph"}, {"kind": "score"}]
QUERIES += [{"kind": "edges", "absent": ["number->word"]}, {"kind": "graph", "present": ["a->b"]}]


def signatures(besides="learners.nothing"):
    """Each kernel with what it has been compiled or loaded for; those of one package need not be told."""
    kernels = {
        id(found): found
        for name, module in list(sys.modules.items())
        if name.startswith("learners.") and not name.startswith(besides)
        for found in vars(module).values()
        if isinstance(found, CPUDispatcher)
    }
    return {f"{kernel.__module__}.{kernel.__name__}{each}" for kernel in kernels.values() for each in kernel.signatures}


def ask_everything(client, name):
    columns = {"word": ["a", "b", None, "x"] * 12, "number": [0.5, None, 2, 3.5] * 12}
    tables = [
        pa.table(columns),
        pa.table({"word": pa.array(["a", None], pa.string_view()), "number": pa.array([1, 2], pa.int16())}),
        pa.table({"word": pa.array(["a", "b"]).dictionary_encode(), "number": pa.array([1.0, 2.0], pa.float32())}),
    ]
    path = f"/v1/models/{name}"
    for body in ({"records": [ROW]}, {"records": [ROW, {}]}, {"columns": columns}, {"columns": {"number": [1, True]}}):
        client.post(f"{path}/predict", json=body)
        client.post(f"{path}/predict?interval=0.9", json=body)
        client.post(f"{path}/explain", json=body)
    for table in tables:
        client.post(f"{path}/predict", content=stream_of(table), headers={"content-type": ARROW})
    tensor = {"name": "number", "shape": [2], "datatype": "FP64", "data": [1, 2]}
    client.post(f"/v2/models/{name}/infer", json={"inputs": [tensor]})
    for query in QUERIES:
        client.post(f"{path}/query", json={"queries": [query]})
    client.post(f"{path}/query", json={"queries": QUERIES[:1] * 50})
    for picture in ("edges.svg", "graph.svg", "graph.bif"):
        client.get(f"{path}/{picture}")


def main(folder):
    wide = {name: TABLE[name].to_pylist()[:24] * 50 for name in TABLE.column_names}
    pq.write_table(TABLE, folder / "narrow.parquet")
    pq.write_table(pa.table({"many": [str(i % 300) for i in range(1200)], **wide}), folder / "wide.parquet")
    pq.write_table(NUMBERS, folder / "numbers.parquet")
    for task in TASKS:
        task()
    settings = Settings(workspace=folder / "workspace", job_workers=0, log_level="error", default_model="nb")
    with Workspace(settings) as workspace:
        for name, (learner, parameters, target) in MODELS.items():
            uri = str(folder / f"{name if name in ('wide', 'numbers') else 'narrow'}.parquet")
            learned(workspace, uri, name, learner, target, parameters=parameters, holdout=0)
    before = signatures()
    with TestClient(create_app(settings), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        for name in MODELS:
            ask_everything(client, name)
        client.post("/invocations", json={"instances": [ROW]})
        client.post("/invocations", content=b"word,number\na,1.5\n", headers={"content-type": "text/csv"})
    # Monitoring counts on a thread of its own: nobody waits for its kernels.
    print(json.dumps(sorted(signatures("learners.monitoring.") - before)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
