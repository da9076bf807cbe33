"""Random mixtures and rows."""

import numpy as np
from hypothesis import strategies as st

from learners.circuits.mixtures.mixture import GaussianMixture


@st.composite
def mixtures(draw, most_numeric=4):
    """Of up to four components, numeric and discrete variables mixed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    k, d = draw(st.integers(1, 4)), draw(st.integers(1, most_numeric))
    discrete = draw(st.lists(st.integers(1, 3), max_size=2))
    n_values = rng.permutation([0] * d + discrete)
    scale = 10.0 ** rng.uniform(-3, 3, d)
    factor = np.tril(rng.normal(size=(k, d, d)), -1) + np.eye(d) * rng.uniform(0.3, 2.0, (k, 1, d))
    factor *= scale[:, np.newaxis]
    shares = [np.log(rng.dirichlet(np.ones(size), k)) for size in n_values if size]
    return GaussianMixture(
        np.log(rng.dirichlet(np.ones(k))),
        rng.normal(size=(k, d)) * 2 * scale,
        factor @ np.swapaxes(factor, 1, 2),
        np.concatenate([*shares, np.empty((k, 0))], axis=1),
        n_values,
    )


def rows_of(mixture, n, seed, missing=0.3):
    """(n_variables, n) drawn near the components' means, with missing cells."""
    rng = np.random.default_rng(seed)
    x = np.empty((mixture.n_values.size, n))
    component = rng.integers(0, mixture.n_components, n)
    for v, size in enumerate(mixture.n_values.tolist()):
        x[v] = rng.integers(0, max(size, 1), n)
    for row, k in enumerate(component.tolist()):
        x[mixture.numeric, row] = rng.multivariate_normal(mixture.mean[k], mixture.covariance[k])
    x[rng.random(x.shape) < missing] = np.nan
    return x


def example():
    """Two numeric columns, one with three values."""
    return GaussianMixture(
        np.log([0.3, 0.7]),
        np.array([[0.0, 0.0], [4.0, -2.0]]),
        np.array([[[1.0, 0.9], [0.9, 1.0]], [[2.0, -1.0], [-1.0, 1.5]]]),
        np.log([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]),
        np.array([0, 3, 0]),
    )
