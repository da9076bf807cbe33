"""TAN averaged over all trees: log loss beside one tree on small public tables, and what a row costs.

The sets have fewer than 1,000 rows; two-fold cross-validation, as `fewpass compare` makes it, whose outcomes --log keeps.

python -m benchmarks.averaged_tan --log build/averaged-tan.jsonl
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import Figure, machine, report

DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "classification"
MOST_ROWS = 999
OURS = "tan:average=true"
PEERS = ("tan", "tan:estimator=hdp-map")
N_VALUES, N_CLASSES = 4, 2


def log_losses(repetitions: int, log: Path | None) -> dict[str, dict[str, float]]:
    """Of each set and learner the mean log loss."""
    from learners import evaluation

    outcomes = evaluation.cross_validate(
        [str(DATA)], [OURS, *PEERS], log=log, repetitions=repetitions, n_folds=2, most_rows=MOST_ROWS
    )
    found: dict[str, dict[str, list[float]]] = {}
    for outcome in outcomes:
        if outcome.error is None:
            found.setdefault(outcome.data, {}).setdefault(outcome.learner, []).append(outcome.scores["log_loss"])
    return {name: {learner: statistics.mean(all_of) for learner, all_of in of.items()} for name, of in found.items()}


def row_seconds(n: int, rounds: int) -> float:
    """Seconds that one thread takes for a row of n attributes and two classes."""
    from learners.classifiers.averaged_tan.model import AveragedTrees
    from learners.classifiers.averaged_tan.tree_average import tree_posterior
    from learners.counts.pairs.pairwise import PairwiseCounts
    from learners.schema import Attribute, Chunk, Schema

    rng = np.random.default_rng(n)
    values = tuple(f"v{value}" for value in range(N_VALUES))
    schema = Schema(tuple(Attribute(f"x{i}", "nominal", values) for i in range(n)), "y", ("no", "yes"))
    pairs = PairwiseCounts(schema)
    x = rng.integers(0, N_VALUES, (n, 2000)).astype(np.uint8)
    y = (rng.random(2000) < 0.5).astype(np.uint8)
    pairs.update(Chunk(np.where(rng.random(x.shape) < 0.3, y, x), y))
    model = AveragedTrees.of(schema, pairs.class_counts, tree_posterior(pairs, 1.0), {})
    chunk = Chunk(np.ascontiguousarray(x[:, : max(20, 20_000 // n)]), None)
    model.predict_proba(chunk, 1)
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        model.predict_proba(chunk, 1)
        seconds.append(time.perf_counter() - started)
    return min(seconds) / chunk.n_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log", type=Path, help="outcomes, to go on from")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"There is no folder {DATA}: the public tables lie beside the project, in shared/data.")
    figures = []
    for n in (10, 20, 40, 80):
        seconds = row_seconds(n, args.rounds)
        per_cube = seconds / (N_CLASSES * n**3)
        detail = f"{seconds * 1e6:.1f} µs a row of {N_CLASSES} classes"
        figures.append(Figure(f"{n} attributes: nanoseconds ÷ C n³", *[per_cube * 1e9] * 3, "", "", detail))
    losses = log_losses(args.repetitions, args.log)
    for peer in PEERS:
        both = {name: of for name, of in losses.items() if OURS in of and peer in of}
        n_better = sum(of[OURS] <= of[peer] for of in both.values())
        share = n_better / max(1, len(both))
        detail = f"{n_better} of {len(both)} sets"
        figures.append(Figure(f"sets with log loss ≤ {peer}'s", share, share, share, "2/3", "", detail))
    report("TAN averaged over all trees", figures, machine() | {"log_loss": losses}, args.json)


if __name__ == "__main__":
    main()
