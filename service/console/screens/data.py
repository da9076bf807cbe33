"""Registered data sets: their columns, what is left out and why, and which models learned from them."""

from typing import cast

from starlette.requests import Request

from learners.schema import Schema
from service import product
from service.console.pages import page, whole_number, workspace_of
from service.console.rendering import Call
from service.requests.json_values import JSONObject
from service.workspace import Workspace

PER_PAGE = 50
MOST = 500


@page("data.html")
def datasets(request: Request) -> JSONObject:
    """By name."""
    workspace = workspace_of(request)
    limit = whole_number(request.query_params.get("limit"), PER_PAGE, MOST)
    listed = product.list_datasets(workspace, limit, request.query_params.get("cursor"))
    return {
        "datasets": listed.items,
        "next_cursor": listed.next_cursor,
        "calls": [Call("GET", "/v1/datasets")],
    }


@page("dataset.html")
def dataset(request: Request) -> JSONObject:
    """One data set: files, target, and the schema if a pass has found it."""
    workspace, name = workspace_of(request), request.path_params["name"]
    found = product.get_dataset(workspace, name)
    schema = None if found.schema_json is None else Schema.from_json(found.schema_json)
    counting = product.counting_version(workspace, name)
    column = request.query_params.get("column")
    return {
        "counted_by": None if counting is None else f"{counting.name}@{counting.version}",
        "histogram": histogram_of(workspace, f"{counting.name}@{counting.version}", column)
        if counting is not None and column
        else None,
        "dataset": found,
        "n_rows": sum(n for file in found.files if isinstance(n := file.get("n_rows"), int)),
        "columns": [] if schema is None else columns_of(schema),
        "left_out": [] if schema is None else schema.left_out,
        "classes": () if schema is None or schema.target is None else schema.classes,
        "has_schema": schema is not None,
        "calls": [Call("GET", f"/v1/datasets/{name}"), Call("GET", f"/v1/datasets/{name}/schema")],
    }


def histogram_of(workspace: Workspace, reference: str, column: str) -> JSONObject:
    """The values of a column by class: rows of each, and their shares of the class."""
    told = product.class_histogram(workspace, reference, column)
    counts = cast("list[list[int]]", told["counts"])
    labels = cast("list[str]", told["labels"])
    totals = [sum(own) or 1 for own in counts]
    rows = [
        {
            "label": label,
            "cells": [{"n": own[k], "share": own[k] / total} for own, total in zip(counts, totals, strict=True)],
        }
        for k, label in enumerate(labels)
    ]
    return {"column": column, "classes": told["classes"], "rows": rows}


def columns_of(schema: Schema) -> list[JSONObject]:
    """Each attribute in words."""
    return [
        {
            "name": attribute.name,
            "kind": attribute.kind,
            "type": attribute.arrow_type,
            "n_values": attribute.n_values,
            "has_missing": attribute.has_missing,
            "n_folded": attribute.n_folded,
            "labels": attribute.labels(),
        }
        for attribute in schema.attributes
    ]
