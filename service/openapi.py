"""The OpenAPI document: FastAPI's own, with the msgspec shapes of the predict route and problem+json everywhere."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service import problems
from service.api.predict import ARROW, JSON, PATH, PredictRequest, PredictResponse
from service.api.shapes import Problem

PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "model": Problem,
        "description": "Any failure, as problem+json (RFC 9457).",
    }
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


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        _say_problem_json(schema)
        _add_predict(schema)
        app.openapi_schema = schema
    return app.openapi_schema


def _say_problem_json(schema: dict[str, Any]) -> None:
    """Failures are problem+json and never FastAPI's own validation error."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            responses = operation["responses"]
            responses.pop("422", None)
            responses["default"]["content"] = PROBLEM_CONTENT
    for unused in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(unused, None)


def _add_predict(schema: dict[str, Any]) -> None:
    (request, response), components = msgspec.json.schema_components(
        (PredictRequest, PredictResponse), ref_template="#/components/schemas/{name}"
    )
    schema["components"]["schemas"] |= components
    arrow = {"schema": {"type": "string", "format": "binary", "description": "An Arrow IPC stream."}}
    flags = {
        "ignore_unknown": "Overlook columns that the model does not know, instead of refusing them.",
        "explain": "Add each attribute's contribution to the log odds of the classes.",
    }
    schema["paths"].setdefault(PATH, {})["post"] = {
        "tags": ["predict"],
        "summary": "Classify rows",
        "description": "`name`, `name@3` or `name@champion`. A column may be absent and a value null: the answer is "
        "then what the model says without knowing it. Arrow in gives Arrow out unless Accept says otherwise.",
        "operationId": "predict",
        "parameters": [
            {
                "name": "name",
                "in": "path",
                "required": True,
                "schema": {"type": "string"},
                "example": "income@champion",
            },
            *(
                {"name": name, "in": "query", "description": text, "schema": {"type": "boolean", "default": False}}
                for name, text in flags.items()
            ),
            {
                "name": "interval",
                "in": "query",
                "description": "Add credible intervals of this posterior probability, for estimators hdp and hdp-map.",
                "schema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                "example": 0.9,
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": request,
                    "examples": {"records": {"value": RECORDS_EXAMPLE}, "columns": {"value": COLUMNS_EXAMPLE}},
                },
                ARROW: arrow,
            },
        },
        "responses": {
            "200": {
                "description": "The most probable class of each row, and all probabilities.",
                "content": {JSON: {"schema": response, "example": ANSWER_EXAMPLE}, ARROW: arrow},
            },
            "default": {
                "description": "Any failure, as problem+json (RFC 9457).",
                "content": PROBLEM_CONTENT,
            },
        },
    }
