"""Models that are refreshed, forget rows, move and are exported."""

import contextlib
import io
import json
import tarfile
from dataclasses import replace

import pyarrow.compute as pc
import pyarrow.parquet as pq

from service import product
from service.requests.requests import (
    DatasetRequest,
    ForgetRequest,
    TrainRequest,
)
from storage.control import schedule_records
from tests.service.asking import training
from tests.web import Quiet, serving


def parts_of(bundle):
    """The manifest and the model of an export."""
    with tarfile.open(bundle) as tar:
        manifest, model = (tar.extractfile(name).read() for name in tar.getnames())
    return json.loads(manifest), model


def rebuilt(manifest, model, names=("manifest.json", "model.duckdb")):
    written = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in zip(names, (written, model, b"more"), strict=False):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


def make_due(workspace, name, at):
    schedule = schedule_records.get_schedule(workspace.control, name)
    schedule_records.change_schedule(workspace.control, schedule, replace(schedule, next_due_at=at))


COLUMNS = {"user": "drop", "time": "drop"}
OF_ROWS = {"uris": None, "dataset": "rows", "target": None, "columns": {}}


def register(workspace, folder, **more):
    asked = {"name": "rows", "uris": [str(folder)], "target": "class", "columns": COLUMNS}
    product.register_dataset(workspace, DatasetRequest(**(asked | more)))


def n_left(folder):
    """Rows without those of user 3."""
    return int(pc.sum(pc.not_equal(pq.read_table(folder)["user"], 3)).as_py())


def request_of(folder, **more):
    asked = {"uris": [str(folder)], "target": "class", "learner": "kdb", "parameters": {"k": 2}, "columns": COLUMNS}
    return TrainRequest(**(asked | {"model": "daily", "update": True} | more))


def train(workspace, path, model="m", warn=lambda _: None, **more):
    columns = {"person": "nominal"}
    request = training(path, model, **{"holdout": 0, "update": True, "columns": columns} | more)
    return product.train_and_report_passes(workspace, request, warn=warn)


def snapshot_of(workspace, version):
    return product.version_lineage(workspace, f"{version.name}@{version.version}")["provenance"]["snapshot"]


def n_read(passes):
    return max(account["n_rows_read"] for account in passes)


@contextlib.contextmanager
def receiver(failures=0):
    """The URL of a server that keeps what is posted to it and answers 500 as often as told; and what it has got."""
    got = []

    class Handler(Quiet):
        def do_POST(self):
            got.append((dict(self.headers), self.body()))
            self.answer(500 if len(got) <= failures else 204)

    with serving(Handler) as address:
        yield f"http://{address}/hook", got


WHERE = "user = 3"


def of_nb(folder, **more):
    return request_of(folder, **({"learner": "nb", "parameters": {}, "holdout": 0} | more))


def forget(workspace, where=WHERE, **more):
    asked = {"where": where} | ({} if "dataset" in more else {"model": "daily"}) | more
    return product.forget_rows(workspace, ForgetRequest(**asked))
