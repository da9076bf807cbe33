"""SkDB's selection pass at k = 5 against a bare scan of the same columns.

python -m benchmarks.selection --rows 5000000 --threads 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import tables
from benchmarks.measuring import alternated, figure, machine, report
from learners.classifiers.family_trees import each_grown
from learners.classifiers.loss_tables import measure
from learners.classifiers.selection import PrefixLosses
from learners.classifiers.structure import k_dependence
from learners.counts.family import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.passes.engine import collect
from learners.passes.inference import infer_schema
from learners.passes.source import Source
from service.operations.measuring import bare_scan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    path = tables.table(args.rows)
    source = Source.open(str(path))
    schema = infer_schema(source, "class")
    structure = k_dependence(collect(PairwiseCounts(schema), source), args.k)
    families = collect(FamilyCounts(schema, structure.families()), source)
    of = measure(schema, structure, each_grown(families), families.class_counts)
    losses = PrefixLosses(schema, of, families.class_counts)
    seconds = alternated(
        args.rounds,
        scan=lambda: bare_scan([path], args.threads),
        families=lambda: collect(FamilyCounts(schema, structure.families()), source, threads=args.threads),
        selection=lambda: collect(losses.empty(), source, threads=args.threads),
    )
    figures = [
        figure("selection pass ÷ bare scan", seconds["selection"], seconds["scan"], "12", "6"),
        figure("family pass ÷ bare scan", seconds["families"], seconds["scan"], "", ""),
    ]
    title = f"{args.rows:,} rows × 40 attributes × 4 values, k = {args.k}, {args.threads} thread(s)"
    report(title, figures, machine() | {"seconds": seconds}, args.json)


if __name__ == "__main__":
    main()
