"""structure=auto on the binary density sets, beside our fixed structures and published values.

python -m benchmarks.density_auto --json docs/results/density-auto.json --write    # docs/results/density-auto.md
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.density import COMPLETE, RESULTS, Result, mean, published, rows_of, table, write_page
from benchmarks.measuring import keep, read_kept
from learners.circuits.search import choose
from learners.schema import Attribute, Chunk, Schema


@dataclass(frozen=True)
class Found:
    """What the search chose on one set, by its validation rows."""

    name: str
    minutes: float
    threads: int
    chosen: str
    n_edges: int
    laplace: float
    valid: float
    test: float
    seconds: float
    cpu_seconds: float
    tried: list[dict[str, object]]


def found_on(name: str, minutes: float, threads: int, seed: int) -> Found:
    """Run the search on one set."""
    train, valid, test = (rows_of(name, split) for split in ("train", "valid", "test"))
    schema = Schema(tuple(Attribute(f"v{i}", "nominal", ("0", "1")) for i in range(train.shape[0])), None, ("",))
    fit, other = (Chunk(x.copy(), np.zeros(x.shape[1], np.uint8)) for x in (train, valid))
    started, began = time.perf_counter(), time.process_time()
    choice = choose(schema, fit, other, minutes=minutes, threads=threads, seed=seed)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - began
    return Found(
        name,
        minutes,
        threads,
        choice.tried[0].name,
        choice.circuit.n_edges,
        choice.laplace,
        mean(choice.circuit, valid),
        mean(choice.circuit, test),
        seconds,
        cpu_seconds,
        [each.told() for each in choice.tried],
    )


def report(found: list[Found]) -> str:
    """The tables in Markdown: auto beside the best fixed structure of ours and the best published value."""
    fixed: list[Result] = read_kept(RESULTS / "density.json", Result)
    others = published()
    rows, tried = [], []
    for each in found:
        own = [r for r in fixed if r.name == each.name]
        ours = max(own, key=lambda r: r.valid).test if own else float("nan")
        values = [way["values"][each.name] for way in others.values() if each.name in way["values"]]
        best = max(values, default=float("nan"))
        figures = [each.valid, each.test, ours, each.test - ours, best, each.test - best]
        told = [f"{figure:+.3f}" if place in (3, 5) else f"{figure:.3f}" for place, figure in enumerate(figures)]
        spent = [f"{each.minutes:g}", f"{each.cpu_seconds:.0f}", f"{each.seconds:.0f}"]
        rows.append([each.name, each.chosen, f"{each.n_edges:,}", f"{each.laplace:g}", *told, *spent])
        tried += [[each.name, *_told(one)] for one in each.tried]
    heads = ["set", "chosen", "edges", "pseudo-count", "valid", "test", "ours, fixed", "auto − fixed", "published"]
    heads += ["auto − published", "minutes allowed", "CPU s", "s"]
    lines = [*table(heads, 2, rows), "", "What was tried:", ""]
    return (
        "\n".join([*lines, *table(["set", "candidate", "edges", "pseudo-count", "passes", "valid", ""], 2, tried)])
        + "\n"
    )


def _told(one: dict[str, object]) -> list[str]:
    valid = "" if one["valid"] is None else f"{one['valid']:.3f}"
    return [
        str(one["name"]),
        f"{one['n_edges']:,}",
        f"{one['laplace']:g}",
        str(one["n_passes"]),
        valid,
        str(one["how"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(COMPLETE))
    parser.add_argument("--minutes", type=float, default=10.0, help="of work, for two threads of a usual server")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where results are kept, and read from when the run goes on")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results/density-auto.md")
    args = parser.parse_args()
    found: list[Found] = read_kept(args.json, Found)
    for name in args.sets:
        if any(each.name == name for each in found):
            continue
        found.append(found_on(name, args.minutes, args.threads, args.seed))
        keep(args.json, found)
        last = found[-1]
        print(
            f"{name}: {last.chosen}, test {last.test:.3f}, {last.cpu_seconds:.0f} CPU s, {last.seconds:.0f} s",
            flush=True,
        )
    if args.write:
        write_page("density-auto.md", report(found))


if __name__ == "__main__":
    main()
