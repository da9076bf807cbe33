"""Fit an ensemble into a budget, and describe the choice in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from learners.ensembles.cuts import LARGE, n_members_with_cuts
from learners.ensembles.fit import Pool
from learners.errors import InvalidParameter
from learners.schema import Schema

# Seconds on two cores (docs/ensembles.md): counting and solving of one attribute of one member for a row and per table.
SECONDS_A_CELL = 6e-8
SECONDS_A_TREE = 0.02
SECONDS_A_CORRECTION = 5.0
# By default; and where trees correct the networks of a table of `LARGE` rows or more.
MEMBERS, CORRECTED_MEMBERS = 8, 4
BYTES_A_CELL = 12
CORRECTED = "Boosted trees, learned from drawn rows, correct the networks where many attributes interact."
NOT_CORRECTED = "Boosted trees were tried and left out: no number of rounds lowered the left-out loss."


@dataclass(frozen=True)
class Budget:
    """Limits on the passes, training time and size of a model; None means no limit. Raises InvalidParameter."""

    passes: int | None = None
    seconds: float | None = None
    model_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.passes is not None and self.passes < 2:
            raise InvalidParameter("passes", self.passes, "at least 2 (one pass for the schema, one for the counts)")
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidParameter("seconds", self.seconds, "a number above zero")
        if self.model_bytes is not None and self.model_bytes < 10_000:
            raise InvalidParameter("model_bytes", self.model_bytes, "at least 10,000")


@dataclass(frozen=True)
class Choice:
    """Components to learn, and the reasons for the choice."""

    members: int
    few: int  # members of a large table that trees correct: there more bring little
    has_pairs: bool  # whether there is a pass for pair counts; without one no attribute has parents
    has_correction: bool
    model_bytes: int | None
    words: tuple[str, ...]  # for people
    seconds: float | None = None

    def for_table(self, n_rows: int, n_columns: int) -> Choice:
        """Choose the number of members, and whether to learn a correction, for a table of this size and the time limit.

        It follows from the size alone, so that the same table gives the same model.
        """
        if self.seconds is None:
            return self.of_size(n_rows)
        left = self.seconds
        words = list(self.words)
        has_correction = self.has_correction and left > 2 * SECONDS_A_CORRECTION
        if has_correction:
            left -= SECONDS_A_CORRECTION
        elif self.has_correction:
            words.append(f"No correction: {self.seconds:g} seconds are too few.")
        choice = replace(self, has_correction=has_correction, words=tuple(words)).of_size(n_rows)
        a_member = _seconds_of_member(n_rows, n_columns)
        return choice.at_most(max(1, int(left / a_member)), f"one takes about {a_member:.2g} s on this table")

    def seconds_of_trees(self, n_rows: int, n_columns: int) -> float:
        """Return the seconds left for the trees of a large table after the members and the plain network; infinite
        without a limit.
        """
        if self.seconds is None:
            return math.inf
        return max(0.0, self.seconds - (self.members + 2) * _seconds_of_member(n_rows, n_columns))

    def of_size(self, n_rows: int) -> Choice:
        """Reduce the members to `few` if the table is large and gets a correction."""
        return replace(self, members=self.few) if self.has_correction and n_rows >= LARGE else self

    def at_most(self, members: int, reason: str) -> Choice:
        """Limit the number of members and record the reason."""
        if members >= self.members:
            return self
        return replace(self, members=members, words=(*self.words, f"{members} of {self.members} members: {reason}."))

    def within_cuts(self, schema: Schema) -> Choice:
        """Limit the members to those for which the schema has cut points."""
        with_cuts = n_members_with_cuts(schema)
        return self if with_cuts is None else self.at_most(with_cuts, "the given schema has cut points for only these")

    def within_bytes(self, pool: Pool, n_classes: int) -> tuple[Pool, list[str]]:
        """Keep the first members whose tables fit into `model_bytes`. Returns the pool and explanations."""
        if self.model_bytes is None:
            return pool, []
        sizes = []
        for one in pool.members:
            cells = sum(
                pool.levels[whole].cut(len(one.family(i).parents)).tree.n_cells
                for i, whole in enumerate(one.member.families)
            )
            sizes.append(cells * (BYTES_A_CELL + 6 * n_classes))
        n_members, total = 0, 0
        for size in sizes:
            if n_members and total + size > self.model_bytes:
                break
            n_members, total = n_members + 1, total + size
        if n_members == len(sizes):
            return pool, []
        reason = f"{n_members} of {len(sizes)} members kept; their tables take about {total:,} bytes."
        return replace(pool, members=pool.members[:n_members]), [reason]


def _seconds_of_member(n_rows: int, n_columns: int) -> float:
    return max(1, n_columns) * (n_rows * SECONDS_A_CELL + SECONDS_A_TREE)


def choose_ensemble_within_budget(members: int | None, has_correction: bool, budget: Budget) -> Choice:
    """Choose the components that the budget allows before any data is read; by default as many members as are
    worthwhile.
    """
    words = []
    has_pairs = budget.passes is None or budget.passes >= 3
    if not has_pairs:
        words.append("No attribute has parents: two passes leave none for the pair counts.")
    words.append("Networks with random cut points, weighted together.")
    words.append(CORRECTED if has_correction else "No correction, as requested.")
    few = members or CORRECTED_MEMBERS
    return Choice(members or MEMBERS, few, has_pairs, has_correction, budget.model_bytes, tuple(words), budget.seconds)
