"""Tables whose rows are all later than those that an estimator was fitted to."""

import warnings

import pytest

from fewpass import NB, SumProductNetwork
from learners import ColumnWarning
from tests.support.estimators import KEEP, WORDS, N, table


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
