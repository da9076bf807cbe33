"""Tables whose rows are all later than those that an estimator was fitted to."""

import datetime
import warnings

import numpy as np
import pyarrow as pa
import pytest

from fewpass import NB, SumProductNetwork
from learners import ColumnWarning

N = 400
START = datetime.datetime(2026, 1, 1)
WORDS = (
    "All rows are later than those the model learned from: 'when' ended at 2026-01-17T15:00:00 in training and begins at "
    "2026-01-19T20:00:00 here. Measure it on such rows, or train with newer ones."
)
KEEP = {"when": {"cuts": [1_768_000_000.0]}}


def table(first=0, n_rows=N):
    random = np.random.default_rng(first)
    y = random.integers(0, 2, n_rows)
    moments = [START + datetime.timedelta(hours=first + hour) for hour in range(n_rows)]
    a = np.where(random.random(n_rows) < 0.8, y, 1 - y)
    return pa.table({"when": moments, "a": a.astype(str), "y": np.array(["no", "yes"])[y]})


@pytest.mark.parametrize("estimator", [NB(columns=KEEP), SumProductNetwork(target="y", columns=KEEP)])
def test_estimators_say_it_once_of_tables_and_never_of_records(estimator):
    estimator.fit(table(), "y")
    later = table(N + 52).drop_columns(["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.predict_proba(table(200, 300).drop_columns(["y"]))
        if isinstance(estimator, NB):
            estimator.predict_proba(later.slice(0, 1).to_pylist()[0])
            estimator.predict_proba(later.to_pandas().iloc[:1])
    with pytest.warns(ColumnWarning) as warned:
        estimator.predict_proba(later.to_pandas())
    assert [str(one.message) for one in warned] == [WORDS] and warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.predict_proba(table(N + 60).drop_columns(["y"]))
    with pytest.warns(ColumnWarning, match="All rows are later"):
        estimator.report(table(N + 52).to_pandas(), "y")
