"""Screens of registered data sets: columns, excluded columns with reasons, and models trained on them."""

from starlette.requests import Request

from learners.errors import SchemaError
from learners.passes.sources.file_formats import FORMAT_NAMES
from learners.schema import Schema
from service import product
from service.console.page_requests import page_limit_and_cursor
from service.console.pages import Call, render_as_page
from service.product.inference.metric_words import interval_words
from service.requests.json_values import JSONObject
from service.requests.roles import needs_role
from service.serving.application_state import workspace_from_request
from storage.control.api_keys_and_sessions import Role
from storage.datasets.dataset_definitions import Dataset

N_SERIES = 4
FEW_CLASSES = 20  # of a column that may be meant as the one to predict


@render_as_page("data.html")
def datasets_screen(request: Request) -> JSONObject:
    """List the data sets by name."""
    workspace = workspace_from_request(request)
    listed = product.list_datasets(workspace, *page_limit_and_cursor(request))
    return {
        "datasets": listed.items,
        "next_cursor": listed.next_cursor,
        "formats": FORMAT_NAMES,
        "calls": [Call("GET", "/v1/datasets")],
    }


@render_as_page("dataset.html")
def dataset_screen(request: Request) -> JSONObject:
    """Show one data set: files, target, and the schema if a pass has found it."""
    workspace, name = workspace_from_request(request), request.path_params["name"]
    dataset = product.get_dataset(workspace, name)
    schema = None if dataset.schema_json is None else Schema.from_json(dataset.schema_json)
    columns = [] if schema is None else describe_dataset_columns(schema)
    guess = guess_target_column(
        {
            str(each["name"]): (each["n_values"], bool(each["has_missing"]))
            for each in columns
            if each["kind"] == "nominal"
        }
    )
    target = request.query_params.get("target") or dataset.target or guess
    return {
        "target": target,
        "names": product.dataset_columns(workspace, name),
        "search": request.query_params.get("search", ""),
        "dataset": dataset,
        "n_rows": _n_rows(dataset),
        "columns": columns,
        "left_out": [] if schema is None else schema.left_out,
        "classes": () if schema is None or schema.target is None else schema.classes,
        "has_schema": schema is not None,
        "calls": [Call("GET", f"/v1/datasets/{name}{part}") for part in ("", "/schema", "/profile")],
    }


@needs_role(Role.TRAIN)
@render_as_page("rows.html")
def dataset_rows_screen(request: Request) -> JSONObject:
    """Show some rows of a data set, and a histogram of each column by class."""
    workspace, name = workspace_from_request(request), request.path_params["name"]
    target, search = request.query_params.get("target") or None, request.query_params.get("search", "")
    dataset = product.get_dataset(workspace, name)
    try:
        profile, why_not = product.dataset_profile(workspace, name, target, search), ""
    except SchemaError as error:  # of the class, such as a null: the rows and the other columns can be shown
        profile, why_not = product.dataset_profile(workspace, name, None, search), str(error)
    columns, classes = profile["columns"], profile["classes"]
    n_values = {
        str(each["name"]): (len(each["labels"]), bool(each["missing"])) for each in columns if each["kind"] == "nominal"
    }
    shown = classes if len(classes) <= N_SERIES else [*classes[: N_SERIES - 1], "other classes"]
    return profile | {
        "search": search,
        "why_not": why_not,
        "n_rows_of_files": _n_rows(dataset),
        "is_sample": dataset.schema_json is None,
        "has_target": dataset.target is not None,
        "guess": guess_target_column(n_values),
        "shown_classes": shown,
        "columns": [
            each | {"bars": stacked_histogram_bars(each["labels"], each["counts"], len(shown))} for each in columns
        ],
        "calls": [Call("GET", f"/v1/datasets/{name}/profile")],
    }


def _n_rows(dataset: Dataset) -> int:
    return sum(n for file in dataset.files if isinstance(n := file.get("n_rows"), int))


def guess_target_column(columns: dict[str, tuple[int, bool]]) -> str:
    """Guess the target: the last column with few values and no missing ones; empty without one.

    `columns`: the number of values of each, and whether some are missing.
    """
    fitting = (name for name in reversed(columns) if columns[name][0] <= FEW_CLASSES and not columns[name][1])
    return next(fitting, "")


def stacked_histogram_bars(labels: list[str], counts: list[list[int]], n_shown: int) -> list[JSONObject]:
    """Return one bar per value in a picture of 100 by 40, stacked by class; beyond `n_shown` classes the last piece
    holds the rest.
    """
    shown = [*counts[: n_shown - 1], [sum(each) for each in zip(*counts[n_shown - 1 :], strict=True)]]
    totals = [sum(each) for each in zip(*shown, strict=True)]
    most, width, bars = max(totals, default=0) or 1, 100 / max(1, len(labels)), []
    for place, label in enumerate(labels):
        pieces, top = [], 40.0
        for series, own in enumerate(shown):
            height = 40 * own[place] / most
            top -= height
            pieces.append({"series": series + 1, "y": round(top, 2), "height": round(height, 2), "n": own[place]})
        words = interval_words(label)
        bars.append({"label": words, "x": place * width, "width": 0.9 * width, "n": totals[place], "pieces": pieces})
    return bars


def describe_dataset_columns(schema: Schema) -> list[JSONObject]:
    """Describe each attribute in words."""
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
