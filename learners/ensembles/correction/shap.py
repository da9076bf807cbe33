"""What each attribute adds to the score of a correction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.classifiers.baselines.boosted import CodeTable, loaded_booster
from learners.kernels.arrays import Floats, Uint8s
from learners.schema import Chunk, Schema


def shap_terms(
    schema: Schema, boosters: Sequence[Uint8s], weights: Sequence[float], chunk: Chunk
) -> tuple[Floats, Floats]:
    """(n_classes,) bias and (n_attributes, n_rows, n_classes) SHAP values of the boosters' margins, weighted and summed.

    References
    ----------
    Lundberg et al. (2020), From local explanations to global understanding with explainable AI for trees.
    """
    import xgboost

    codes = CodeTable(schema)
    bias = np.zeros(schema.n_classes)
    values = np.zeros((schema.n_attributes, chunk.n_rows, schema.n_classes))
    if not chunk.n_rows:
        return bias, values
    rows = xgboost.DMatrix(codes.features(chunk.x), feature_types=codes.feature_types, enable_categorical=True)
    for serialised, weight in zip(boosters, weights, strict=True):
        terms = loaded_booster(serialised).predict(rows, pred_contribs=True, validate_features=False).astype(np.float64)
        if schema.n_classes == 2:  # the margin is the log odds of the second class
            terms = np.stack([np.zeros_like(terms), terms], axis=1)
        bias += weight * terms[0, :, -1]
        values += weight * terms[:, :, :-1].transpose(2, 0, 1)
    return bias, values
