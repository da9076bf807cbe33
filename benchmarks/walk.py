"""The files that one training, one prediction and one MAP query pass through, in the order in which they are first entered.

python -m benchmarks.walk [LEARNER]     kdb unless given
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import httpx
import pyarrow.parquet as pq

from service import product
from service.http.app import create_app
from service.http.warm_up import TABLE
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

ROOT = Path(__file__).parent.parent
PACKAGES = ("learners", "storage", "service", "fewpass")


_walks: list[list[str]] = []  # those that are being noted


def _note(frame: FrameType, event: str, _argument: object) -> None:
    path = frame.f_code.co_filename
    if _walks and event == "call" and path.startswith(str(ROOT)) and frame.f_code.co_name != "<module>":
        name = str(Path(path).relative_to(ROOT))
        if name.split("/")[0] in PACKAGES and name not in _walks[-1]:
            _walks[-1].append(name)


@contextlib.contextmanager
def entering() -> Iterator[list[str]]:
    """Files of ours whose functions are called inside, on any thread; what an import does, does not count."""
    _walks.append([])
    try:
        yield _walks[-1]
    finally:
        _walks.pop()


QUERY = {"queries": [{"kind": "map", "evidence": {"word": "a"}, "time_limit_s": 1.0}]}
CALLS = {
    "prediction": ("predict", {"records": [{"word": "a", "number": 1.0}]}),
    "prediction with an absent column": ("predict", {"records": [{"word": "a"}]}),
    "MAP query": ("query", QUERY),
}


def main() -> None:
    threading.setprofile(_note)  # before any thread starts: those that wait for work are used again
    sys.setprofile(_note)
    learner = sys.argv[1] if len(sys.argv) > 1 else "kdb"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.parquet"
        pq.write_table(TABLE, file)
        with Workspace(Settings(workspace=Path(folder) / "workspace", warm_up=False)) as workspace:
            request = TrainRequest(uris=[str(file)], target="class", learner=learner, model="m")
            product.train_model_version(workspace, request)  # compiles, and makes the control database
            with entering() as training:
                product.train_model_version(workspace, request)
            walks = {"training": training} | asyncio.run(_serving(workspace.settings))
    for title, files in walks.items():
        print(f"\n{title}: {len(files)} files")
        print("\n".join(f"{number:3}  {name}" for number, name in enumerate(files, 1)))
    print(json.dumps({title: len(files) for title, files in walks.items()}))


async def _serving(settings: Settings) -> dict[str, list[str]]:
    app, walks = create_app(settings), {}
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    async with app.router.lifespan_context(app), client:
        for title, (verb, body) in CALLS.items():
            await client.post(f"/v1/models/m@latest/{verb}", json=body)  # maps the model
            with entering() as walks[title]:
                answer = await client.post(f"/v1/models/m@latest/{verb}", json=body)
            assert answer.status_code == 200, answer.text
    return walks


if __name__ == "__main__":
    main()
