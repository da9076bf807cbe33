"""(Conditional) mutual information against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.counts.information import conditional_mutual_information, mutual_information
from learners.counts.pairwise import PairwiseCounts
from learners.errors import EmptyStatistic
from tests import laws, strategies
from tests.naive.information import matrices


@given(drawn=strategies.chunk_lists(), width_cost=st.sampled_from([0.0, 3.0]))
def test_equal_the_definition(drawn, width_cost):
    schema, parts = drawn
    counted = laws.updated(PairwiseCounts(schema), parts)
    if not counted.n_rows:
        for information in (mutual_information, conditional_mutual_information):
            with pytest.raises(EmptyStatistic, match="No rows were counted, so information cannot be computed"):
                information(counted)
        return
    chunk = strategies.joined(parts)
    with_class, between = matrices(chunk.x, chunk.y, width_cost)
    alone, found = mutual_information(counted, width_cost), conditional_mutual_information(counted, width_cost)
    assert np.allclose(alone, with_class, rtol=0, atol=1e-12)
    assert np.allclose(found, between, rtol=0, atol=1e-12)
    assert np.array_equal(found, found.T)
    assert not np.diag(found).any()
    if not width_cost:
        assert min(found.min(), alone.min()) >= 0


def test_of_a_copy_is_the_entropy_and_of_independent_ones_nothing():
    schema = strategies.schema_of((2, 2, 2), 2)
    counted = PairwiseCounts(schema)
    y = np.tile(np.array([0, 0, 1, 1], np.uint8), 25)
    other = np.tile(np.array([0, 1, 0, 1], np.uint8), 25)
    counted.update(strategies.Chunk(np.array([y, other, other]), y))
    assert mutual_information(counted) == pytest.approx([np.log(2), 0, 0], abs=1e-15)
    between = conditional_mutual_information(counted)
    assert between[1, 2] == pytest.approx(np.log(2))
    assert between[0, 1] == pytest.approx(0, abs=1e-15)
