"""Counts of pairs by bit-planes against one increment a row, for growing domains: where `MAX_PLANE_CELLS` comes from.

python -m benchmarks.pairwise --rows 1000000
"""

from __future__ import annotations

import argparse
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.measuring import alternated, figure, machine, report
from learners.counts import pairwise
from learners.schema import Attribute, Chunk, Schema

SIZES = (2, 4, 8, 12, 16, 20, 24)


def chunk_of(n_rows: int, n_attributes: int, n_values: int) -> Chunk:
    rng = np.random.default_rng(0)
    x = rng.integers(0, n_values, (n_attributes, n_rows), np.uint8)
    return Chunk(x, rng.integers(0, 2, n_rows, np.uint8))


def counted(schema: Schema, chunk: Chunk, max_cells: int) -> pairwise.PairwiseCounts:
    """The counts, by bit-planes while the product of the domains less one is at most max_cells."""
    with patch.object(pairwise, "MAX_PLANE_CELLS", max_cells):
        counts = pairwise.PairwiseCounts(schema)
        counts.update(chunk)
        return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--attributes", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures, facts = [], {}
    for size in args.sizes:
        chunk = chunk_of(args.rows, args.attributes, size)
        names = tuple(range(size))
        attributes = tuple(Attribute(f"x{i}", "nominal", names, arrow_type="uint8") for i in range(args.attributes))
        schema = Schema(attributes, "class", ("0", "1"), "int64")
        cells = (size - 1) ** 2
        assert counted(schema, chunk, cells) == counted(schema, chunk, 0), "both count the same"
        seconds = alternated(
            args.rounds,
            planes=lambda schema=schema, chunk=chunk, cells=cells: counted(schema, chunk, cells),
            scatter=lambda schema=schema, chunk=chunk: counted(schema, chunk, 0),
        )
        facts[size] = seconds
        figures.append(
            figure(f"{size} values, {cells} cells: increments ÷ planes", seconds["scatter"], seconds["planes"], "", "")
        )
    title = f"{args.rows:,} rows × {args.attributes} attributes, one thread; planes are used up to {pairwise.MAX_PLANE_CELLS} cells"
    report(title, figures, {"seconds": facts, "machine": machine()}, args.json)


if __name__ == "__main__":
    main()
