"""Which share of each class would explain what was served, if P(attributes | class) has stayed."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats
from learners.monitoring.reference import Reference
from learners.monitoring.served_counts import ServedCounts

ITERATIONS = 200
TOLERANCE = 1e-7


def class_mix(window: ServedCounts, reference: Reference) -> Floats | None:
    """Shares of the classes that make the marginals of the window most probable, by EM on their product.

    Needs no labels and no predictions. It is an estimate, and one of the classes' shares only as long as the attributes
    given the class are as before.

    `reference`: with counts for each class.
    Returns (n_classes,) float64, or None if the reference does not know the classes.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002), section 2.2, on the marginals instead of the posteriors.
    """
    n_classes = max((table.shape[0] for table in reference.families), default=1)
    if n_classes < 2 or not window.n_rows:
        return None
    shares: list[Floats] = []
    counts: list[Floats] = []
    for i, table in enumerate(reference.families):
        if table.shape[0] != n_classes:
            continue
        own = window.marginal(i)[:-1]
        by_class = table.sum(axis=1)[:, :-1] + 0.5
        shares.append(by_class / by_class.sum(axis=1, keepdims=True))
        counts.append(own.astype(np.float64))
    values, weights = np.concatenate(shares, axis=1), np.concatenate(counts)
    mix = prior_of(reference)
    for _ in range(ITERATIONS):
        joint = mix[:, None] * values
        new = (joint / joint.sum(axis=0)) @ weights
        new /= new.sum()
        moved = float(np.abs(new - mix).max())
        mix = new
        if moved < TOLERANCE:
            break
    return mix


def prior_of(reference: Reference) -> Floats:
    """(n_classes,) float64: shares of the classes in the reference."""
    n_classes = max(table.shape[0] for table in reference.families)
    table = next(table for table in reference.families if table.shape[0] == n_classes)
    counts = table.sum(axis=(1, 2)) + 1.0 / n_classes
    return counts / counts.sum()


def remixed(reference: Reference, mix: Floats) -> Reference:
    """The reference with other shares of the classes; counts are rounded, and there are as many rows."""
    ratio = mix / prior_of(reference)
    families = tuple(
        np.rint(table * ratio[:, None, None]).astype(np.int64) if table.shape[0] == mix.size else table
        for table in reference.families
    )
    return Reference(reference.name, families, reference.served, reference.knows_ranges)
