"""kDB-5 with hdp-map on tables of growing length: time per row and peak memory should not grow.

python -m benchmarks.long_tables --rows 5000000 20000000 50000000
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from benchmarks import tables
from benchmarks.measuring import Figure, alternated_apart, machine, options, ratio_median_min_max, report


def train(path: Path, small: Path, threads: int) -> float:
    """Seconds of all passes, the schema's included, and of the estimates; kernels are warm."""
    from learners.passes.learner import drive
    from learners.passes.sources.source import Source
    from learners.registry import recipes

    def learn(place: Path) -> None:
        parameters = {"k": 5, "estimator": "hdp-map"}
        drive(recipes.learner("kdb", parameters, "class"), Source.open(str(place)), threads=threads)

    learn(small)
    started = time.perf_counter()
    learn(path)
    return time.perf_counter() - started


def main() -> None:
    asked = options(__doc__, rows=[5_000_000, 20_000_000, 50_000_000], threads=2, rounds=3).parse_args()
    small = tables.table(100_000)
    paths = {n: tables.table(n) for n in asked.rows}
    runs = alternated_apart(asked.rounds, **{str(n): (train, path, small, asked.threads) for n, path in paths.items()})
    seconds = {n: [taken for taken, _ in runs[str(n)]] for n in paths}
    peaks = {n: [peak for _, peak in runs[str(n)]] for n in paths}
    first, last = asked.rows[0], asked.rows[-1]
    per_row = ratio_median_min_max(
        [taken / last for taken in seconds[last]], [taken / first for taken in seconds[first]]
    )
    times = ", ".join(f"{n // 10**6} M: {statistics.median(taken):.1f} s" for n, taken in seconds.items())
    sizes = ", ".join(f"{n // 10**6} M: {max(taken) / 2**20:.0f} MiB" for n, taken in peaks.items())
    figures = [
        Figure("time per row, longest ÷ shortest", *per_row, "1.15", "1.0", times),
        Figure("peak RSS, longest ÷ shortest", *ratio_median_min_max(peaks[last], peaks[first]), "1.1", "1.0", sizes),
    ]
    rss = {f"{n:,} rows": max(taken) / 2**20 for n, taken in peaks.items()}
    facts = {"seconds": seconds, "peak_bytes": peaks, "peak_rss_mib": rss, "machine": machine()}
    report("kDB-5 with hdp-map, 40 attributes of 4 values", figures, facts, asked.json)


if __name__ == "__main__":
    main()
