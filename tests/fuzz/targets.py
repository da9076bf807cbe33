"""Every parser that takes bytes from outside, as a function of bytes that may raise only errors of our own naming."""

import asyncio
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.circuits.structures.from_file import read_circuit
from learners.circuits.structures.text import parse_text, to_json
from learners.passes.sources.file_opening import open_source_files
from service import product
from service.http.app import create_app
from service.jobs.cron import Cron
from service.requests.problems import is_expected_error
from service.settings import Settings
from service.workspace import Workspace
from storage.datasets.predicates import RowPredicate
from tests.service.asking import learn
from tests.service.conftest import weather

ARROW = b"application/vnd.apache.arrow.stream"
JSON = b"application/json"
CIRCUIT = """vars 2 0 3  # a boolean, a number, a colour
1 cat 0 0.25 0.75
2 ind 0 1
3 gauss 1 -1.5 2e-1
4 student 1 0 1 3
5 cat 2 0.2 0.3 0.5
6 prod 1 3 5
7 prod 2 4 5
8 sum 6:0.3 7:0.7
root 8
"""
CRONS = [b"30 2 * * mon-fri", b"*/5 0-6,22 L 1-12/3 *", b"@daily", b"0 0 29 feb *"]


class Answered(Exception):
    """A server answered with a fault of its own."""


@dataclass(frozen=True)
class Target:
    """A parser and where its corpus begins."""

    parse: Callable[[bytes], None]  # raises what is no error of ours
    seeds: Callable[[], list[bytes]]  # valid inputs


def only_ours(parse):
    """A parser whose own errors are fine."""

    def one(content):
        try:
            parse(content)
        except Exception as error:
            if not is_expected_error(error):
                raise

    return one


class Application:
    """The whole web application in this process, with one model and no socket."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fewpass-fuzz-")
        root = Path(self.folder.name)
        how = {"threads": 1, "warm_up": False, "max_body_bytes": 1 << 20, "query_s": 2, "generation_poll_s": 60}
        settings = Settings(workspace=root / "workspace", default_model="weather", **how)
        with Workspace(settings) as workspace:
            pq.write_table(weather(300, 1), root / "a.parquet")
            learn(workspace, root / "a.parquet", learner="tan", parameters={}, holdout=0)
            product.write_export(workspace, "weather", root / "weather.tar")
        self.export = (root / "weather.tar").read_bytes()
        self.loop = asyncio.new_event_loop()
        self.app = create_app(settings)
        self.lifespan = self.app.router.lifespan_context(self.app)
        self.loop.run_until_complete(self.lifespan.__aenter__())
        self.loop.run_until_complete(self._ready())

    async def _ready(self):
        while self.app.state.not_ready is not None:
            await asyncio.sleep(0.05)

    def ask(self, path, body, headers):
        """POST a body; the status of the answer."""
        return self.loop.run_until_complete(self._ask(path, body, headers))

    async def _ask(self, path, body, headers):
        # The client keeps its connection.
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post(path, content=body, headers=list(headers.items()))
        if answer.status_code >= 500 and answer.status_code != 503:
            raise Answered(f"{path} answered {answer.status_code}: {answer.content[:500]!r}")
        return answer.status_code


def encoded(*bodies):
    return [json.dumps(body).encode() for body in bodies]


@cache
def application():
    return Application()


def asked(path, content_type):
    def parse(content):
        application().ask(path, content, {b"content-type": content_type})

    return parse


def infer(content):
    """The first two bytes tell how long the JSON part is."""
    n_json = min(int.from_bytes(content[:2], "little"), 65_535)
    headers = {b"content-type": b"application/octet-stream", b"inference-header-content-length": str(n_json).encode()}
    application().ask("/v2/models/weather/infer", content[2:], headers)


def where(content):
    """The condition, applied to rows as a training does."""
    rows = weather(20, 3).to_batches()[0]
    RowPredicate(content.decode("utf-8", "replace"), is_new=True).mask(rows)


def cron(content):
    moment = datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("UTC"))
    Cron(content.decode("utf-8", "replace"), "Europe/Berlin").after(moment)


def in_file(suffix, read):
    """A parser of a file."""
    folder = tempfile.TemporaryDirectory(prefix="fewpass-fuzz-")  # leaves with the process

    def parse(content):
        path = Path(folder.name) / f"it{suffix}"
        path.write_bytes(content)
        read(path)

    return parse


def table(path):
    """What registering a file reads: its footer. Its rows and bounds are read by processes that may end of them."""
    filesystem = pafs.LocalFileSystem()
    (file,) = open_source_files(filesystem, [str(path)], {})
    return file, file.arrow_schema


def arrow_streams():
    rows, found = weather(5, 1), []
    for asked in (rows, rows.drop_columns(["class"]).select([0, 2])):  # compressed ones are refused unread
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, asked.schema) as writer:
            writer.write_table(asked)
        found.append(sink.getvalue())
    return found


def tensors():
    texts = b"".join(len(each).to_bytes(4, "little") + each for each in (b"rain", b"sunny"))
    numbers = b"\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@"
    parts = [("outlook", "BYTES", texts), ("humidity", "FP64", numbers)]
    inputs = [
        {"name": name, "shape": [2], "datatype": kind, "parameters": {"binary_data_size": len(content)}}
        for name, kind, content in parts
    ]
    (head,) = encoded({"inputs": inputs, "outputs": [{"name": "probabilities"}]})
    return [len(head).to_bytes(2, "little") + head + texts + numbers]


def records():
    return encoded(
        {"records": [{"outlook": "rain", "humidity": 60.5, "windy": True, "station": None}]},
        {"columns": {"outlook": ["rain", None], "humidity": [1e300, -3]}},
    )


def queries():
    rain = {"outlook": "rain"}
    return encoded(
        {"queries": [{"kind": "marginal", "evidence": {"humidity": 60.5, "windy": None}}]},
        {"queries": [{"kind": "conditional", "variables": ["class"], "evidence": rain}]},
        {"queries": [{"kind": "map", "evidence": rain, "time_limit_s": 1.0}]},
        {"queries": [{"kind": "sample", "n": 3, "evidence": {"windy": True}, "seed": 1}, {"kind": "marginal"}]},
    )


def parquet_files():
    found = []
    for how in ({}, {"compression": "zstd", "use_dictionary": False}, {"data_page_version": "2.0"}):
        sink = io.BytesIO()
        pq.write_table(weather(20, 1), sink, **how)
        found.append(sink.getvalue())
    return found


def circuits():
    return [CIRCUIT.encode(), to_json(parse_text(CIRCUIT.splitlines())).encode()]


CONDITIONS = [
    b"station = 'north' AND humidity BETWEEN 1 AND 2.5",
    b"outlook IN ('rain', 'sun''ny') OR NOT windy IS NULL",
    b"TRY_CAST(outlook AS INTEGER) % 3 = 1 AND lower(station) LIKE 'n%'",
    b"coalesce(humidity, 3e0) > -1 AND (windy OR \"class\" <> 'no') -- why",
]


TARGETS = {
    "predict-arrow": Target(asked("/v1/models/weather/predict", ARROW), arrow_streams),
    "predict-json": Target(asked("/v1/models/weather/predict", JSON), records),
    "infer-binary": Target(infer, tensors),
    "query-json": Target(asked("/v1/models/weather/query", JSON), queries),
    "invocations-csv": Target(asked("/invocations", b"text/csv"), lambda: [b"outlook,humidity\nrain,60\n,\n"]),
    "circuit": Target(only_ours(in_file(".spn", lambda path: read_circuit(str(path)))), circuits),
    "where": Target(only_ours(where), lambda: CONDITIONS),
    "cron": Target(only_ours(cron), lambda: CRONS),
    "parquet": Target(only_ours(in_file(".parquet", table)), parquet_files),
    "import": Target(asked("/v1/models/imported/import", b"application/x-tar"), lambda: [application().export]),
}
