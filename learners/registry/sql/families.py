"""Lookups of a network's families in SQL, for complete rows and for rows with missing values to marginalize."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Floats
from learners.registry.sql.dialects import LOG_ZERO, MOST_JOINS, Dialect, Query, balanced_sql_sum

# Sums are done when the values of so many combinations may be open at once: each costs a pass over the rows.
OPEN_COMBINATIONS = 256


@dataclass(frozen=True, eq=False)
class Families:
    """Lookups of several families, each an attribute with its parents."""

    order: tuple[int, ...]  # the attribute of each family
    above: tuple[tuple[int, ...], ...]  # its parents
    sizes: tuple[int, ...]  # domains of all attributes
    # Of a family (n_cells, n_classes) log P(value | class, parents), the attribute's code fastest.
    logs: Callable[[int], Floats]
    first: int = 0  # number of the first family in the table of logarithms
    first_code: int = 0  # number of the first attribute in the table of codes
    takes_unseen: bool = False  # whether `logs` has the unseen codes of all members, too, the attribute's own included
    takes_unseen_parents: bool = False  # whether it has those of the parents

    @property
    def parents(self) -> tuple[int, ...]:
        """Attributes that have children, ascending."""
        return tuple(sorted(set[int]().union(*self.above)))

    def shape(self, family: int) -> tuple[int, ...]:
        """Return the number of codes of each parent of a family, followed by its attribute's."""
        more = int(self.takes_unseen or self.takes_unseen_parents)
        parents = (self.sizes[i] + more for i in self.above[family])
        return (*parents, self.sizes[self.order[family]] + self.takes_unseen)

    @property
    def n_cells(self) -> int:
        """Total number of cells of all families."""
        return sum(math.prod(self.shape(family)) for family in range(len(self.order)))

    def most_entries(self) -> int:
        """Return the number of entries of all families, for each class."""
        return sum(math.prod(self.sizes[i] for i in members) for members in self._each())

    def missing_entries(self) -> str:
        """Return the expression for the entries of each class that a sum over a row's missing codes may read."""

        def of_family(members: Sequence[int]) -> str:
            lacks = " OR ".join(f"c{i} >= {self.sizes[i]}" for i in members)
            sizes = " * ".join(
                f"CASE WHEN c{i} >= {self.sizes[i]} THEN {self.sizes[i]}e0 ELSE 1e0 END" for i in members
            )
            return f"CASE WHEN {lacks} THEN {sizes} ELSE 0e0 END"

        return f"({balanced_sql_sum([of_family(members) for members in self._each()])})"

    def _each(self) -> list[list[int]]:
        return [[i, *above] for i, above in zip(self.order, self.above, strict=True)]

    def cell(self, family: int, code: Callable[[int], str]) -> str:
        """Return the expression for a row's cell number in a family, NULL if the attribute is missing; `code` names an
        attribute's code.
        """
        attribute, place = self.order[family], ""
        for member, size in zip((*self.above[family], attribute), self.shape(family), strict=True):
            place = f"({place}) * {size} + {code(member)}" if place else code(member)
        if self.takes_unseen:
            return place
        return f"CASE WHEN {code(attribute)} < {self.sizes[attribute]} THEN {place} END"

    def descendants(self, attribute: int) -> list[int]:
        """Return the descendants of an attribute."""
        descendants = {attribute}
        for child, parents in zip(self.order, self.above, strict=True):
            if descendants.intersection(parents):
                descendants.add(child)
        return [i for i in self.order if i in descendants - {attribute}]

    def rows(self, dialect: Dialect) -> Iterator[str]:
        """Yield the rows of the table of log probabilities: family, cell, one value per class."""
        for family in range(len(self.order)):
            for cell, logs in enumerate(np.maximum(self.logs(family), LOG_ZERO).tolist()):
                yield ", ".join([str(self.first + family), str(cell), *map(dialect.number, logs)])


def add_family_lookup_step(query: Query, families: Families, source: str, kept: Sequence[str]) -> str:
    """Add the step with log probabilities l0, l1, … of rows whose parents are all known.

    `source`: the shared step with `row_key`, different in each row, the codes, and l0, l1, … before the families.
    `kept`: what else to keep of it.

    One join reads all families, from a row for each row and family: databases plan a join for each family too slowly.
    """
    own = [f"s.{name}" for name in ("row_key", *kept)]
    if not families.order:
        return query.add("looked_up", [*own, *(f"s.l{k}" for k in query.classes)], f"{source} AS s")
    numbers = range(families.first, families.first + len(families.order))
    cells = [families.cell(family, lambda i: f"s.c{i}") for family in range(len(numbers))]
    each = f"{source} AS s CROSS JOIN {query.table('families')} AS f"
    each += f"\n  WHERE f.family BETWEEN {numbers[0]} AND {numbers[-1]}"
    columns = ["s.row_key", "f.family", f"{chosen_sql('f.family', cells, families.first)} AS cell"]
    each = query.add("cells", columns, each)
    joined = f"{each} AS c JOIN {query.table('logs')} AS g ON g.family = c.family AND g.cell = c.cell"
    sums = [f"SUM(g.l{k}) AS l{k}" for k in query.classes]
    sums_step = query.add("sums", ["c.row_key", *sums], f"{joined}\n  GROUP BY c.row_key")
    logs = [f"s.l{k} + COALESCE(g.l{k}, 0e0) AS l{k}" for k in query.classes]
    joined = f"{source} AS s LEFT JOIN {sums_step} AS g ON g.row_key = s.row_key"
    return query.add("looked_up", [*own, *logs], joined)


def chosen_sql(number: str, expressions: Sequence[str], first: int) -> str:
    """Return the expression whose place, counted from `first`, is a number; found by bisection."""
    if len(expressions) == 1:
        return expressions[0]
    half = len(expressions) // 2
    below, above = chosen_sql(number, expressions[:half], first), chosen_sql(number, expressions[half:], first + half)
    return f"CASE WHEN {number} < {first + half} THEN {below} ELSE {above} END"


def add_family_evidence_step(query: Query, families: Families, source: str, log_prior: Sequence[float]) -> str:
    """Add the step of `add_family_elimination_step`, normalized, by lookups in which a missing parent ends the context."""
    codes = [f"c{i}" for i in sorted({*families.order, *families.parents})]
    logs = [f"{query.dialect.number(x)} AS l{k}" for k, x in enumerate(log_prior)]
    source = query.add("begun", ["row_key", *codes, *logs], source, is_shared=True)
    source = add_family_lookup_step(query, families, source, [])
    return query.softmax(source, ["row_key"], [math.exp(x) for x in log_prior], is_shared=True)


def _joins(query: Query, families: Families, block: Iterable[int], code: Callable[[int], str]) -> str:
    logs = query.table("logs")
    return "".join(
        f"\n    LEFT JOIN {logs} AS f{i} ON f{i}.family = {families.first + i} AND f{i}.cell = {families.cell(i, code)}"
        for i in block
    )


def _sums(query: Query, block: Sequence[int], source: str) -> list[str]:
    return [
        f"{balanced_sql_sum([f'{source}.l{k}', *(f'COALESCE(f{i}.l{k}, 0)' for i in block)])} AS l{k}"
        for k in query.classes
    ]


class Step(NamedTuple):
    """One elimination step: attributes whose missing values are expanded, families looked up, and attributes summed
    out.
    """

    opened: tuple[int, ...]
    families: tuple[int, ...]
    summed: tuple[int, ...]


def family_elimination_steps(families: Families) -> list[Step]:
    """Return an elimination order that expands few missing values at once.

    Each step adds the family with the fewest new missing parents, then every family that needs no further one.
    """
    parents = set(families.parents)
    needs = {
        family: {*own, attribute} & parents
        for family, (attribute, own) in enumerate(zip(families.order, families.above, strict=True))
    }
    steps: list[Step] = []
    is_open, done = set[int](), set[int]()
    while needs:
        cheapest = min(
            needs, key=lambda family: (math.prod(families.sizes[i] for i in needs[family] - is_open), family)
        )
        opened = needs[cheapest] - is_open
        is_open |= opened
        ready = [family for family, own in needs.items() if own <= is_open]
        for family in ready:
            del needs[family]
        done |= is_open.difference(*needs.values())
        combinations = math.prod(families.sizes[i] + 1 for i in is_open)
        summed = done if not needs or combinations > OPEN_COMBINATIONS else set[int]()
        steps.append(Step(tuple(sorted(opened)), tuple(ready), tuple(sorted(summed))))
        is_open -= summed
        done -= summed
    return steps


def add_family_elimination_step(query: Query, families: Families, source: str, prior: Sequence[float]) -> str:
    """Add the step with `row_key` and l0, l1, …: log P(class, known values) of rows of codes, with missing attributes
    summed out.

    A missing attribute without a known descendant does not affect the sum, so it keeps the unseen code.
    """
    sizes, order = families.sizes, families.order
    columns = ["s.row_key"]
    for i in order:
        below = families.descendants(i)
        if below:
            known = " OR ".join(f"s.c{j} < {sizes[j]}" for j in (i, *below))
            columns.append(f"CASE WHEN {known} THEN s.c{i} ELSE {sizes[i] + 1} END AS c{i}")
        else:
            columns.append(f"s.c{i}")
    logs = [f"{query.dialect.number(prior[k])} AS l{k}" for k in query.classes]
    source = query.add("begun", [*columns, *logs], f"{source} AS s")
    steps, opened = family_elimination_steps(families), set[int]()
    left = list(order)
    for number, step in enumerate(steps):
        later = {i for after in steps[number + 1 :] for family in after.families for i in _members(families, family)}
        pending, joined = list(step.families), step.opened
        for first in range(0, max(1, len(pending)), MOST_JOINS):
            block = pending[first : first + MOST_JOINS]
            code = {i: f"d{i}.code" if i in joined else f"s.c{i}" for i in order}
            opens = "".join(
                f"\n    JOIN {query.table('codes')} AS d{i} ON d{i}.attribute = {families.first_code + i} AND d{i}.given = s.c{i}"
                for i in joined
            )
            joins = _joins(query, families, block, code.__getitem__)
            own = ["s.row_key", *(f"{code[i]} AS c{i}" for i in left)]
            source = query.add("summing", [*own, *_sums(query, block, "s")], f"{source} AS s{opens}{joins}")
            joined = ()
        left = [i for i in left if i in later or (i in opened | set(step.opened) and i not in step.summed)]
        opened = (opened | set(step.opened)) - set(step.summed)
        if step.summed:
            source = _summed_out(query, source, ["row_key", *(f"c{i}" for i in left)])
    return source


def _members(families: Families, family: int) -> tuple[int, ...]:
    return (*families.above[family], families.order[family])


def _summed_out(query: Query, source: str, group: Sequence[str]) -> str:
    """Add up rows that agree in some columns by log-sum-exp, which avoids underflow."""
    dialect, logs = query.dialect, [f"l{k}" for k in query.classes]
    by = ", ".join(group)
    largest = f"MAX({dialect.largest(logs)}) OVER (PARTITION BY {by}) AS m"
    source = query.add("most", [*group, *logs, largest], source)
    sums = [
        f"CASE WHEN MAX(l{k}) < -1e200 THEN {dialect.number(LOG_ZERO)} ELSE MAX(m) + LN(SUM({dialect.exp(f'l{k} - m')})) END AS l{k}"
        for k in query.classes
    ]
    return query.add("summed", [*group, *sums], f"{source}\n  GROUP BY {by}")


def compatible_code_rows(families: Families) -> list[str]:
    """Return the rows of the table of compatible codes: attribute, given code, possible code."""
    rows = []
    for i in families.parents:
        size, number = families.sizes[i], families.first_code + i
        rows += [f"{number}, {code}, {code}" for code in range(size)]
        rows += [f"{number}, {size}, {code}" for code in range(size)]
        rows.append(f"{number}, {size + 1}, {size}")
    return rows
