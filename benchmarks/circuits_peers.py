"""Rows per second of a batch, and one query, beside SPFlow and deeprob-kit on the same circuits, run in turn, one thread.

    python -m benchmarks.circuits_peers --peer-python spflow=OLD/bin/python deeprob=NEW/bin/python spflow-torch=NEW/bin/python

A peer lives in an environment of its own, as it wants other versions of what this project uses: `pip install spflow==0.0.48` in
one, `pip install torch numpy scipy scikit-learn joblib tqdm matplotlib networkx pydot` and `pip install --no-deps deeprob-kit` in
another. Sums over the two indicators of a variable become one Bernoulli leaf there, as their own learners would have it: fewer
nodes than ours has; `--literal` keeps every node. Seconds are those of the CPU, so that other work on the machine counts for neither.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.circuits import CIRCUITS, columns
from benchmarks.measuring import Figure, machine, report
from learners.circuits.circuit import Circuit
from learners.circuits.evaluate import log_values
from learners.circuits.kernels import INDICATOR, PRODUCT, SUM
from learners.circuits.text import read_text

Array = np.ndarray[Any, np.dtype[Any]]

NAMES = ("nltcs", "plants")
TITLES = {"spflow": "SPFlow", "spflow-torch": "SPFlow (PyTorch)", "deeprob": "deeprob-kit"}
# deeprob-kit keeps its values in single precision.
TOLERANCE = {"spflow": 1e-6, "spflow-torch": 1e-6, "deeprob": 1e-4}
OBSERVED = 1 / 3
REPEATS = 5  # of one query, on both sides
CHILD = Path(__file__).with_name("circuits_peer_process.py")
PEER_SUM, PEER_PRODUCT, PEER_BERNOULLI = range(3)


class PeerMissing(Exception):
    """The peer cannot be measured here; says why."""


def translated(circuit: Circuit, literal: bool = False) -> dict[str, Array]:
    """The circuit with a Bernoulli leaf for each sum over indicators: the arrays of `circuits_peer_process`.

    Parameters
    ----------
    circuit : Circuit
        Of sums, products and indicators of binary variables.
    literal : bool
        Only indicators become leaves.

    Returns
    -------
    dict
        kind, variable and p (n_nodes,), starts (n_nodes + 1,), children and weights (n_edges,).
    """
    below = [
        circuit.children[circuit.child_starts[k] : circuit.child_starts[k + 1]].tolist() for k in range(circuit.n_nodes)
    ]
    is_leaf = circuit.kind == INDICATOR
    if not literal:
        is_leaf[[k for k in np.flatnonzero(circuit.kind == SUM).tolist() if is_leaf[below[k]].all()]] = True
    needed = np.zeros(circuit.n_nodes, bool)
    needed[-1] = True
    for k in range(circuit.n_nodes - 1, -1, -1):
        if needed[k] and not is_leaf[k]:
            needed[below[k]] = True
    kept = np.flatnonzero(needed).tolist()
    new = {k: i for i, k in enumerate(kept)}
    inner = [[] if is_leaf[k] else below[k] for k in kept]
    weights = [np.exp(circuit.log_weight[circuit.child_starts[k] : circuit.child_starts[k + 1]]) for k in kept]
    one = [probability_of_one(circuit, k) if is_leaf[k] else (-1, 0.0) for k in kept]
    kinds = np.where(circuit.kind[kept] == PRODUCT, PEER_PRODUCT, PEER_SUM)
    return {
        "kind": np.where(is_leaf[kept], PEER_BERNOULLI, kinds),
        "variable": np.array([variable for variable, _ in one]),
        "p": np.array([p for _, p in one]),
        "starts": np.cumsum([0] + [len(children) for children in inner]),
        "children": np.array([new[child] for children in inner for child in children]),
        "weights": np.concatenate([w for w, children in zip(weights, inner, strict=True) if children]),
    }


def probability_of_one(circuit: Circuit, k: int) -> tuple[int, float]:
    """Variable and probability of an indicator, or of a sum over indicators of one variable."""
    if circuit.kind[k] == INDICATOR:
        return int(circuit.variable[k]), float(circuit.leaf_parameters[circuit.leaf_starts[k]])
    edges = slice(circuit.child_starts[k], circuit.child_starts[k + 1])
    children, weight = circuit.children[edges], np.exp(circuit.log_weight[edges])
    is_one = circuit.leaf_parameters[circuit.leaf_starts[children]] == 1.0
    return int(circuit.variable[children[0]]), float(weight[is_one].sum() / weight.sum())


class Peer:
    """The child process of one library, with a circuit and rows.

    Raises
    ------
    PeerMissing
        If its Python or the library is not there, or it cannot take the circuit.
    """

    def __init__(self, library: str, python: str, path: Path) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            self._process = subprocess.Popen(
                [python, str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
        except OSError as error:
            raise PeerMissing(f"{library}: {error}") from None
        opened = self.ask(open=str(path), library=library)
        self.version, self.log_likelihoods = opened["version"], np.array(opened["log_likelihoods"])

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise PeerMissing(answer["error"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def cpu_seconds(task: Any) -> float:
    """Of this thread, which does all the work."""
    started = time.thread_time()
    task()
    return time.thread_time() - started


def queries_of(x: Array, n: int) -> tuple[Array, list[Array]]:
    """Rows of which two thirds are missing: (n, n_variables) with NaN, and ours one by one."""
    missing = np.random.default_rng(0).random((x.shape[0], n)) >= OBSERVED
    asked = np.where(missing, np.nan, x[:, :n])
    ours = np.where(missing, 255, x[:, :n]).astype(np.uint8)
    return np.ascontiguousarray(asked.T), [np.ascontiguousarray(ours[:, i : i + 1]) for i in range(n)]


def figures(name: str, library: str, python: str, n_rows: int, rounds: int, literal: bool) -> list[Figure]:
    """Rows per second, and one query, ours ÷ the peer's."""
    circuit = read_text(CIRCUITS / f"{name}.spn.txt")
    x = np.ascontiguousarray(np.hstack([columns(name, split) for split in ("train", "test")])[:, :n_rows])
    asked, ours = queries_of(columns(name, "test"), rounds * 4)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "circuit.npz"
        arrays = {"rows": np.ascontiguousarray(x.T.astype(np.float64)), "queries": asked} | translated(circuit, literal)
        np.savez(path, allow_pickle=False, **arrays)
        with Peer(library, python, path) as peer:
            apart = float(np.abs(peer.log_likelihoods - log_values(circuit, x)).max())
            if not apart <= TOLERANCE[library]:
                raise PeerMissing(f"log-likelihoods of {library} {peer.version} differ by {apart:.2g}")
            batch = []
            for _ in range(rounds):
                mine = cpu_seconds(lambda: log_values(circuit, x))
                batch.append((mine, peer.ask(batch=True)["seconds"]))
            single = []
            log_values(circuit, ours[0])
            for i, row in enumerate(ours):
                mine = statistics.mean(cpu_seconds(lambda row=row: log_values(circuit, row)) for _ in range(REPEATS))
                theirs = statistics.mean(peer.ask(query=i)["seconds"] for _ in range(REPEATS))
                single.append((mine, theirs))
            title = f"{TITLES[library]} {peer.version}"
    sizes = f"{circuit.n_edges:,} and {arrays['children'].size:,} edges"
    return [
        compared(f"{name} batch ÷ {title}", batch, x.shape[1], f"{sizes}; differ by at most {apart:.1g}"),
        compared(f"{name} one marginal ÷ {title}", single, None, sizes),
    ]


def compared(what: str, seconds: list[tuple[float, float]], n_rows: int | None, detail: str) -> Figure:
    """The peer's seconds ÷ ours, round by round."""
    ratios = [theirs / mine for mine, theirs in seconds]
    mine, theirs = (statistics.median(column) for column in zip(*seconds, strict=True))
    if n_rows is None:
        text, least, aim = f"{1e3 * mine:.3f} ms; {1e3 * theirs:.1f} ms; {detail}", "", ""
    else:
        text, least, aim = f"{n_rows / mine:,.0f} rows/s; {n_rows / theirs:,.0f} rows/s; {detail}", "20", "100"
    return Figure(what, statistics.median(ratios), min(ratios), max(ratios), least, aim, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peer-python", nargs="+", default=[], metavar="LIBRARY=PYTHON", help=f"of {', '.join(TITLES)}"
    )
    parser.add_argument("--circuits", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--literal", action="store_true", help="keep sums over indicators instead of Bernoulli leaves")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    pythons = dict(pair.split("=", 1) for pair in args.peer_python)
    found: list[Figure] = []
    for library, title in TITLES.items():
        if library not in pythons:
            print(f"{title}: skipped; give --peer-python {library}=PYTHON of an environment that has it")
            continue
        for name in args.circuits:
            try:
                found += figures(name, library, pythons[library], args.rows, args.rounds, args.literal)
            except PeerMissing as error:
                print(f"{title} on {name}: skipped: {error}")
    report("Circuits, one thread, ÷ libraries run beside it", found, {"machine": machine()}, args.json)


if __name__ == "__main__":
    main()
