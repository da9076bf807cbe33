"""Passes over a table of 4-valued attributes, against a bare scan of the same columns and against SQL.

python -m benchmarks.passes --rows 5000000 --threads 2
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from benchmarks import tables
from benchmarks.measuring import alternated, figure, machine, options, report
from learners.classifiers.structure import naive_bayes_structure
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.counts.row_samples import HoldOut
from learners.passes.engine import collect
from learners.passes.learner import infer_schema
from learners.passes.sources.source import Source
from learners.passes.statistic import Together
from service.operations.bench import scan_parquet_files

SAMPLED_PAIRS = 20


def main() -> None:
    args = options(__doc__, rows=5_000_000, attributes=40, threads=1, rounds=5).parse_args()
    pa.set_cpu_count(args.threads)
    path = tables.table(args.rows, args.attributes)
    source = Source.open(str(path))
    schema = infer_schema(source, "class", threads=args.threads)
    families = naive_bayes_structure(schema.n_attributes).families()
    names = [attribute.name for attribute in schema.attributes]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    step = max(1, len(pairs) // SAMPLED_PAIRS)
    sampled = pairs[::step][:SAMPLED_PAIRS]
    connection = duckdb.connect(config={"threads": args.threads})

    def group_by() -> None:
        for a, b in sampled:
            sql = f"SELECT {a}, {b}, class, COUNT(*) FROM read_parquet(?) GROUP BY ALL"
            connection.execute(sql, [str(path)]).fetchall()

    seconds = alternated(
        args.rounds,
        scan=lambda: scan_parquet_files([path], args.threads),
        nb=lambda: collect(Together(FamilyCounts(schema, families), HoldOut(schema)), source, threads=args.threads),
        pairs=lambda: collect(Together(PairwiseCounts(schema), HoldOut(schema)), source, threads=args.threads),
        group_by=group_by,
    )
    sql = [value * len(pairs) / len(sampled) for value in seconds["group_by"]]
    figures = [
        figure("NB pass ÷ bare scan", seconds["nb"], seconds["scan"], "1.5", "1.2"),
        figure(f"structure pass, {len(pairs)} pairs ÷ bare scan", seconds["pairs"], seconds["scan"], "2.5", "1.8"),
        figure(
            "one GROUP BY per pair ÷ structure pass", sql, seconds["pairs"], "25", "50", f"from {len(sampled)} pairs"
        ),
    ]
    title = f"{args.rows:,} rows × {args.attributes} attributes × 4 values, {args.threads} thread(s)"
    facts = machine() | {"seconds": seconds}
    report(title, figures, facts, args.json)


if __name__ == "__main__":
    main()
