"""An imported model is tried before anybody relies on it; one that holds another library's bytes, in a process that may die."""

import json
import math
import resource
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from learners.circuits.model import CircuitModel
from learners.classifiers.baselines.boosted import BoostedModel
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.model import EnsembleModel
from learners.errors import LearnerError
from learners.kernels.arrays import Arrays
from learners.models.model import Model
from learners.models.query import Graph, Marginal
from learners.orders.model import OrderModel
from learners.registry.model_kinds import load_model
from learners.schema import Chunk
from learners.schema.encoding.json_records import encode_records, record_classifier
from learners.schema.schema import FEW_CLASSES
from service.product.child_process import aside
from service.requests.problems import InvalidRequest
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.models import model_file

CPU_S = 60
PROBES = 256
LIBRARY = "booster"  # how the arrays begin that XGBoost reads


def try_model(workspace: Workspace, path: Path, draft: Path, header: Mapping[str, object], arrays: Arrays) -> None:
    """Look at all of a model, and let it answer when nothing is known.

    `path` is the imported file, for messages, and `draft` the model file that was in it. Raises CorruptFile if the model
    cannot be used, or ends the process that tries it.
    """
    if any(name.startswith(LIBRARY) for name in arrays):
        try:
            reason = aside(workspace, _tried_file, draft, is_trusted=False)
        except InvalidRequest as error:
            raise CorruptFile(path, "its model ends the process that reads it.") from error
    else:
        reason = tried(header, arrays)
    if reason:
        raise CorruptFile(path, reason)


def _tried_file(_workspace: Workspace, draft: Path) -> str:
    """Why a model file cannot be used, as a process finds that may take so much time and no more."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    most = int(usage.ru_utime + usage.ru_stime) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    return tried(*model_file.read_model(draft))


def tried(header: Mapping[str, object], arrays: Arrays) -> str:
    """Why a model that was read cannot be used; empty if it can."""
    try:
        model = load_model(header, arrays, is_trusted=False)
        json.dumps(model.structure(), ensure_ascii=False).encode()
        probabilities = _answer(model)
        _probe(model)
    except (LearnerError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return f"its model cannot be used ({type(error).__name__}: {error})."
    if len(probabilities) != model.schema.n_classes or not math.isclose(sum(probabilities), 1, abs_tol=1e-6):
        return "its model gives no probabilities that sum to one."
    return ""


def _probe(model: Model) -> None:
    """Let trees of another library answer for codes of all kinds, and explain them."""
    if not isinstance(model, BoostedModel | EnsembleModel):
        return
    sizes = model.schema.domain_sizes + 1  # the last code is that of a value never seen
    rng = np.random.default_rng(0)
    x = np.array([rng.permutation(np.arange(PROBES) % size) for size in sizes])
    chunk = Chunk(x.astype(model.schema.code_dtype), None)
    if not np.isfinite(model.predict_proba(chunk)).all() or not np.isfinite(model.log_terms(chunk)[1]).all():
        raise ValueError("it answers with values that are not numbers")
    model.tables()


def _answer(model: Model) -> list[float]:
    """The probability of each class, or without classes of everything, when nothing is known."""
    if isinstance(model, OrderModel):
        model.answer([Graph()])
        are_probabilities = bool(np.all((model.probabilities >= 0.0) & (model.probabilities <= 1.0 + 1e-9)))
        return [1.0] if are_probabilities else []
    if isinstance(model, CircuitModel) and model.schema.target is None:
        return [answer["probability"] for answer in model.answer([Marginal({})])]
    if isinstance(model, LookupModel) and model.variances and model.schema.n_classes <= FEW_CLASSES:
        model.credible_intervals(encode_records([{}], model.schema))
    probabilities: list[float] = record_classifier(model)({}).tolist()
    return probabilities
