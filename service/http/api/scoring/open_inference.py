"""/v2: the Open Inference Protocol v2 of KServe, Triton and MLServer, with rows as tensors, one per column.

References
----------
Open Inference Protocol, HTTP/REST (KServe), and its binary tensor data extension.
"""

import struct
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Any

import anyio.to_thread
import msgspec
import numpy as np
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from learners.schema.schema import Attribute
from service import product
from service.http.api.bodies import UNCOUNTED, Hold, check_n_rows
from service.http.api.json_bodies import check_decoded_size, check_json_size, decode_json_body
from service.http.api.resources import Ours
from service.http.api.scoring.predict import JSON, Predict, encode_predict_rows
from service.requests.json_values import JSONObject, whole_number_or_none
from service.requests.problems import InvalidRequest, MalformedBody, NotReady
from service.requests.roles import needs_role
from service.serving.class_answers import check_class_answer_size
from service.serving.predictor import Served
from service.version import VERSION
from storage.control.api_keys_and_sessions import Role

DTYPES = {
    "BOOL": "?",
    **{f"{sign}INT{8 * size}": f"<{code}{size}" for sign, code in (("", "i"), ("U", "u")) for size in (1, 2, 4, 8)},
    **{f"FP{8 * size}": f"<f{size}" for size in (2, 4, 8)},
}
BINARY_TIMES = 8  # a double takes 40 bytes as Python has it; smaller numbers are mostly the same ones again
MOST_DIMENSIONS = 8
LENGTH = b"inference-header-content-length"


class Tensor(msgspec.Struct):
    """One input tensor: a column of `shape[0]` values."""

    name: str
    shape: list[int]
    datatype: str
    parameters: JSONObject = {}
    data: list[Any] | None = None


class Wanted(msgspec.Struct):
    """One output requested by the client."""

    name: str
    parameters: JSONObject = {}


class InferRequest(msgspec.Struct):
    """Rows as tensors, one for each attribute; an attribute may be absent, a value null."""

    inputs: list[Tensor]
    id: str | None = None
    parameters: JSONObject = {}
    outputs: list[Wanted] | None = None


class Output(msgspec.Struct):
    """One output tensor."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any]


class InferResponse(msgspec.Struct):
    """`prediction` (n,), `probabilities` (n, classes) and, on request, `classes` (classes,)."""

    model_name: str
    model_version: str
    outputs: list[Output]
    id: str | None = None


DECODE = msgspec.json.Decoder(InferRequest).decode


def check_inference_body_size(body: bytes, header_bytes: bytes | None, max_bytes: int) -> int:
    """Refuse a body whose JSON part is too large once decoded; return roughly the bytes that the whole body will take.

    Values of binary tensors are counted by `read_infer_request`. Raises MalformedBody or BodyTooLarge.
    """
    n_json = _json_length(body, header_bytes)
    n_bytes = check_json_size(body[:n_json], max_bytes) if n_json > UNCOUNTED else 0
    n_bytes += BINARY_TIMES * (len(body) - n_json)
    check_decoded_size(n_bytes, max_bytes)
    return n_bytes


def _json_length(body: bytes, header_bytes: bytes | None) -> int:
    if header_bytes is None:
        return len(body)
    n_bytes = whole_number_or_none(header_bytes.decode("latin-1"), len(body))
    if n_bytes is None:
        raise MalformedBody("Inference-Header-Content-Length is not a number of bytes in this body.")
    return n_bytes


def read_infer_request(
    body: bytes, header_bytes: bytes | None, max_rows: int
) -> tuple[InferRequest, dict[str, list[Any]]]:
    """Decode the request and the values of each input.

    `header_bytes` is the header Inference-Header-Content-Length: how much of the body is JSON; the rest are binary tensors.
    Raises MalformedBody, InvalidRequest or BodyTooLarge.
    """
    n_json = _json_length(body, header_bytes)
    request = decode_json_body(DECODE, body[:n_json], "Send {'inputs': [{'name', 'shape', 'datatype', 'data'}]}.")
    columns: dict[str, list[Any]] = {}
    at = n_json
    for tensor in request.inputs:
        n_rows = tensor_row_count(tensor)
        check_n_rows(n_rows, max_rows)
        size = tensor.parameters.get("binary_data_size")
        if tensor.name in columns:
            raise InvalidRequest(f"Input {tensor.name!r} occurs twice.", input=tensor.name)
        if size is None:
            values = list(flatten_tensor_data(tensor.data or []))
        elif isinstance(size, int) and 0 <= size <= len(body) - at:
            values = decode_binary_tensor(tensor, body[at : at + size], n_rows)
            at += size
        else:
            raise MalformedBody(f"Input {tensor.name!r}: binary_data_size {size!r} exceeds the body.")
        if len(values) != n_rows:
            raise InvalidRequest(
                f"Input {tensor.name!r} has {len(values)} values, but its shape {tensor.shape} says {n_rows}.",
                input=tensor.name,
            )
        columns[tensor.name] = values
    if len({len(values) for values in columns.values()}) > 1:
        raise InvalidRequest("The inputs have different numbers of rows.")
    return request, columns


def tensor_row_count(tensor: Tensor) -> int:
    """Return the number of rows of an input, whose shape must be (n,) or (n, 1)."""
    shape = tensor.shape
    if not 1 <= len(shape) <= 2 or shape[0] < 0 or shape[1:] not in ([], [1]):
        described = f"the shape {shape}" if len(shape) <= MOST_DIMENSIONS else f"a shape of {len(shape)} dimensions"
        raise InvalidRequest(
            f"Input {tensor.name!r} has {described}; send one input for each attribute, of shape [n] or [n, 1].",
            input=tensor.name,
        )
    if tensor.datatype not in DTYPES and tensor.datatype != "BYTES":
        known = ", ".join(["BYTES", *DTYPES])
        raise InvalidRequest(f"Input {tensor.name!r}: datatype {tensor.datatype!r} is not one of {known}.")
    return shape[0]


def flatten_tensor_data(values: list[Any]) -> Iterator[Any]:
    """Yield the elements of nested lists in row-major order."""
    for value in values:
        if isinstance(value, list):
            yield from flatten_tensor_data(value)
        else:
            yield value


def decode_binary_tensor(tensor: Tensor, content: bytes, n_rows: int) -> list[Any]:
    """Decode a binary tensor into values, at most one more than its rows."""
    if tensor.datatype == "BYTES":
        return list(islice(_texts(tensor, content), n_rows + 1))
    dtype = np.dtype(DTYPES[tensor.datatype])
    if len(content) % dtype.itemsize:
        raise MalformedBody(f"Input {tensor.name!r}: {len(content)} bytes do not divide into {tensor.datatype} values.")
    values: list[Any] = np.frombuffer(content, dtype)[: n_rows + 1].tolist()
    return values


def _texts(tensor: Tensor, content: bytes) -> Iterator[str]:
    """Yield the texts of a BYTES tensor, each after its length in four bytes."""
    at = 0
    while at < len(content):
        try:
            (length,) = struct.unpack_from("<I", content, at)
            if at + 4 + length > len(content):
                raise MalformedBody(f"Input {tensor.name!r} is truncated.")
            yield content[at + 4 : at + 4 + length].decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise MalformedBody(f"Input {tensor.name!r} is not valid UTF-8 text: {error}.") from error
        at += 4 + length


def encode_inference_response(
    served: Served, outputs: list[tuple[str, str, Any]], request: InferRequest
) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON part if binary tensors follow.

    `outputs` are all (name, datatype, values); only those named in the request are sent.
    """
    by_default = bool(request.parameters.get("binary_data_output", False))
    selection = {output.name: output.parameters for output in request.outputs or ()}
    for name in selection:
        if name not in {known for known, _, _ in outputs}:
            raise InvalidRequest(f"Unknown output {name!r}; the outputs are {', '.join(o[0] for o in outputs)}.")
    described, tail = [], []
    for name, datatype, values in outputs:
        if (selection and name not in selection) or (not selection and name == "classes"):
            continue
        tensor: JSONObject = {"name": name, "shape": list(np.shape(values)), "datatype": datatype}
        if selection.get(name, {}).get("binary_data", by_default):
            tail.append(encode_binary_tensor(datatype, values))
            tensor["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            tensor["data"] = np.asarray(values).ravel().tolist()
        described.append(tensor)
    head = {"model_name": served.name, "model_version": str(served.version)}
    head |= {} if request.id is None else {"id": request.id}
    text = msgspec.json.encode(head | {"outputs": described})
    return text + b"".join(tail), len(text) if tail else None


def encode_binary_tensor(datatype: str, values: Any) -> bytes:
    """Encode values as the bytes of a binary tensor."""
    if datatype != "BYTES":
        return np.ascontiguousarray(values, DTYPES[datatype]).tobytes()
    return b"".join(struct.pack("<I", len(text)) + text for text in (str(value).encode() for value in values))


router = APIRouter(prefix="/v2", tags=["open inference protocol"])
PATHS = ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer")
WAY_OUT = 'or send the request parameter "ignore_unknown": true'


class ServerShape(BaseModel):
    """Name, version and protocol extensions of the server."""

    name: str = "fewpass"
    version: str = VERSION
    extensions: list[str] = ["binary_tensor_data"]


class LiveShape(BaseModel):
    """Liveness of the process."""

    live: bool = True


class ReadyShape(BaseModel):
    """Readiness for requests."""

    ready: bool = True


class TensorShape(BaseModel):
    """One input or output; -1 means any number of rows."""

    name: str
    datatype: str = Field(examples=["FP64"])
    shape: list[int] = Field(examples=[[-1]])


class MetadataShape(BaseModel):
    """Inputs and outputs of a model: one input per attribute, each optional."""

    name: str
    versions: list[str]
    platform: str = "fewpass"
    inputs: list[TensorShape]
    outputs: list[TensorShape]


class ModelReadyShape(BaseModel):
    """Readiness of a model: it is mapped and can answer."""

    name: str
    ready: bool = True


@router.get("", name="server", summary="What this server is")
async def inference_server_metadata_endpoint() -> ServerShape:
    """Show the name, version and protocol extensions of the server."""
    return ServerShape()


@router.get("/health/live", name="live", summary="Is the process alive?")
async def inference_server_live_endpoint() -> LiveShape:
    """Answer "live" as long as the process can answer at all."""
    return LiveShape()


@router.get("/health/ready", name="ready", summary="Is the server ready for requests?")
async def inference_server_ready_endpoint(request: Request) -> ReadyShape:
    """Answer whether the server is ready, as /readyz does."""
    if (reason := request.app.state.not_ready) is not None:
        raise NotReady(reason)
    return ReadyShape()


async def served_model_from_path(name: str, request: Request) -> Served:
    """Return the served model of the path; its version may be a number or an alias."""
    version = request.path_params.get("version")
    served: Served = await request.app.predict.served(f"{name}@{version}" if version else name)
    return served


ServedModel = Annotated[Served, Depends(served_model_from_path)]


@router.get("/models/{name}", name="metadata", summary="Describe a model")
def inference_model_metadata_endpoint(name: str, served: ServedModel, workspace: Ours) -> MetadataShape:
    """Show the inputs, outputs and versions of a model."""
    versions = [str(item.version) for item in product.list_versions(workspace, served.name, 1000).items]
    return inference_model_metadata(served, versions)


@router.get("/models/{name}/versions/{version}", name="version_metadata", summary="Describe a version of a model")
def inference_version_metadata_endpoint(name: str, version: str, served: ServedModel) -> MetadataShape:
    """Show the inputs and outputs of a model version; the version is a number or an alias."""
    return inference_model_metadata(served, [str(served.version)])


@router.get("/models/{name}/ready", name="model_ready", summary="Does this model answer?")
async def inference_model_ready_endpoint(name: str, served: ServedModel) -> ModelReadyShape:
    """Answer "ready" once the model is mapped; 404 if it does not exist."""
    return ModelReadyShape(name=served.name)


@router.get("/models/{name}/versions/{version}/ready", name="version_ready", summary="Does this version answer?")
async def inference_version_ready_endpoint(name: str, version: str, served: ServedModel) -> ModelReadyShape:
    """Answer "ready" once the model version is mapped; 404 if it does not exist."""
    return ModelReadyShape(name=served.name)


@needs_role(Role.PREDICT)
async def inference_endpoint(request: Request) -> Response:
    """POST …/infer, with the models and limits of `predict`; long bodies are answered on a thread."""
    predict: Predict = request.app.predict
    body = await request.body()
    served = await served_model_from_path(request.path_params["name"], request)
    header_bytes = request.scope["fewpass.headers"].get(LENGTH)
    work = partial(_inferred, predict, served, body, header_bytes, request.scope["fewpass.hold"])
    return work() if len(body) <= predict.inline_bytes else await anyio.to_thread.run_sync(work)


def _inferred(predict: Predict, served: Served, body: bytes, header_bytes: bytes | None, hold: Hold) -> Response:
    """Answer one inference request from its body."""
    hold.add(check_inference_body_size(body, header_bytes, predict.max_decoded_bytes))
    request, columns = read_infer_request(body, header_bytes, predict.max_rows)
    ignore_unknown = request.parameters.get("ignore_unknown", False) is True
    chunk, raw = encode_predict_rows(served, columns, ignore_unknown, WAY_OUT)
    check_class_answer_size(chunk.n_rows, len(served.classes))
    probabilities = served.predict_proba(chunk)
    served.answered(chunk, probabilities, raw)
    classes = served.classes
    kind = value_tensor_datatype(classes)
    outputs: list[tuple[str, str, Any]] = [
        ("prediction", kind, [classes[code] for code in probabilities.argmax(axis=1)]),
        ("probabilities", "FP64", probabilities),
        ("classes", kind, classes),
    ]
    content, n_json = encode_inference_response(served, outputs, request)
    if n_json is None:
        return Response(content, media_type=JSON)
    return Response(content, headers={LENGTH.decode(): str(n_json)}, media_type="application/octet-stream")


def inference_model_metadata(served: Served, versions: list[str]) -> MetadataShape:
    """Return the metadata of a mapped model."""
    n_classes, kind = len(served.classes), value_tensor_datatype(served.classes)
    return MetadataShape(
        name=served.name,
        versions=versions,
        inputs=[TensorShape(name=a.name, datatype=tensor_datatype(a), shape=[-1]) for a in served.schema.attributes],
        outputs=[
            TensorShape(name="prediction", datatype=kind, shape=[-1]),
            TensorShape(name="probabilities", datatype="FP64", shape=[-1, n_classes]),
            TensorShape(name="classes", datatype=kind, shape=[n_classes]),
        ],
    )


def tensor_datatype(attribute: Attribute) -> str:
    """Return the tensor datatype announced for an attribute; others that hold the same values are read as well."""
    if attribute.kind == "nominal":
        return value_tensor_datatype(list(attribute.values))
    if attribute.arrow_type.startswith(("timestamp", "date")):
        return "BYTES"
    if attribute.arrow_type == "uint64":
        return "UINT64"
    return "INT64" if attribute.arrow_type.startswith(("int", "uint")) else "FP64"


def value_tensor_datatype(values: list[Any]) -> str:
    """Return the tensor datatype of class or attribute values: BOOL, INT64 or BYTES."""
    kinds = {type(value) for value in values}
    return "BOOL" if kinds == {bool} else "INT64" if kinds and kinds <= {bool, int} else "BYTES"
