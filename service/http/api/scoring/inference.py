"""/v2: the Open Inference Protocol v2, which KServe, Triton, MLServer and their clients speak."""

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from learners.schema.schema import Attribute
from service import product
from service.http.api.bodies.shapes import Ours
from service.http.api.bodies.tensors import LENGTH, decoded_bytes, read_request, write_response
from service.http.api.scoring.predict import JSON, Predict, encode_rows
from service.http.memory_in_flight import Hold
from service.requests.problems import NotReady
from service.serving.answers import check_size
from service.serving.predictor import Served
from service.version import VERSION

router = APIRouter(prefix="/v2", tags=["open inference protocol"])
PATHS = ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer")
WAY_OUT = 'or send the request parameter "ignore_unknown": true'
EXTENSIONS = ["binary_tensor_data"]


class ServerShape(BaseModel):
    """What the server is."""

    name: str = "fewpass"
    version: str = VERSION
    extensions: list[str] = EXTENSIONS


class LiveShape(BaseModel):
    """The process answers."""

    live: bool = True


class ReadyShape(BaseModel):
    """Requests may come."""

    ready: bool = True


class TensorShape(BaseModel):
    """One input or output; -1 stands for any number of rows."""

    name: str
    datatype: str = Field(examples=["FP64"])
    shape: list[int] = Field(examples=[[-1]])


class MetadataShape(BaseModel):
    """What a model reads and answers: one input for each attribute, of which any may be absent."""

    name: str
    versions: list[str]
    platform: str = "fewpass"
    inputs: list[TensorShape]
    outputs: list[TensorShape]


class ModelReadyShape(BaseModel):
    """The model is mapped and answers."""

    name: str
    ready: bool = True


@router.get("", summary="What this server is")
async def server() -> ServerShape:
    """Name, version and protocol extensions."""
    return ServerShape()


@router.get("/health/live", summary="Is the process alive?")
async def live() -> LiveShape:
    """Always, while it can answer at all."""
    return LiveShape()


@router.get("/health/ready", summary="Should requests be sent here?")
async def ready(request: Request) -> ReadyShape:
    """As /readyz says."""
    if (reason := request.app.state.not_ready) is not None:
        raise NotReady(reason)
    return ReadyShape()


async def served_model(name: str, request: Request) -> Served:
    """The model of the path; its version may be a number or an alias."""
    served: Served = await request.app.predict.served(reference_of(name, request.path_params.get("version")))
    return served


ServedModel = Annotated[Served, Depends(served_model)]


@router.get("/models/{name}", summary="Describe a model")
def metadata(name: str, served: ServedModel, workspace: Ours) -> MetadataShape:
    """Its inputs, outputs and versions."""
    versions = [str(item.version) for item in product.list_versions(workspace, served.name, 1000).items]
    return described(served, versions)


@router.get("/models/{name}/versions/{version}", summary="Describe a version of a model")
def version_metadata(name: str, version: str, served: ServedModel) -> MetadataShape:
    """Its inputs and outputs; the version is a number or an alias."""
    return described(served, [str(served.version)])


@router.get("/models/{name}/ready", summary="Does this model answer?")
async def model_ready(name: str, served: ServedModel) -> ModelReadyShape:
    """Yes, once it is mapped; 404 if there is none."""
    return ModelReadyShape(name=served.name)


@router.get("/models/{name}/versions/{version}/ready", summary="Does this version answer?")
async def version_ready(name: str, version: str, served: ServedModel) -> ModelReadyShape:
    """Yes, once it is mapped; 404 if there is none."""
    return ModelReadyShape(name=served.name)


class Infer:
    """POST …/infer, a plain Starlette endpoint that shares the models and limits of `predict`."""

    def __init__(self, predict: Predict) -> None:
        self.predict = predict

    async def answer(self, request: Request) -> Response:
        """Answer one request; long ones on a thread."""
        body = await request.body()
        hold = request.scope["fewpass.hold"]
        served = await self.predict.served(reference_of(**request.path_params))
        header_bytes = request.scope["fewpass.headers"].get(LENGTH)
        if len(body) <= self.predict.inline_bytes:
            return self.infer(served, body, header_bytes, hold)
        return await anyio.to_thread.run_sync(self.infer, served, body, header_bytes, hold)

    def infer(self, served: Served, body: bytes, header_bytes: bytes | None, hold: Hold) -> Response:
        """Tensors in, tensors out."""
        hold.add(decoded_bytes(body, header_bytes, self.predict.max_decoded_bytes))
        request, columns = read_request(body, header_bytes, self.predict.max_rows)
        ignore_unknown = request.parameters.get("ignore_unknown", False) is True
        chunk, raw = encode_rows(served, columns, ignore_unknown, WAY_OUT)
        check_size(chunk.n_rows, len(served.classes))
        probabilities = served.predict_proba(chunk)
        served.answered(chunk, probabilities, raw)
        classes = served.classes
        kind = datatype_of_values(classes)
        outputs: list[tuple[str, str, Any]] = [
            ("prediction", kind, [classes[code] for code in probabilities.argmax(axis=1)]),
            ("probabilities", "FP64", probabilities),
            ("classes", kind, classes),
        ]
        head = {"model_name": served.name, "model_version": str(served.version)}
        content, n_json = write_response(head, outputs, request)
        if n_json is None:
            return Response(content, media_type=JSON)
        headers = {LENGTH.decode(): str(n_json)}
        return Response(content, media_type="application/octet-stream", headers=headers)


def reference_of(name: str, version: str | None = None) -> str:
    """A path's model as the rest of the product names it."""
    return f"{name}@{version}" if version else name


def described(served: Served, versions: list[str]) -> MetadataShape:
    """The metadata of a mapped model."""
    n_classes, kind = len(served.classes), datatype_of_values(served.classes)
    return MetadataShape(
        name=served.name,
        versions=versions,
        inputs=[TensorShape(name=a.name, datatype=datatype_of(a), shape=[-1]) for a in served.schema.attributes],
        outputs=[
            TensorShape(name="prediction", datatype=kind, shape=[-1]),
            TensorShape(name="probabilities", datatype="FP64", shape=[-1, n_classes]),
            TensorShape(name="classes", datatype=kind, shape=[n_classes]),
        ],
    )


def datatype_of(attribute: Attribute) -> str:
    """The datatype that suits an attribute; others that hold the same values are read as well."""
    if attribute.kind == "nominal":
        return datatype_of_values(list(attribute.values))
    if attribute.arrow_type.startswith(("timestamp", "date")):
        return "BYTES"
    if attribute.arrow_type == "uint64":
        return "UINT64"
    return "INT64" if attribute.arrow_type.startswith(("int", "uint")) else "FP64"


def datatype_of_values(values: list[Any]) -> str:
    """BOOL, INT64 or BYTES."""
    if values and all(isinstance(value, bool) for value in values):
        return "BOOL"
    return "INT64" if values and all(isinstance(value, int) for value in values) else "BYTES"
