"""An answer that is no distribution is an error that names the row, in every way out."""

import numpy as np
import pyarrow as pa
import pytest

from fewpass import KDB
from learners import Source, encode, explain, record_classifier
from learners.answer_checks import check_answer_distributions
from learners.errors import InvalidPrediction
from service.product.inference.scoring import probabilities_and_true_classes, scored_batches
from service.serving.predictor import Served

GOOD = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5 + 5e-7]])


@pytest.mark.parametrize("bad", [[np.nan, np.nan], [np.inf, 0.0], [0.5, 0.4999], [1.5, -0.5], [0.0, 0.0]])
def test_rows_that_are_no_distribution(bad):
    assert check_answer_distributions(GOOD) is GOOD
    with pytest.raises(InvalidPrediction, match="Row 12: the model's probabilities") as raised:
        check_answer_distributions(np.array([*GOOD, bad])[[0, 1, 3, 2]], first_row=10)
    assert raised.value.row == 12


@pytest.fixture
def broken(monkeypatch):
    """A fitted estimator whose model answers NaN for one row, and the table."""
    table = pa.table({"a": ["u", "v"] * 20, "b": list(range(40)), "class": ["x", "y", "y", "x"] * 10})
    fitted = KDB().fit(table, "class")
    right = type(fitted.model_).predict_proba

    def wrong(self, chunk, threads=None):
        probabilities = right(self, chunk)
        probabilities[min(3, max(0, chunk.n_rows - 1)) :][:1] = np.nan
        return probabilities

    monkeypatch.setattr(type(fitted.model_), "predict_proba", wrong)
    return fitted, table


def test_no_way_out_gives_such_a_row(broken):
    fitted, table = broken
    model, rows = fitted.model_, table.drop_columns("class")
    (chunk,) = (encode(batch, model.schema) for batch in table.to_batches())
    source = Source.of_table(table)
    served = Served("m", 1, "kdb", "", model, record_classifier(model), lambda n: None)
    for answer in (
        lambda: fitted.predict_proba(rows),
        lambda: fitted.predict(rows),
        lambda: served.predict_proba(chunk),
        lambda: explain(model, chunk),
        lambda: list(scored_batches(model, source, [])),
        lambda: probabilities_and_true_classes(model, source),
    ):
        with pytest.raises(InvalidPrediction, match="Row 3"):
            answer()
    with pytest.raises(InvalidPrediction, match="Row 0"):
        record_classifier(model)(rows.to_pylist()[0])
