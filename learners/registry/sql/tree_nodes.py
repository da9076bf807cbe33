"""Boosted trees as a table of nodes, which a query descends level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learners.ensembles.correction.forest_kernels import WORD, Forest
from learners.registry.sql.dialects import Dialect, Query

RIGHT, LEFT, BOTH = range(3)
# Which sides a row goes to, by what a split says of its code.
WAYS = ((LEFT, 1), (RIGHT, 0), (BOTH, 1), (BOTH, 0))
MISSING = -1
GO = (
    f"CASE WHEN s.code = {MISSING} THEN {BOTH} WHEN s.code BETWEEN n.low AND n.high THEN {LEFT} "
    f"WHEN SUBSTR(n.mask, CAST(s.code AS INTEGER) + 1, 1) = '1' THEN {LEFT} ELSE {RIGHT} END"
)


class _Node(NamedTuple):
    """One row of the node table: codes from `low` to `high` go left, and codes whose position in `mask` is 1.

    A leaf is its own left child, and has a score.
    """

    low: int
    high: int
    mask: str
    left: int
    right: int
    left_share: float
    attribute: int  # -1: of a leaf
    label: int
    score: float


class TreesInSQL:
    """Trees whose splits use codes; subtrees with a single score are merged to one leaf.

    `sizes`: domain sizes of the attributes; a code that is not below its size is missing.
    """

    def __init__(self, forest: Forest, sizes: Sequence[int]) -> None:
        self._forest, self._sizes = forest, sizes
        self.nodes: list[_Node] = []
        self._leaves: dict[tuple[int, float], int] = {}
        self._roots = [self._add(tree, 0 if depth else -1) for tree, depth in enumerate(forest.depths.tolist())]
        self._attributes = sorted({node.attribute for node in self.nodes if node.attribute >= 0})
        self._depth = max(map(self._depth_of, self._roots), default=0)

    def _add(self, tree: int, place: int) -> int:
        """Add the node at a place of a tree, or leaf l at -1 - l, and return its number."""
        forest = self._forest
        if place < 0:
            label = int(forest.labels[tree])
            score = float(forest.leaves[int(forest.leaf_starts[tree]) - 1 - place])
            if (label, score) not in self._leaves:
                number = self._leaves[label, score] = len(self.nodes)
                self.nodes.append(_Node(0, 0, "", number, number, 1.0, -1, label, score))
            return self._leaves[label, score]
        node = int(forest.node_starts[tree]) + place
        left, right = self._add(tree, int(forest.lefts[node])), self._add(tree, int(forest.rights[node]))
        if left == right:
            return left
        attribute = int(forest.attributes[node])
        codes = np.arange(self._sizes[attribute])
        if forest.highs[node] < 0:
            words = forest.words[int(forest.word_starts[node]) + codes // WORD]
            goes_left = (words >> (codes % WORD).astype(np.uint64)) & np.uint64(1)
        else:
            goes_left = ((forest.lows[node] <= codes) & (codes < forest.highs[node])).astype(np.uint64)
        mask = "".join(map(str, goes_left.tolist()))
        run = max(mask.split("0"), key=len)  # which is compared in numbers, ten times as fast as in text
        low = mask.index(run)
        share = float(forest.left_shares[node])
        self.nodes.append(
            _Node(
                low,
                low + len(run) - 1,
                mask if mask.strip("0") != run else "",
                left,
                right,
                share,
                attribute,
                int(forest.labels[tree]),
                0.0,
            )
        )
        return len(self.nodes) - 1

    def _depth_of(self, number: int) -> int:
        node = self.nodes[number]
        return 0 if node.attribute < 0 else 1 + max(self._depth_of(node.left), self._depth_of(node.right))

    def root_rows(self) -> list[str]:
        """Return the rows of the table of trees: root, its attribute."""
        return [f"{root}, {self.nodes[root].attribute}" for root in self._roots]

    def node_rows(self, dialect: Dialect) -> list[str]:
        """Return the rows of the node table: node, low, high, mask, left, its attribute, right, its attribute, left
        share, label, score.
        """
        rows = []
        for number, node in enumerate(self.nodes):
            below = [f"{side}, {self.nodes[side].attribute}" for side in (node.left, node.right)]
            leaf = f"{dialect.number(node.left_share)}, {node.label}, {dialect.number(node.score)}"
            rows.append(f"{number}, {node.low}, {node.high}, '{node.mask}', {', '.join(below)}, {leaf}")
        return rows

    def add_scores(self, query: Query, source: str) -> str:
        """Add the step with `row_key` and t0, t1, …: the trees' contribution to the score of each class.

        A row with a missing attribute follows both branches of a split, weighted by the shares of training rows.

        `source`: the step with `row_key` and the codes c0, c1, … of rows that differ.
        """
        codes = [f"c{i}" for i in self._attributes]
        own = ["s.row_key", *(f"s.{code}" for code in codes)]
        begun = ["r.root AS node", f"{self._code('r.attribute')} AS code", "1e0 AS share"]
        source = query.add("roots", [*own, *begun], f"{source} AS s CROSS JOIN {query.table('trees')} AS r")
        share = f"CASE WHEN w.go <> {BOTH} THEN 1e0 WHEN w.is_left = 1 THEN n.left_share ELSE 1e0 - n.left_share END"
        nodes = f"JOIN {query.table('nodes')} AS n ON n.node = s.node"
        ways = f"JOIN {query.table('ways')} AS w ON w.go = {GO}"
        for _ in range(self._depth):
            below = [f"CASE WHEN w.is_left = 1 THEN n.left_{of} ELSE n.right_{of} END" for of in ("node", "attribute")]
            moved = [f"{below[0]} AS node", f"{self._code(below[1])} AS code", f"s.share * {share} AS share"]
            source = query.add("level", [*own, *moved], f"{source} AS s\n    {nodes}\n    {ways}")
        sums = [f"SUM(CASE WHEN n.label = {k} THEN s.share * n.score ELSE 0e0 END) AS t{k}" for k in query.classes]
        return query.add("trees", ["s.row_key", *sums], f"{source} AS s\n    {nodes}\n  GROUP BY s.row_key")

    def _code(self, attribute: str) -> str:
        """Return the expression for an attribute's code; 0 for a leaf."""
        cases = [
            f"WHEN {i} THEN CASE WHEN s.c{i} < {self._sizes[i]} THEN s.c{i} ELSE {MISSING} END"
            for i in self._attributes
        ]
        return f"CASE {attribute} {' '.join(cases)} ELSE 0 END" if cases else "0"
