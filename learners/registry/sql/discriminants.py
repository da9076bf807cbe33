"""Gaussian discriminants in SQL: inline for whole rows, and by sweeps of covariances for rows that lack columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from learners.ensembles.discriminants.gaussian import Discriminant, whitened
from learners.registry.sql.dialects import Dialect, Query, balanced_sql_sum


class DiscriminantInSQL:
    """A discriminant as query steps over rows that differ and have a `row_key`."""

    def __init__(self, discriminant: Discriminant) -> None:
        self._of = discriminant
        self._columns = discriminant.columns.tolist()
        self._scores = np.split(discriminant.scores, discriminant.starts[1:-1])

    @property
    def n_numbers(self) -> int:
        """How many numbers its tables hold."""
        n_classes, m = self._of.means.shape
        return n_classes * (m + 1) ** 2 + n_classes * (m + 1) + self._of.scores.size + 1

    def covariance_rows(self, dialect: Dialect) -> Iterator[str]:
        """Yield the rows class, i, j, value of the covariances, with one more row and column of zeros."""
        n_classes, m = self._of.means.shape
        for k in range(n_classes):
            for i in range(m + 1):
                for j in range(m + 1):
                    value = float(self._of.covariances[k, i, j]) if max(i, j) < m else 0.0
                    yield f"{k}, {i}, {j}, {dialect.number(value)}"

    def mean_rows(self, dialect: Dialect) -> Iterator[str]:
        """Yield the rows class, i, mean; of the row after the columns it is 0."""
        for k, means in enumerate(self._of.means.tolist()):
            yield from (f"{k}, {i}, {dialect.number(mean)}" for i, mean in enumerate([*means, 0.0]))

    def score_rows(self, dialect: Dialect) -> Iterator[str]:
        """Yield the rows i, code, z; after the columns one of 1."""
        for i, scores in enumerate([*self._scores, np.ones(1)]):
            yield from (f"{i}, {code}, {dialect.number(z)}" for code, z in enumerate(scores.tolist()))

    def add_scores(self, query: Query, source: str, *, is_whole: bool) -> str:
        """Add the step with `row_key` and g0, g1, …: the discriminant's contribution to the score of each class.

        `source`: the step with `row_key` and the codes c0, c1, …, of rows that lack none of the columns if `is_whole`.
        """
        return self._add_whole(query, source) if is_whole else self._add_marginal(query, source)

    def _add_whole(self, query: Query, source: str) -> str:
        number, m = query.dialect.number, len(self._columns)
        means, (factors, log_sizes) = self._of.means, whitened(self._of.covariances)
        scores = []
        for place, (column, own) in enumerate(zip(self._columns, self._scores, strict=True)):
            cases = " ".join(f"WHEN {code} THEN {number(z)}" for code, z in enumerate(own.tolist()))
            scores.append(f"CASE c{column} {cases} END AS z{place}")
        source = query.add("scores", ["row_key", *scores], source)
        lengths = []
        for k in query.classes:
            for j in range(m):
                terms = [f"{number(float(factors[k, j, i]))} * z{i}" for i in range(j + 1)]
                shift = number(-float(factors[k, j] @ means[k]))
                lengths.append(f"{balanced_sql_sum([*terms, shift])} AS u{k}_{j}")
        source = query.add("whitened", ["row_key", *lengths], source)
        densities = []
        for k in query.classes:
            squares = balanced_sql_sum([f"u{k}_{j} * u{k}_{j}" for j in range(m)])
            densities.append(f"{number(-float(log_sizes[k].sum()))} - 5e-1 * {squares} AS e{k}")
        return self._add_bounded(query, query.add("densities", ["row_key", *densities], source))

    def _add_bounded(self, query: Query, source: str) -> str:
        """Add the steps that bound the log densities e0, e1, … and weight them."""
        number, dialect = query.dialect.number, query.dialect
        weight, densities = float(self._of.weight[0]), [f"e{k}" for k in query.classes]
        floor = f"{dialect.largest(densities)} - {number(float(self._of.bound[0]))} AS least"
        source = query.add("floors", ["row_key", *densities, floor], source)
        scores = [
            f"{number(weight * float(self._of.log_shares[k]))} + {number(weight)} * {dialect.largest([f'e{k}', 'least'])} AS g{k}"
            for k in query.classes
        ]
        return query.add("gaussians", ["row_key", *scores], source)

    def _add_marginal(self, query: Query, source: str) -> str:
        """Add the steps that sweep the covariances of each pattern of known columns, which inverts those of the known.

        Dempster (1969), Elements of continuous multivariate analysis, section 4.3.
        """
        m = len(self._columns)
        sizes = [scores.size for scores in self._scores]
        places = list(enumerate(zip(self._columns, sizes, strict=True)))
        marks = [f"CASE WHEN c{column} < {size} THEN 1 ELSE 0 END AS n{place}" for place, (column, size) in places]
        known = [f"n{place}" for place, _ in places]
        codes = [f"c{column}" for column in self._columns]
        masked = query.add("masked", ["row_key", *codes, *marks], source, is_shared=True)
        patterns = query.add("patterns", known, masked, distinct=True)
        rest = [*known, "class", "i", "j"]
        swept = query.add("swept", [*rest, "v"], f"{patterns} CROSS JOIN {query.table('covariances')}")
        pattern = ", ".join([*known, "class"])
        for k in range(m):
            beside = f"MAX(CASE WHEN j = {k} THEN v END) OVER (PARTITION BY {pattern}, i) AS beside"
            above = f"MAX(CASE WHEN i = {k} THEN v END) OVER (PARTITION BY {pattern}, j) AS above"
            here = f"MAX(CASE WHEN i = {k} AND j = {k} THEN v END) OVER (PARTITION BY {pattern}) AS here"
            swept = query.add("pivots", [*rest, "v", beside, above, here], swept)
            cases = [
                f"WHEN n{k} = 0 THEN v WHEN i = {m} AND j = {m} THEN v + LN(here)",
                f"WHEN i = {k} AND j = {k} THEN -1e0 / here WHEN i = {k} OR j = {k} THEN v / here",
            ]
            swept = query.add(
                "swept", [*rest, f"CASE {' '.join(cases)} ELSE v - beside * above / here END AS v"], swept
            )
        swept = query.add("precisions", [*rest, "v"], swept, is_shared=True)
        code = " ".join(f"WHEN {place} THEN s.c{column}" for place, (column, _) in places)
        joined = f"{masked} AS s JOIN {query.table('means')} AS m ON 1 = 1 JOIN {query.table('scores')} AS z"
        joined += f" ON z.i = m.i AND z.code = CASE m.i {code} ELSE 0 END"
        own = ["s.row_key", *(f"s.{name} AS {name}" for name in known), "m.class", "m.i", "z.z - m.mean AS d"]
        deviations = query.add("deviations", own, joined, is_shared=True)
        same = " AND ".join(f"p.{name} = a.{name}" for name in known)
        joined = f"{deviations} AS a JOIN {deviations} AS b ON b.row_key = a.row_key AND b.class = a.class"
        joined += f" JOIN {swept} AS p ON p.class = a.class AND p.i = a.i AND p.j = b.i AND {same}"
        # The row after the columns holds the logarithm of the determinant, and zeros beside it.
        square = f"CASE WHEN p.i = {m} THEN p.v ELSE -p.v * a.d * b.d END"
        sums = [f"SUM(CASE WHEN p.class = {k} THEN -5e-1 * {square} ELSE 0e0 END) AS e{k}" for k in query.classes]
        densities = query.add("densities", ["a.row_key", *sums], f"{joined}\n  GROUP BY a.row_key")
        return self._add_bounded(query, densities)
