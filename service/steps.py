"""What each kind of job does, step by step; the worker and the command line run the same steps."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from learners import recipes
from learners.errors import SchemaError, UnknownColumn
from learners.evaluation.metrics import evaluate as metrics_of
from learners.kinds import load_model
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema import Schema
from learners.schema.encode import encode
from learners.schema.summaries import infer_schema
from service.jobs.steps import Kinds, Run, Step
from service.predictor import Served, scored_batch
from service.problems import InvalidRequest
from service.requests import EvaluateRequest, SchemaRequest, TrainRequest
from service.settings import available_threads
from storage import datasets, models
from storage.model_file import map_compiled, write_compiled, write_model
from storage.models import ModelVersion
from storage.statistics import StatisticStore

if TYPE_CHECKING:
    from service.workspace import Workspace

Report = Callable[[dict[str, Any]], None]


def kinds(workspace: "Workspace") -> Kinds:
    """The steps of every kind of job, for one workspace."""
    return {
        "train": (
            Step("learn", partial(learn, workspace)),
            Step("evaluate", partial(evaluate_learned, workspace)),
            Step("reserve", partial(reserve, workspace)),
            Step("publish", partial(publish, workspace)),
        ),
        "evaluate": (Step("evaluate", partial(evaluate, workspace)),),
        "schema": (Step("summarise", partial(summarise, workspace)),),
    }
