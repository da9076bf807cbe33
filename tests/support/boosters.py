"""A boosted model, and the rows that it learns from."""

import numpy as np
import pyarrow as pa

from learners.classifiers.baselines import recipes
from learners.classifiers.baselines.boosted import BoostedModel, XGBoostParameters
from learners.passes.learner import Learner, drive

N = 1200


def rows(n_classes, n=N, seed=0):
    """Words, a skewed number and an integer that tell of the class together; some are missing."""
    rng = np.random.default_rng(seed)
    word, number = rng.integers(0, 6, n), rng.lognormal(0, 2, n)
    small = rng.integers(-5, 40, n)
    y = ((word % 3) + (number > 1.3) + (small > 20) + (rng.random(n) < 0.1)) % n_classes
    words = [None if rng.random() < 0.04 else f"w{value}" for value in word]
    numbers = [None if rng.random() < 0.04 else float(value) for value in number]
    return pa.table({"word": words, "number": numbers, "small": small, "class": [f"c{value}" for value in y]})


def train(source, **parameters):
    chosen = XGBoostParameters(**({"rounds": 10} | parameters))
    model = drive(Learner("xgboost", recipes.xgboost("class", chosen), 2), source, threads=1)
    assert isinstance(model, BoostedModel)
    return model
