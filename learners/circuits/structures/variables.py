"""What a structure learner needs to know of each variable: which leaves it gets and where they start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.kernels import GAUSSIAN
from learners.circuits.structures.circuit_builder import Blocks, log_shares
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers

# A Gaussian leaf never becomes narrower than this share of the variable's own standard deviation.
NARROWEST = 0.01


@dataclass(frozen=True)
class Variable:
    """A variable and the overall distribution that its leaves start from.

    Raises InvalidParameter if the kind is not known, there are no values, or mean and standard deviation are none.
    """

    kind: Literal["categorical", "gaussian"] = "categorical"
    probabilities: tuple[float, ...] = ()  # of the values of a categorical variable
    # mean, std: of a numeric variable.
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("categorical", "gaussian"):
            raise InvalidParameter("leaves", self.kind, "use categorical or gaussian")
        if self.kind == "categorical" and not self.probabilities:
            raise InvalidParameter("probabilities", (), "a categorical variable needs at least one value")
        if not (np.isfinite(self.mean) and 0 < self.std < np.inf):
            raise InvalidParameter("std", self.std, "use a finite mean and a positive, finite standard deviation")

    @property
    def n_values(self) -> int:
        """Size of the domain; 0 for a numeric variable."""
        return len(self.probabilities)

    def random_leaves(
        self, blocks: Blocks, variable: int, n: int, rng: np.random.Generator, as_sums: bool = False
    ) -> Integers:
        """Add n different leaves around the overall distribution; their numbers (n,)."""
        if self.kind == "categorical":
            share = np.asarray(self.probabilities) / sum(self.probabilities)
            # As if drawn from a few rows: different from leaf to leaf, and no value impossible.
            p = rng.gamma(1.0 + share * share.size, size=(n, share.size)) + 1e-3
            return blocks.distributions(variable, log_shares(p * (share + 1e-3)), as_sums)
        means = rng.normal(self.mean, self.std, n)
        parameters = np.stack([means, self.std * rng.uniform(0.5, 1.0, n)], axis=1)
        return blocks.leaves(GAUSSIAN, np.full(n, variable), parameters)

    def overall_leaf(self, blocks: Blocks, variable: int) -> int:
        """Add the leaf of the overall distribution; its number."""
        if self.kind == "categorical":
            return int(blocks.distributions(variable, log_shares(self.probabilities)[np.newaxis])[0])
        return int(blocks.leaves(GAUSSIAN, [variable], np.array([[self.mean, self.std]]))[0])

    def fitted_leaf(self, blocks: Blocks, variable: int, x: Floats, pseudo_count: float) -> int:
        """Add the leaf that fits some rows (n_rows,) best, drawn towards the overall distribution; its number.

        Missing is NaN; pseudo_count rows are added to each value of a categorical variable, or to a numeric one as a
        whole.
        """
        x = x[~np.isnan(x)]
        if self.kind == "categorical":
            counts = np.bincount(x.astype(np.int64), minlength=self.n_values) + pseudo_count
            return int(blocks.distributions(variable, log_shares(counts)[np.newaxis])[0])
        n = x.size + pseudo_count
        mean = (x.sum() + pseudo_count * self.mean) / n if x.size else self.mean
        std = np.sqrt((((x - mean) ** 2).sum() + pseudo_count * self.std**2) / n) if x.size else self.std
        parameters = np.array([[mean, max(std, NARROWEST * self.std)]])
        return int(blocks.leaves(GAUSSIAN, [variable], parameters)[0])


def describe_variables(x: Floats, n_values: Sequence[int]) -> tuple[Variable, ...]:
    """The variables of a sample of rows (n_variables, n_rows), by the sizes of their domains; 0 of a numeric variable.

    Rows have codes of discrete variables, numbers of others; NaN, or a code outside the domain, where missing.
    """
    variables = []
    for row, size in zip(x, n_values, strict=True):
        if size:
            codes = row[(row >= 0) & (row < size)].astype(np.int64)
            p = (np.bincount(codes, minlength=size) + 1.0) / (codes.size + size)
            variables.append(Variable("categorical", tuple(p.tolist())))
            continue
        known = row[np.isfinite(row)]
        mean, std = (float(known.mean()), float(known.std())) if known.size else (1.0, 1.0)
        variables.append(Variable("gaussian", (), mean, std if std > 0 else max(1e-3 * abs(mean), 1e-6)))
    return tuple(variables)


def independent(variables: Sequence[Variable]) -> Circuit:
    """One product of the overall distribution of each variable: the simplest circuit, and the floor of every comparison."""
    blocks = Blocks([variable.n_values for variable in variables])
    nodes = [variable.overall_leaf(blocks, v) for v, variable in enumerate(variables)]
    blocks.products(np.array([nodes]))
    return blocks.circuit()
