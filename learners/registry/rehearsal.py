"""Questions that a model from an untrusted file answers before it is accepted."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from learners.errors import LearnerError
from learners.models.explanation import explain
from learners.models.model import Model
from learners.schema import Chunk
from learners.schema.encoding.json_records import encode_json_records

PROBES = 64  # rows of codes
EXPLAINED = 8  # the first of them


def rehearse(model: Model) -> None:
    """Ask a model for what later requests ask: warnings, tables, predictions, intervals and explanations.

    A capability that the model lacks is no fault. Raises ArithmeticError for predictions that are not numbers, or whatever a
    later request would.
    """
    model.warnings()
    model.tables()
    if model.schema.target is None:
        return
    sizes = model.schema.domain_sizes + 1  # the last code is that of a value never seen
    rng = np.random.default_rng(0)
    x = np.array([rng.permutation(np.arange(PROBES) % size) for size in sizes]).reshape(sizes.size, PROBES)
    x = x.astype(model.schema.code_dtype)
    numbers = rng.normal(size=(len(model.schema.continuous), PROBES))
    few = (np.ascontiguousarray(part[:, :EXPLAINED]) for part in (x, numbers))
    by_codes = Chunk(next(few), None, numbers=next(few))
    without = encode_json_records([{}], model.schema)
    for rows in (Chunk(x, None, numbers=numbers), without):
        with suppress(LearnerError):  # a circuit of numeric columns takes no codes
            if not np.isfinite(model.predict_proba(rows)).all():
                raise ArithmeticError("it predicts values that are not numbers")
    for rows in (by_codes, without):
        for ask in (explain, type(model).credible_intervals):
            with suppress(LearnerError):
                ask(model, rows)
