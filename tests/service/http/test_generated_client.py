"""The OpenAPI document as generators of clients take it: one is generated without a warning, and it calls the server."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = Path(__file__).parent.parent.parent.parent / "docs" / "openapi-python-client.yml"
GENERATOR = shutil.which("openapi-python-client")
ROW = {"outlook": "sunny", "humidity": 71.5, "windy": False}


def within(schema):
    """All objects of a document."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from within(inner)


def test_arrays_say_what_they_hold_and_operations_have_names_of_their_own(site):
    document = site.client.get("/openapi.json").json()
    arrays = [found for found in within(document["components"]["schemas"]) if found.get("type") == "array"]
    assert len(arrays) > 20 and all("items" in found or "prefixItems" in found for found in arrays)
    operations = [operation for own in document["paths"].values() for operation in own.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)


@pytest.mark.skipif(
    GENERATOR is None, reason="openapi-python-client asks for an older typer than our pins: `make interchange`"
)
def test_a_client_is_generated_without_warnings_and_calls_the_server(site, tmp_path, monkeypatch):
    answer = site.client.get("/openapi.json")
    (tmp_path / "openapi.json").write_bytes(answer.content)
    command = [GENERATOR, "generate", "--path", "openapi.json", "--config", CONFIG, "--meta", "none"]
    done = subprocess.run(
        [*command, "--output-path", "generated_client"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0 and not re.search("WARNING|ERROR|Unable|Cannot", told), told
    sources = [path for path in (tmp_path / "generated_client" / "api").rglob("*.py") if path.name != "__init__.py"]
    found = {
        (re.search(r'"method": "(\w+)"', text)[1], re.search(r'"url": "([^"]+)"', text)[1])
        for text in (path.read_text() for path in sources)
    }
    named = {(method, path) for path, own in answer.json()["paths"].items() for method in own}
    assert found == named and len(named) > 90

    monkeypatch.syspath_prepend(tmp_path)
    client = importlib.import_module("generated_client").Client(base_url=str(site.client.base_url))
    models = importlib.import_module("generated_client.models")
    predict = importlib.import_module("generated_client.api.predict.predict")
    request = models.PredictRequest.from_dict({"records": [ROW]})
    reply = predict.sync("weather", client=client, body=request)
    expected = site.client.post("/v1/models/weather/predict", json={"records": [ROW]}).json()
    assert reply.probabilities == expected["probabilities"]
    infer = importlib.import_module("generated_client.api.predict.infer")
    tensor = {"name": "humidity", "shape": [1], "datatype": "FP64", "data": [71.5]}
    reply = infer.sync_detailed("weather", client=client, body=models.InferRequest.from_dict({"inputs": [tensor]}))
    assert reply.status_code == 200 and reply.parsed.outputs[0].name == "prediction"
    for method, path in named:
        if method == "get" and "{" not in path and not path.endswith("/events"):
            (source,) = [file for file in sources if f'"method": "get",\n        "url": "{path}"' in file.read_text()]
            module = importlib.import_module(".".join(source.relative_to(tmp_path).with_suffix("").parts))
            assert module.sync_detailed(client=client).status_code == 200, path
    for name in [name for name in sys.modules if name.startswith("generated_client")]:
        del sys.modules[name]
