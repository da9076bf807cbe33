"""Other libraries' boosting answers with probabilities, whatever the columns hold."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.boosting_peers import BOOSTING
from learners.models.parameters import parse_parameters_dataclass

SMALL = {"xgboost-slow": {"rounds": 5}, "xgboost-tuned": {"trials": 2, "rounds": 5}}


# EBM takes as long as all others together.
CASES = [(name, n_classes) for name in BOOSTING for n_classes in (2, 3) if (name, n_classes) != ("ebm", 2)]


@pytest.mark.parametrize(("name", "n_classes"), CASES)
def test_they_learn_from_words_and_numbers_with_gaps(name, n_classes):
    random = np.random.default_rng(0)
    number, word = random.normal(size=90), random.choice(["a", "b", "c"], 90)
    y = (np.digitize(number, [-0.4, 0.4][: n_classes - 1]) + 0).astype(np.int64)
    gaps = pa.array(np.where(random.random(90) < 0.1, np.nan, number), from_pandas=True)
    table = pa.table({"number": gaps, "word": pa.array(word).take(pa.array([*range(89), None]))})
    peer = BOOSTING[name]
    predict = peer.fit(table, y, parse_parameters_dataclass(peer.parameters, name, SMALL.get(name, {})), 0, 1)
    p = predict(table.append_column("other", gaps).select(["number", "word"]))
    assert p.shape == (90, n_classes)
    assert p.sum(axis=1) == pytest.approx(np.ones(90), abs=1e-5)
    of_true = p[np.arange(90), y].mean()
    assert of_true > 1 / n_classes, "better than guessing"
