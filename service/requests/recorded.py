"""Requests as earlier releases recorded them: of trainings, jobs and schedules."""

from service.requests.json_values import JSONMapping, JSONObject


def current_request(recorded: JSONMapping) -> JSONObject:
    """Return the fields of a recorded request by the names that learners and parameters have now."""
    request = dict(recorded)
    train, learner, parameters = (request.get(name) for name in ("train", "learner", "parameters"))
    if isinstance(train, dict):
        request["train"] = current_request(train)
    if isinstance(learner, str) and isinstance(parameters, dict):
        from learners.registry.recipes import current_recipe  # not needed to read what serves

        request["learner"], request["parameters"] = current_recipe(learner, parameters)
    return request
