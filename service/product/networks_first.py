"""Networks that answer until trees are learned: a training within a job, which publishes a version of its own."""

from service.jobs.steps import STAND_IN, Run, Steps, remove_job_scratch, run_job_steps
from service.requests.json_values import JSONObject
from service.requests.requests import learns_trees
from service.workspace import Workspace
from storage.models.model_versions import ModelVersion, find_job_model_version

FIRST = "learn"  # the first step of a training


def stands_in(version: ModelVersion) -> bool:
    """Return whether a version is of networks that answer until a job has learned trees."""
    return version.job_id is not None and version.job_id.endswith(STAND_IN)


def corrects_by_trees(version: ModelVersion) -> bool:
    """Return whether a version corrects its networks by trees, which are learned again with any change of the rows."""
    return learns_trees(version.learner, version.parameters)


def networks_of_job(workspace: Workspace, name: str, job_id: str | None) -> ModelVersion | None:
    """Return the version of networks that a job has published for a model before its trees; None without one."""
    return None if job_id is None else find_job_model_version(workspace.control, name, job_id + STAND_IN)


def publish_networks(workspace: Workspace, steps: Steps, run: Run, request: JSONObject) -> JSONObject:
    """Train the networks of a request alone and publish them; `run` is the job, whose id they bear with STAND_IN.

    `request` is of a training, or has one as `train`. Returns what the last of the steps returns.
    """
    if "train" in request:
        alone = request | {"train": _networks_alone(request["train"])}
    else:
        alone = _networks_alone(request)
    job_id = run.job_id + STAND_IN
    published = run_job_steps(steps, job_id, alone, run.report, run.memory_limit)
    remove_job_scratch(workspace.layout, job_id)
    return published


def _networks_alone(request: JSONObject) -> JSONObject:
    return request | {"parameters": request["parameters"] | {"effort": "low"}, "networks_first": False}


def networks_first(workspace: Workspace, steps: Steps) -> Steps:
    """Return the steps of a training; if a request asks for it, the first one begins by publishing the networks alone.

    They pass through all of `steps`, so in a refresh the promotion rule decides about them, too. A job that is killed
    in between publishes no second version of them.
    """

    def learn(run: Run) -> JSONObject:
        request = run.request.get("train", run.request)
        if not request.get("networks_first"):
            return steps[FIRST](run)
        published = publish_networks(workspace, steps, run, run.request)
        return steps[FIRST](run) | {"networks_version": published["version"]}

    return {**steps, FIRST: learn}
