"""Models prepared for SQL: the families of a network, or those of a pool merged into fewer tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from learners.classifiers.lookup.elimination import (
    LARGE,
    MAJOR,
    MOST_ENTRIES,
    MOST_OF_LARGE,
)
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.joint_members import LEAST
from learners.ensembles.model import EnsembleModel
from learners.kernels.arrays import Floats, Integers, freeze_arrays
from learners.registry.sql.dialects import Query, balanced_sql_sum
from learners.registry.sql.discriminants import DiscriminantInSQL
from learners.registry.sql.encoding import binary_search_sql
from learners.registry.sql.families import (
    Families,
    add_family_elimination_step,
    add_family_evidence_step,
    add_family_lookup_step,
)
from learners.registry.sql.tree_nodes import TreesInSQL
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views


class Writable(Protocol):
    """A model as query steps over its codes c0, c1, …"""

    schema: Schema
    used: tuple[int, ...]  # attributes that the model looks at; a null among them is a value or hides one
    needed: tuple[int, ...]  # attributes without which `add_scores` is not right
    # Of each network that sums out what is missing; its attributes are those of the schema.
    summing: tuple[Families, ...]
    families: tuple[Families, ...]  # all that the table of logarithms holds
    trees: TreesInSQL | None
    discriminant: DiscriminantInSQL | None
    prior: list[float]  # of the classes, where no class can produce a row

    def add_scores(self, query: Query, source: str) -> str:
        """Add the step with `row_key` and l0, l1, …: unnormalized log P(class, row) of rows without missing needed
        attributes. Each step of rows is shared and has `row_key`, different in each row, and the codes.
        """

    def add_evidence(self, query: Query, source: str) -> str:
        """Add the step with `row_key` and `evidence` of rows, by lookups in which a missing parent ends the context."""

    def add_known(self, query: Query, source: str, *, by_look_ups: bool = False) -> str:
        """Add the step with `row_key`, p0, p1, … and `evidence` of rows with any missing values; `by_look_ups` as in
        `add_evidence`.
        """


class NetworkInSQL:
    """A single network."""

    def __init__(self, model: LookupModel) -> None:
        self.schema = model.schema
        self.joint = _families_of(model)
        self.summing: tuple[Families, ...] = (self.joint,)
        self.families: tuple[Families, ...] = self.summing
        self.trees: TreesInSQL | None = None
        self.discriminant: DiscriminantInSQL | None = None
        self.used, self.needed = tuple(sorted(model.network.order)), self.joint.parents
        self._log_prior = model.log_prior.tolist()
        self.prior = np.exp(model.log_prior).tolist()

    def add_scores(self, query: Query, source: str) -> str:
        """Add the step of `Writable.add_scores`."""
        codes = [f"c{i}" for i in self.used]
        columns = ["row_key", *codes, *_prior(query, self._log_prior)]
        source = query.add("begun", columns, source, is_shared=True)
        return add_family_lookup_step(query, self.joint, source, [])

    def add_evidence(self, query: Query, source: str) -> str:
        """Add the step of `Writable.add_evidence`."""
        return add_family_evidence_step(query, self.joint, source, self._log_prior)

    def add_known(self, query: Query, source: str, *, by_look_ups: bool = False) -> str:
        """Add the step of `Writable.add_known`."""
        if by_look_ups:
            return self.add_evidence(query, source)
        source = add_family_elimination_step(query, self.joint, source, self._log_prior)
        return query.softmax(source, ["row_key"], self.prior, is_shared=True)


class PoolInSQL:
    """A geometric pool of networks, optionally with discriminants and trees, with joint members for missing values; see
    `EnsembleModel`.
    """

    def __init__(self, model: EnsembleModel) -> None:
        self.schema, self._views, self._joints = model.schema, model.views, model.joints
        self._pool = merge_pool_families(model)
        n, n_pooled = model.schema.n_attributes, len(self._pool.order)
        self.summing = tuple(
            _families_of(joint, n_pooled + number * n, number * n) for number, joint in enumerate(model.joints.models)
        )
        self.families: tuple[Families, ...] = (self._pool, *self.summing)
        self.trees: TreesInSQL | None = None
        if model.correction is not None:
            self.trees = TreesInSQL(model.correction.forest, model.schema.domain_sizes.tolist())
        self.discriminant = None if model.discriminant is None else DiscriminantInSQL(model.discriminant)
        self.used = self.needed = tuple(range(model.schema.n_attributes))
        self._log_prior = model.log_prior.tolist()
        self.prior = np.exp(model.log_prior).tolist()

    def add_scores(self, query: Query, source: str) -> str:
        """Add the step of `Writable.add_scores`."""
        return self._add_scores(query, source, [], is_whole=True)

    def _add_scores(self, query: Query, source: str, kept: Sequence[str], *, is_whole: bool) -> str:
        n = self.schema.n_attributes
        seen = sorted({*self._pool.order, *self._pool.parents})
        codes = [f"s.c{i}" if i < n else _view(self._views, i - n, f"c{i}") for i in seen]
        scores = _prior(query, self._log_prior)
        joined = f"{source} AS s"
        besides: list[tuple[str, str]] = []
        if self.trees is not None:
            besides.append(("t", self.trees.add_scores(query, source)))
        if self.discriminant is not None:
            besides.append(("g", self.discriminant.add_scores(query, source, is_whole=is_whole)))
        for name, step in besides:
            joined += f" JOIN {step} AS {name} ON {name}.row_key = s.row_key"
        if besides:
            scores = [
                " + ".join([query.dialect.number(x), *(f"{name}.{name}{k}" for name, _ in besides)]) + f" AS l{k}"
                for k, x in enumerate(self._log_prior)
            ]
        own = [f"s.{name}" for name in ("row_key", *kept)]
        source = query.add("views", [*own, *codes, *scores], joined, is_shared=True)
        return add_family_lookup_step(query, self._pool, source, kept)

    def add_evidence(self, query: Query, source: str) -> str:
        """Add the step of `Writable.add_evidence`, with the first joint member."""
        return self._add_joint(query, source, 0, by_look_ups=True)

    def add_known(self, query: Query, source: str, *, by_look_ups: bool = False) -> str:
        """Add the step of `Writable.add_known`, mixing the pool and the joint members; see `Joints.share_of_ensemble`."""
        source = self._add_share(query, source)
        scores = self._add_scores(query, source, ["share"], is_whole=False)
        pool = query.softmax(scores, ["row_key", "share"], self.prior)
        joints = [self._add_joint(query, source, number, by_look_ups) for number in range(len(self.summing))]
        joined = f"{pool} AS a"
        for j, joint in enumerate(joints):
            joined += f" JOIN {joint} AS b{j} ON b{j}.row_key = a.row_key"

        def mean(terms: list[str]) -> str:
            return f"({balanced_sql_sum(terms)}) / {len(joints)}"

        def log(p: str) -> str:
            return f"LN({query.dialect.largest([p, query.dialect.number(LEAST)])})"

        of_joints = [mean([log(f"b{j}.p{k}") for j in range(len(joints))]) for k in query.classes]
        evidence = mean([f"b{j}.evidence" for j in range(len(joints))])
        own = [f"a.p{k} AS a{k}" for k in query.classes]
        logs = [f"{one} AS l{k}" for k, one in enumerate(of_joints)]
        both = query.add("both", ["a.row_key", "a.share", f"{evidence} AS joint_evidence", *own, *logs], joined)
        columns = ["row_key", "share", "joint_evidence", *(f"a{k}" for k in query.classes)]
        pooled = query.softmax(both, columns, self.prior)
        shares = [f"share * a{k} + (1e0 - share) * p{k} AS p{k}" for k in query.classes]
        return query.add("pooled", ["row_key", *shares, "joint_evidence AS evidence"], pooled, is_shared=True)

    def _add_share(self, query: Query, source: str) -> str:
        """Add the step with the codes and `share`, the weight of the pool."""
        sizes, n = self.schema.domain_sizes.tolist(), max(1, self.schema.n_attributes)

        def known(weights: Sequence[float]) -> str:
            terms = [
                f"CASE WHEN c{i} < {sizes[i]} THEN {query.dialect.number(weights[i])} ELSE 0e0 END" for i in self.used
            ]
            return balanced_sql_sum(terms) if terms else "1e0"

        codes = [f"c{i}" for i in self.used]
        shares = [
            f"{known([1 / n] * n)} AS of_columns",
            f"{known(self._joints.information.tolist())} AS of_information",
        ]
        source = query.add("known", ["row_key", *codes, *shares], source)
        less = "CASE WHEN of_columns < of_information THEN of_columns ELSE of_information END"
        source = query.add("heard", ["row_key", *codes, f"{less} AS less"], source)
        return query.add("shared", ["row_key", *codes, "less * less AS share"], source, is_shared=True)

    def _add_joint(self, query: Query, source: str, number: int, by_look_ups: bool) -> str:
        """Add the step with the answer of a joint member."""
        views, prior = self._joints.views[number], self._joints.models[number].log_prior.tolist()
        codes = [_view(views, i, f"c{i}") for i in self.used]
        families = self.summing[number]
        if by_look_ups:
            coarse = query.add("coarse", ["s.row_key", *codes], f"{source} AS s")
            return add_family_evidence_step(query, families, coarse, prior)
        if families.most_entries() * query.n_classes <= MOST_ENTRIES:
            coarse = query.add("coarse", ["s.row_key", *codes], f"{source} AS s")
            joint = add_family_elimination_step(query, families, coarse, prior)
            return query.softmax(joint, ["row_key"], np.exp(prior).tolist(), is_shared=True)
        coarse = query.add("coarse", ["s.row_key", "s.share", *codes], f"{source} AS s")
        entries, bounds = families.missing_entries(), ((MAJOR, MOST_ENTRIES), (LARGE, MOST_OF_LARGE))
        is_light = " OR ".join(f"share > {share:e} AND {entries} > {most // query.n_classes}" for share, most in bounds)
        own = [f"c{i}" for i in self.used]
        apart = query.add(
            "told_apart", ["row_key", *own, f"CASE WHEN {is_light} THEN 1 ELSE 0 END AS is_light"], coarse
        )
        light = query.add("light", ["row_key", *own], f"{apart} WHERE is_light = 1")
        heavy = query.add("heavy", ["row_key", *own], f"{apart} WHERE is_light = 0")
        light = add_family_evidence_step(query, families, light, prior)
        joint = add_family_elimination_step(query, families, heavy, prior)
        heavy = query.softmax(joint, ["row_key"], np.exp(prior).tolist(), is_shared=True)
        columns = ", ".join(["row_key", *(f"p{k}" for k in query.classes), "evidence"])
        both = f"(SELECT {columns} FROM {heavy}\n    UNION ALL SELECT {columns} FROM {light}) AS both_kinds"
        return query.add("joint", [columns], both, is_shared=True)


def _families_of(model: LookupModel, first: int = 0, first_code: int = 0) -> Families:
    sizes = tuple(model.schema.domain_sizes.tolist())
    has_nulls = any(model.schema.attributes[i].has_missing for i in model.network.order)

    def logs(family: int) -> Floats:
        return model.family_logs(family, has_nulls)

    order, above = model.network.order, model.network.parents
    return Families(order, above, sizes, logs, first, first_code, takes_unseen_parents=has_nulls)


def _prior(query: Query, log_prior: Sequence[float]) -> list[str]:
    return [f"{query.dialect.number(x)} AS l{k}" for k, x in enumerate(log_prior)]


def _view(views: Views, view: int, name: str) -> str:
    """Return the expression for a view's code from its attribute's code, with an alias."""
    i = int(views.attribute[view])
    own, base = views.schema.attributes[view], views.base.attributes[i]
    if own.cuts == base.cuts:
        return f"s.c{i} AS {name}"
    first = base.first_code
    # Interval j of the attribute is not beyond the cut point at position p if j <= p.
    places = [str(base.cuts.index(cut) + first) for cut in own.cuts]
    missing = f"WHEN s.c{i} >= {base.n_values} THEN {own.n_values} " + f"WHEN s.c{i} = 0 THEN 0 " * first
    return f"CASE {missing}ELSE {binary_search_sql(f's.c{i}', places, first)} END AS {name}"


# Cells that a table may have after others were added to it, from the largest: all together shall have no more than `MOST_NUMBERS`.
CELLS = (4096, 512, 0)
MOST_NUMBERS = 1 << 18


def merge_pool_families(model: EnsembleModel) -> Families:
    """Merge the terms of a pool into tables over codes; column indices are attributes first, then views.

    A family whose table stays small is indexed by attribute codes, so that no view must be computed.
    """
    n = model.schema.n_attributes
    sizes = (*model.schema.domain_sizes.tolist(), *model.views.schema.domain_sizes.tolist())
    order, above = model.family_views
    members = [(*parents, view) for view, parents in zip(order, above, strict=True)]
    n_classes = model.schema.n_classes
    for most in CELLS:
        scopes = [_scope(model, n, of_one, sizes, most) for of_one in members]
        groups = _grouped(scopes, sizes, most)
        columns = [tuple(sorted(set().union(*(scopes[family] for family in group)))) for group in groups]
        if sum(_n_cells(of_one, sizes) for of_one in columns) * n_classes <= MOST_NUMBERS:
            break

    def logs(number: int) -> Floats:
        codes = np.indices([sizes[column] + 1 for column in columns[number]]).reshape(len(columns[number]), -1)
        by_column = dict(zip(columns[number], codes, strict=True))
        total = np.zeros((codes.shape[1], n_classes))
        for family in groups[number]:
            total += model.family_logs(family)[_cells(model, n, members[family], by_column)]
        return total

    return Families(
        tuple(of_one[-1] for of_one in columns),
        tuple(of_one[:-1] for of_one in columns),
        sizes,
        logs,
        takes_unseen=True,
    )


def _n_cells(columns: Sequence[int] | frozenset[int], sizes: Sequence[int]) -> int:
    return math.prod(sizes[column] + 1 for column in columns)


def _scope(model: EnsembleModel, n: int, members: Sequence[int], sizes: Sequence[int], most: int) -> frozenset[int]:
    """Return the columns that index a family: attributes if these have few combinations, else its views."""
    of_attributes = frozenset(int(model.views.attribute[view]) for view in members)
    return of_attributes if _n_cells(of_attributes, sizes) <= most else frozenset(n + view for view in members)


def _grouped(scopes: Sequence[frozenset[int]], sizes: Sequence[int], most: int) -> list[list[int]]:
    """Group families whose tables are merged: each, largest first, joins the first group that stays small."""
    groups: list[tuple[frozenset[int], list[int]]] = []
    for family in sorted(range(len(scopes)), key=lambda family: -_n_cells(scopes[family], sizes)):
        for place, (columns, group) in enumerate(groups):
            both = columns | scopes[family]
            if both == columns or _n_cells(both, sizes) <= most:
                groups[place] = (both, [*group, family])
                break
        else:
            groups.append((scopes[family], [family]))
    return [group for _, group in groups]


def _cells(model: EnsembleModel, n: int, members: Sequence[int], by_column: dict[int, Integers]) -> Integers:
    """Return a family's cell for each combination of codes."""
    views = model.views
    n_rows = next(iter(by_column.values())).size
    x = np.zeros((n, n_rows), model.schema.code_dtype)
    for column, codes in by_column.items():
        if column < n:
            x[column] = codes
    freeze_arrays(x)
    by_views = views.chunk(Chunk(x, None)).x
    cells: Integers = np.zeros(n_rows, np.int64)
    for view in members:
        own = by_column.get(n + view, by_views[view])
        cells = cells * (int(views.schema.domain_sizes[view]) + 1) + own
    return cells
