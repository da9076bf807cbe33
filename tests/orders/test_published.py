"""Family scores against those of other programs."""

import numpy as np
import pytest

from learners.orders.scores.bdeu_bge import BDeu
from learners.orders.scores.scores import FamilyScores
from tests.orders.problems import Rows, bge_of
from tests.published import rows_of


def scores_within(score, n_columns, most):
    """Scores of all parent sets, without a prior."""
    candidates = tuple(np.delete(np.arange(n_columns), node) for node in range(n_columns))
    return FamilyScores(candidates, np.concatenate(score.tables(candidates, most)))


def compared(score, names, families, most):
    """Our scores and theirs, of the same families."""
    ours, place = scores_within(score, len(names), most), {name: i for i, name in enumerate(names)}
    for family in families:
        node, parents = place[family["node"]], [place[name] for name in family["parents"].split()]
        yield float(ours.of(node)[ours.index(node, parents)]), float(family["log_score"])


@pytest.mark.parametrize("ess", [1, 10])
def test_bdeu_is_that_of_pgmpy(ess):
    rows = rows_of("asia-200.csv")
    codes = np.array([[row[name] == "yes" for row in rows] for name in rows[0]], np.uint8)
    score = BDeu(Rows(codes), np.full(len(codes), 2), float(ess))
    families = [family for family in rows_of("bdeu-pgmpy.csv") if float(family["ess"]) == ess]
    assert len(families) == 56
    for ours, theirs in compared(score, list(rows[0]), families, 3):
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_bge_is_that_of_sumu():
    rows = rows_of("gaussian-40.csv")
    x = np.array([list(row.values()) for row in rows], np.float64)
    families = rows_of("bge-sumu.csv")
    assert len(families) == 129
    for ours, theirs in compared(bge_of(x), list(rows[0]), families, x.shape[1] - 1):
        assert ours == pytest.approx(theirs, abs=1e-9)
