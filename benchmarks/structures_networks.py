"""Known networks, sampled: edges found again by the posterior, beside pgmpy's hill climbing and causal-learn's GES.

Each result is one line of --log; what is there already is not done again.

python -m benchmarks.structures_networks --log build/networks.jsonl --peer-python peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.structure_problems import NETWORKS, Array, auroc, essential_graph, off_diagonal, shd
from benchmarks.structures_paper import has, kept, peer

ROWS = (500, 5000, 50_000)
NAMES = ("asia", "sachs", "insurance", "alarm", "hailfinder")
MAX_PARENTS = 4
PEERS = {"hill climbing (pgmpy)": ("hill-climb", "pgmpy"), "GES (causal-learn)": ("ges", "causallearn")}
PEER_TIMEOUT_S = 900


def sampled(name: str, n: int, seed: int) -> tuple[Array, Array, list[str], list[tuple[str, ...]]]:
    """(d, d) the graph, (n, d) codes of rows drawn from it, and the names and values of the columns."""
    from learners import read_bif

    network = read_bif(NETWORKS / f"{name}.bif")
    names = list(network.values)
    place, rng = {own: i for i, own in enumerate(names)}, np.random.default_rng([seed, n])
    graph = np.zeros((len(names),) * 2, bool)
    for child, parents in network.parents.items():
        for parent in parents:
            graph[place[parent], place[child]] = True
    rows, left = np.zeros((n, len(names)), np.int64), list(names)
    while left:
        child = next(own for own in left if not set(network.parents[own]) & set(left))
        left.remove(child)
        rows[:, place[child]] = _drawn(network, child, place, rows, rng)
    return graph, rows, names, [network.values[own] for own in names]


def _drawn(network: Any, child: str, place: dict[str, int], rows: Array, rng: np.random.Generator) -> Array:
    parents, values = network.parents[child], network.values
    sizes = [len(values[parent]) for parent in parents]
    shares = np.zeros((*sizes, len(values[child])))
    for given, row in network.tables[child].items():
        if not given:
            shares[...] = np.reshape(row, (*sizes, -1)) if parents else row
        else:
            shares[tuple(values[p].index(v) for p, v in zip(parents, given, strict=True))] = row
    own = shares[tuple(rows[:, place[parent]] for parent in parents)] if parents else np.tile(shares, (len(rows), 1))
    below = np.cumsum(own, axis=1)
    return (rng.random(len(rows))[:, np.newaxis] * below[:, -1:] > below).sum(axis=1)


def ours(graph: Array, rows: Array, names: list[str], values: list[tuple[str, ...]], n_sets: int) -> dict[str, Any]:
    """The learner on the rows as a table of words; constant columns are dropped, and count as without edges."""
    from learners import StructurePosterior
    from learners.query import Graph

    words = [pa.array(np.array(own, object)[rows[:, i]], pa.string()) for i, own in enumerate(values)]
    varied = [i for i in range(len(names)) if np.ptp(rows[:, i])]
    table = pa.table([words[i] for i in varied], names=[names[i] for i in varied])
    started = time.perf_counter()
    learned = StructurePosterior(score="bdeu", max_parents=MAX_PARENTS, sets=n_sets, threads=1).fit(table)
    seconds = time.perf_counter() - started
    d, place = len(names), {name: i for i, name in enumerate(names)}
    edges, best = np.zeros((d, d)), np.zeros((d, d), bool)
    where = [place[name] for name in learned.feature_names_in_]
    edges[np.ix_(where, where)] = learned.edge_probabilities_
    for edge in learned.query(Graph())["edges"]:
        best[place[edge["from"]], place[edge["to"]]] = True
    pairs, coverage = off_diagonal(d), learned.coverage_
    skeleton = np.triu(np.ones((d, d), bool), 1)
    return {
        "auroc": auroc(graph[pairs], edges[pairs]),
        "auroc_of_skeleton": auroc((graph | graph.T)[skeleton], (edges + edges.T)[skeleton]),
        "shd": shd(best, graph),
        "seconds": seconds,
        "coverage": coverage["orders"],
        "coverage_of_graphs": coverage["graphs"],
        "is_exact": coverage["is_exact"],
    }


def warm_up() -> None:
    """Compile kernels, or load them."""
    from learners import StructurePosterior

    codes = np.random.default_rng(0).integers(0, 2, (60, 6))
    table = pa.table({f"x{i}": pa.array(np.array(["a", "b"], object)[codes[:, i]]) for i in range(6)})
    for method in ("exact", "blocks"):
        StructurePosterior(score="bdeu", method=method, sets=100, threads=1).fit(table)


def of_peer(graph: Array, rows: Array, task: str, python: str) -> dict[str, Any]:
    """The graph, or the equivalence class, that a peer finds."""
    settings = {"ess": 1.0, "max_parents": MAX_PARENTS}
    try:
        found = peer(task, rows, settings, python, PEER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"shd": None, "seconds": float(PEER_TIMEOUT_S), "error": f"not done after {PEER_TIMEOUT_S} s"}
    except RuntimeError as error:
        return {"shd": None, "seconds": None, "error": str(error)[-200:]}
    edges = found["graph"]
    if task == "ges":  # it finds an equivalence class
        (directed, loose), truth = (edges & ~edges.T, edges & edges.T), essential_graph(graph)
        different = (directed != truth[0]) | (loose != truth[1])
        distance = int(np.triu(different | different.T, 1).sum())
    else:
        distance = shd(edges, graph)
    return {"shd": distance, "seconds": float(found["whole_seconds"])}


def table(results: list[dict[str, Any]]) -> str:
    """A row for each network and number of rows, in Markdown."""
    methods = ["fewpass", *PEERS]
    lines = [
        "| network | rows | AUROC of edges | of the skeleton | coverage of orders; of graphs | "
        + " | ".join(f"SHD, {method}; s" for method in methods)
        + " |",
        "| --- " * (5 + len(methods)) + "|",
    ]
    for name, n in sorted({(e["network"], e["rows"]) for e in results}, key=lambda e: (NAMES.index(e[0]), e[1])):
        own = {e["method"]: e for e in results if (e["network"], e["rows"]) == (name, n)}
        us = own.get("fewpass", {})
        cells = [name, f"{n:,}", *(f"{us[key]:.3f}" if key in us else "" for key in ("auroc", "auroc_of_skeleton"))]
        if us:
            cells.append("exact" if us["is_exact"] else f"{us['coverage']:.0%}; {us['coverage_of_graphs']:.0%}")
        else:
            cells.append("")
        for method in methods:
            one = own.get(method)
            if one is None:
                cells.append("")
            elif one["shd"] is None:
                cells.append(one["error"][:40])
            else:
                cells.append(f"{one['shd']}; {one['seconds']:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--sets", type=int, default=400_000, help="of the lattice beyond 20 columns")
    parser.add_argument("--methods", nargs="+", choices=["fewpass", *PEERS], default=["fewpass", *PEERS])
    parser.add_argument("--peer-python", default=sys.executable, help="of an environment with pgmpy and causal-learn")
    parser.add_argument("--log", type=Path, help="one line a result, to go on from")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not NETWORKS.is_dir():
        raise SystemExit(f"There is no folder {NETWORKS}: the networks lie beside the project, in shared/data.")
    results = kept(args.log)
    done = {(entry["network"], entry["rows"], entry["method"]) for entry in results}
    if "fewpass" in args.methods:
        warm_up()
    there = ["fewpass", *(method for method, (_, module) in PEERS.items() if has(args.peer_python, module))]
    for name in args.networks:
        for n in args.rows:
            graph, rows, names, values = sampled(name, n, 0)
            for method in args.methods:
                if method not in there or (name, n, method) in done:
                    continue
                if method == "fewpass":
                    found = ours(graph, rows, names, values, args.sets)
                else:
                    found = of_peer(graph, rows, PEERS[method][0], args.peer_python)
                entry = {"network": name, "rows": n, "method": method} | found
                results.append(entry)
                if args.log is not None:
                    with args.log.open("a") as file:
                        file.write(json.dumps(entry) + "\n")
                print(json.dumps(entry), file=sys.stderr, flush=True)
    print(table(results))
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
