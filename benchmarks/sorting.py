"""Sorting the keys of cells: our radix sort against `np.sort`, by processor time.

python -m benchmarks.sorting
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import Figure, machine, ratio, report
from learners.counts.sort_kernels import sort_keys

N_KEYS = (1 << 16, 1 << 20, 1 << 22)
N_BITS = (21, 31, 45, 62)


def keys_of(kind: str, n: int, n_bits: int) -> np.ndarray:
    """Keys as families have them: spread over all cells, skewed, or of a thousand cells."""
    rng = np.random.default_rng(0)
    if kind == "spread":
        return rng.integers(0, 1 << n_bits, n)
    if kind == "skewed":
        return (rng.random(n) ** 4 * (1 << n_bits)).astype(np.int64)
    return rng.integers(0, 1000, n) * ((1 << n_bits) // 1000)


def seconds_of(keys: np.ndarray, n_bits: int, rounds: int) -> tuple[list[float], list[float]]:
    """Processor seconds of np.sort and of ours, in turn."""
    theirs, ours = [], []
    for _ in range(rounds):
        a, b, scratch = keys.copy(), keys.copy(), np.empty_like(keys)
        started = time.process_time()
        a.sort()
        theirs.append(time.process_time() - started)
        started = time.process_time()
        sort_keys(b, scratch, n_bits)
        ours.append(time.process_time() - started)
        assert np.array_equal(a, b)
    return theirs, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    sort_keys(np.arange(2), np.empty(2, np.int64), 2)  # compiled
    figures = []
    for n in N_KEYS:
        for n_bits in N_BITS:
            for kind in ("spread", "skewed", "few"):
                theirs, ours = seconds_of(keys_of(kind, n, n_bits), n_bits, args.rounds)
                detail = f"{np.median(theirs) * 1e3:.3g} ms / {np.median(ours) * 1e3:.3g} ms"
                figures.append(
                    Figure(
                        f"{n:,} keys of {n_bits} bits, {kind}: np.sort ÷ ours", *ratio(theirs, ours), "1", "", detail
                    )
                )
    report("sorting keys", figures, machine() | {"numpy": np.__version__}, args.json)


if __name__ == "__main__":
    main()
