"""The form that starts a training: each learner with its parameters."""

import json

from starlette.requests import Request

from learners.models.parameters import ParameterField, parameter_fields
from learners.registry import recipes
from service import product
from service.console.pages import columns_to_choose, page, workspace_of
from service.requests.json_values import JSONObject

MOST_DATASETS = 500
SHOWN = 5


@page("train.html")
def train_form(request: Request) -> JSONObject:
    """Which learners there are, and the parameters of the chosen one with what each means."""
    workspace = workspace_of(request)
    learner = request.query_params.get("learner", recipes.DEFAULT)
    chosen = learner if learner in recipes.LEARNERS else recipes.DEFAULT
    parameters = [shown(each) for each in parameter_fields(recipes.LEARNERS[chosen].parameters)]
    name = request.query_params.get("dataset", "")
    return columns_to_choose(workspace, name) | {
        "datasets": [dataset.name for dataset in product.list_datasets(workspace, MOST_DATASETS).items],
        "dataset": name,
        "target": request.query_params.get("target", ""),
        "model": request.query_params.get("model", name),
        "learners": {name: recipe.title for name, recipe in recipes.LEARNERS.items()},
        "learner": chosen,
        "without_target": [name for name, recipe in recipes.LEARNERS.items() if not recipe.needs_target],
        "takes_no_target": [name for name, recipe in recipes.LEARNERS.items() if not recipe.takes_target],
        "parameters": parameters[:SHOWN],
        "more_parameters": parameters[SHOWN:],
    }


def shown(parameter: ParameterField) -> JSONObject:
    """A parameter as a field of the form: what may be chosen, what it is unless given, and what it means."""
    return {
        "name": parameter.name,
        "default": "" if parameter.default in (None, "", (), {}) else word(parameter.default),
        "choices": [{"value": json.dumps(choice), "word": word(choice)} for choice in parameter.choices],
        "is_number": parameter.number is not None,
        "is_whole": parameter.number is int,
        "shape": parameter.shape,
        "sentence": parameter.sentence,
        "words": parameter.words,
    }


def word(value: object) -> str:
    """A value as people say it."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
