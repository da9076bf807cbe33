"""Random bits at counters: one after the other and of arrays."""

import numpy as np

from learners.kernels.random import random_bits_array, uniform_variate


def test_bits_of_many_counters_are_those_of_each_and_evenly_spread():
    counters = np.arange(40_000, dtype=np.uint64)
    bits = random_bits_array(counters)
    np.testing.assert_array_equal(random_bits_array(counters[500:600]), bits[500:600])
    assert [uniform_variate(counter) for counter in counters[:50]] == ((bits[:50] >> np.uint64(11)) * 2.0**-53).tolist()
    assert abs((bits % np.uint64(8) == 0).mean() - 1 / 8) < 0.01
