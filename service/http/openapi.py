"""The OpenAPI document: FastAPI's, with the msgspec shapes of the plain routes and problem+json everywhere."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from learners.schema.schema import MAX_CLASSES
from service.http.api.resources import Problem
from service.http.api.scoring import explain, invocations, open_inference, predict, score_impute
from service.http.api.scoring.invocations import CSV
from service.http.api.scoring.predict import ARROW, JSON
from service.http.security import Guard
from service.requests import problems
from service.requests.json_values import JSONObject
from storage.control.api_keys_and_sessions import Role

PROBLEM_RESPONSES: dict[int | str, JSONObject] = {
    "default": {"model": Problem, "description": "Any failure, as problem+json (RFC 9457)."}
}
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key: `Authorization: Bearer fp_…`."},
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The same API key in a separate header.",
    },
}
# What a status means; docs/reference/service.md says more.
MEANINGS = {
    400: "The body does not match its content type.",
    401: "An API key is needed, or it is not valid.",
    403: "The key's role does not allow the call, or a data set is outside the data roots.",
    404: "The object does not exist.",
    409: "The request conflicts with the current state; nothing changed.",
    412: "The state does not match If-Match or If-None-Match; nothing changed.",
    413: "The body or the batch exceeds a limit.",
    415: "The content type is not supported.",
    422: "The request is readable but invalid.",
    429: "The key exceeds its request rate; Retry-After and RateLimit say when to retry.",
    500: "An internal error, or a damaged file; the log has the request id.",
    503: "The server is starting, stopping or too slow, or the control database is unreachable.",
    507: "The workspace cannot be written.",
}

PROBLEM_CONTENT = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}

RECORDS_EXAMPLE = {"records": [{"outlook": "sunny", "humidity": 71.5, "windy": True}, {"outlook": "rain"}]}
COLUMNS_EXAMPLE = {"columns": {"outlook": ["sunny", "rain"], "humidity": [71.5, None]}}
ANSWER_EXAMPLE = {
    "model": "play",
    "version": 3,
    "classes": ["no", "yes"],
    "predictions": ["yes", "no"],
    "probabilities": [[0.18, 0.82], [0.61, 0.39]],
}

TRAIN_EXAMPLE = {"kind": "train", "dataset": "play", "learner": "nb", "model": "play"}
# An example body for each route that takes JSON, beside those below; tests/service/http/test_every_route.py sends them all.
BODY_EXAMPLES: dict[str, JSONObject] = {
    "POST /v1/models/{name}/query": {
        "queries": [
            {"kind": "conditional", "variables": ["outlook"], "evidence": {"play": "yes"}},
            {"kind": "map", "evidence": {"humidity": 80.0}},
        ]
    },
    "POST /v1/models/{name}/whatif": {"evidence": {"outlook": ["sunny", "rain"], "humidity": 71.5}, "level": 0.9},
    "POST /v1/models/{name}/score": RECORDS_EXAMPLE,
    "POST /v1/models/{name}/impute": RECORDS_EXAMPLE | {"how": "mode"},
    "POST /v1/datasets": {"name": "play", "uris": ["/data/play/*.parquet"], "target": "play"},
    "POST /v1/jobs": TRAIN_EXAMPLE,
    "POST /v1/keys": {"name": "dashboard", "role": "predict", "days": 90},
    "POST /v1/datasets/{name}/rules/withdraw": {"where": "outlook = 'rain'", "reason": "a test"},
    "POST /v1/models/{name}/rules/withdraw": {"where": "outlook = 'rain'", "reason": "a test"},
    "PUT /v1/models/{name}/aliases/{alias}": {"version": 1},
    "PUT /v1/models/{reference}/tags/{tag}": {"value": "checked by Ana"},
    "PUT /v1/models/{name}/retention": {"keep": 10},
    "PUT /v1/models/{name}/monitor": {"mode": "counts", "denied": ["humidity"]},
    "POST /v1/models/{reference}/labels": {"labels": [{"key": "order-17", "label": "yes"}]},
    "PUT /v1/models/{name}/alert-rule": {"window": "24h", "against": "training", "points": 1.0},
    "POST /v1/webhooks": {"url": "https://hooks.example.com/fewpass", "models": ["play"], "events": []},
    "POST /v1/schedules": {
        "name": "play",
        "cron": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "job": {"kind": "refresh", "train": TRAIN_EXAMPLE, "promotion": {"margin": 0.001}},
    },
    "PATCH /v1/schedules/{name}": {"cron": "0 4 * * mon-fri"},
}
# An example of each parameter of a path that has none of its own.
PATH_EXAMPLES = {
    "name": "play",
    "reference": "play@champion",
    "version": "3",
    "alias": "champion",
    "column": "outlook",
    "file": "monday.parquet",
    "form": "bif",
    "job_id": "job-1a2b3c",
    "receipt_id": "job-1a2b3c",
    "alert": "0123456789abcdef",
    "webhook": "fedcba9876543210",
}


def openapi_document(app: FastAPI, guard: Guard) -> JSONObject:
    """Return the OpenAPI document of an application, with the roles that its guard demands; it is built once."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        _add_plain(schema)
        _add_examples(schema)
        _say_problem_json(schema, guard)
        _say_items(schema["components"]["schemas"])
        app.openapi_schema = schema
    return app.openapi_schema


def _add_examples(schema: JSONObject) -> None:
    """Add the examples of bodies and of parameters of paths that have none of their own."""
    for operation, example in BODY_EXAMPLES.items():
        method, path = operation.split()
        if path in schema["paths"]:  # a server that only predicts has few of them
            schema["paths"][path][method.lower()]["requestBody"]["content"][JSON]["example"] = example
    for operations in schema["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                has_one = "examples" in parameter["schema"] or "example" in parameter["schema"]
                if parameter["in"] == "path" and not has_one:
                    parameter["example"] = PATH_EXAMPLES[parameter["name"]]


def _say_items(schema: Any) -> None:
    """Add the missing `items` of arrays of any type: msgspec omits them, and client generators refuse that."""
    if isinstance(schema, dict):
        if schema.get("type") == "array" and "prefixItems" not in schema:
            schema.setdefault("items", {})
        for inner in schema.values():
            _say_items(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _say_items(inner)


def _say_problem_json(schema: JSONObject, guard: Guard) -> None:
    """Document each failure by its status as problem+json, in place of FastAPI's validation error."""
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            for unused in ("422", "default"):
                responses.pop(unused, None)
            role = guard.needed_role(method.upper(), path)
            for status in _failures(path, method, operation, role):
                responses[str(status)] = {"description": MEANINGS[status], "content": PROBLEM_CONTENT}
            if role is None:
                operation["security"] = []
            else:
                operation["x-fewpass-role"] = str(role)
    schema["components"]["securitySchemes"] = SECURITY_SCHEMES
    schema["security"] = [{}, *({name: []} for name in SECURITY_SCHEMES)]
    for unused in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(unused, None)


def _failures(path: str, method: str, operation: JSONObject, role: Role | None) -> list[int]:
    changes = method != "get" and role is not Role.PREDICT
    places = {parameter["in"] for parameter in operation.get("parameters", ())}
    statuses = {403, 500, 503}
    statuses |= set() if role is None else {401, 429}
    statuses |= {404} if "path" in places or "requestBody" in operation else set()
    statuses |= {422} if places or "requestBody" in operation else set()
    statuses |= {409, 507} if changes else set()
    statuses |= {409} if path.endswith("/output") else set()  # of a job that has written none
    statuses |= {413} if method in {"post", "put", "patch"} else set()
    statuses |= {400, 415} if "requestBody" in operation else set()
    return sorted(statuses)


ARROW_CONTENT = {ARROW: {"schema": {"type": "string", "format": "binary", "description": "An Arrow IPC stream."}}}


def _parameter(name: str, place: str, schema: JSONObject, **more: Any) -> JSONObject:
    return {"name": name, "in": place, "schema": schema} | more


TEXT, FLAG = {"type": "string"}, {"type": "boolean", "default": False}
NAME = _parameter("name", "path", TEXT, required=True, example="income@champion")
VERSION = _parameter("version", "path", TEXT, required=True, example="3")
OVERLOOK = "Ignore columns that the model does not know, instead of returning an error."
IGNORE_UNKNOWN = _parameter("ignore_unknown", "query", FLAG, description=OVERLOOK)
IN_BETWEEN = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
WITH_INTERVALS = (
    "Add bounds for the sampling error of the training rows at this level, given structure, weights and trees; "
    "on known networks bounds at 0.9 contained the true probability for 2 to 88 % of complete rows. For estimators hdp and hdp-map, and sampled circuits."
)
INTERVAL = _parameter("interval", "query", IN_BETWEEN, description=WITH_INTERVALS, example=0.9)
SOME = {"type": "integer", "minimum": 1, "maximum": MAX_CLASSES}
MOST_PROBABLE = "Return only this number of most probable classes for each row."
TOP_K = _parameter("top_k", "query", SOME, description=MOST_PROBABLE, example=3)
WITH_ID = "Return an id for each prediction, to send its label later."
ID = _parameter("id", "query", FLAG, description=WITH_ID)
OWN_KEY = "Your own key of the prediction, for its label; n rows get the keys key/0 to key/n-1. Only a hash is stored."
KEY = _parameter("X-Prediction-Key", "header", TEXT | {"maxLength": 256}, description=OWN_KEY)
ROW_EXAMPLES = {"records": {"value": RECORDS_EXAMPLE}, "columns": {"value": COLUMNS_EXAMPLE}}
INFER_EXAMPLE = {"inputs": [{"name": "humidity", "shape": [2], "datatype": "FP64", "data": [71.5, None]}]}
SPLIT_EXAMPLE = {"dataframe_split": {"columns": ["outlook", "humidity"], "data": [["sunny", 71.5], ["rain", None]]}}


def _add_plain(schema: JSONObject) -> None:
    """Add the routes outside FastAPI with their msgspec shapes."""
    shapes: list[type] = [predict.PredictRequest, predict.PredictResponse, explain.ExplainResponse]
    shapes += [open_inference.InferRequest, open_inference.InferResponse]
    shapes += [invocations.InvocationRequest, invocations.InvocationResponse]
    shapes += [score_impute.ScoreRequest, score_impute.ScoreResponse]
    shapes += [score_impute.ImputeRequest, score_impute.ImputeResponse]
    references, components = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    rows, scores, reasons, tensors, outputs, frames, predictions, *of_densities = references
    schema["components"]["schemas"] |= components
    text = "`name`, `name@3` or `name@champion`. Columns may be absent and values null; the model "
    text += "then answers from the known columns."
    rows_in = {JSON: {"schema": rows, "examples": ROW_EXAMPLES}, **ARROW_CONTENT}
    scores_out = {JSON: {"schema": scores, "example": ANSWER_EXAMPLE}, **ARROW_CONTENT}
    binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    outputs_out = {JSON: {"schema": outputs}, **binary}
    csv = {CSV: {"schema": {"type": "string"}, "example": "outlook,humidity\nsunny,71.5\n"}}
    paths = schema["paths"]
    paths[predict.PATH] = _post(
        "predict",
        "Classify rows",
        f"{text} Arrow input gives Arrow output, unless Accept requests another type.",
        [NAME, IGNORE_UNKNOWN, INTERVAL, TOP_K, ID, KEY],
        rows_in,
        scores_out,
    )
    paths[explain.PATH] = _post(
        "explain",
        "Explain predictions",
        "Return the log odds of each row's class against the second most probable one, decomposed by attribute.",
        [NAME, IGNORE_UNKNOWN],
        rows_in,
        {JSON: {"schema": reasons}},
    )
    scored, logs, incomplete, completed = of_densities
    words = "score", "Score rows by their log likelihood", "Missing cells are summed out."
    paths[score_impute.SCORE_PATH] = _post(*words, [NAME], {JSON: {"schema": scored}}, {JSON: {"schema": logs}})
    words = "impute", "Fill missing cells", "Fill null and absent cells with modes, means or draws."
    paths[score_impute.IMPUTE_PATH] = _post(
        *words, [NAME], {JSON: {"schema": incomplete}}, {JSON: {"schema": completed}}
    )
    for path, parameters, name in zip(
        open_inference.PATHS, ([NAME], [NAME, VERSION]), ("infer", "infer_version"), strict=True
    ):
        paths[path] = _post(
            name,
            "Classify rows as tensors",
            "Open Inference Protocol v2: one input for each attribute.",
            parameters,
            {JSON: {"schema": tensors, "example": INFER_EXAMPLE}},
            outputs_out,
        )
    paths[invocations.PATH] = _post(
        "invocations",
        "Classify rows with the default model",
        "As MLflow's model servers do; 503 without FEWPASS_DEFAULT_MODEL.",
        [],
        {JSON: {"schema": frames, "example": SPLIT_EXAMPLE}, **csv},
        {JSON: {"schema": predictions}},
    )


def _post(
    name: str, summary: str, description: str, parameters: list[JSONObject], request: JSONObject, response: JSONObject
) -> JSONObject:
    return {
        "post": {
            "tags": ["predict"],
            "summary": summary,
            "description": description,
            "operationId": name,
            "parameters": parameters,
            "requestBody": {"required": True, "content": request},
            "responses": {"200": {"description": "The answer for each row.", "content": response}},
        }
    }
