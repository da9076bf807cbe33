"""The files that one training and one prediction pass through, in the order in which they are first entered.

python -m benchmarks.walk
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


@contextlib.contextmanager
def entering() -> Iterator[list[str]]:
    """Files of ours whose functions are called inside, on any thread; what an import does, does not count."""
    files: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(ROOT)) and frame.f_code.co_name != "<module>":
            name = str(Path(path).relative_to(ROOT))
            if name.split("/")[0] in PACKAGES and name not in files:
                files.append(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.parquet"
        pq.write_table(TABLE, file)
        with Workspace(Settings(workspace=Path(folder) / "workspace", warm_up=False)) as workspace:
            request = TrainRequest(uris=[str(file)], target="class", learner="kdb", model="m")
            product.train_model_version(workspace, request)  # compiles, and makes the control database
            with entering() as training:
                product.train_model_version(workspace, request)
            serving = asyncio.run(_predicting(workspace.settings))
    for title, files in (("training", training), ("prediction", serving)):
        print(f"\n{title}: {len(files)} files")
        print("\n".join(f"{number:3}  {name}" for number, name in enumerate(files, 1)))
    print(json.dumps({"training": len(training), "prediction": len(serving)}))


async def _predicting(settings: Settings) -> list[str]:
    app, call = create_app(settings), {"records": [{"word": "a", "number": 1.0}]}
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    async with app.router.lifespan_context(app), client:
        await client.post("/v1/models/m@latest/predict", json=call)  # maps the model
        with entering() as files:
            answer = await client.post("/v1/models/m@latest/predict", json=call)
        assert answer.status_code == 200, answer.text
    return files


if __name__ == "__main__":
    main()
