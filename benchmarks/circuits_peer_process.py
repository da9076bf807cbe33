"""Evaluates circuits with another library: the child of `benchmarks.circuits_peers`, run by the Python that has the library.

Knows nothing of this project. Reads one line of JSON per request from standard input and answers with one line:
{"open": path, "library": name}, {"batch": true}, {"query": number}. The file (npz) holds the nodes, the rows and the queries.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

# One core, before a library starts threads for each; not of a process that only imports this.
if __name__ == "__main__" and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np

SUM, PRODUCT, BERNOULLI = range(3)
Evaluate = Callable[[Any], Any]


def each_node(data: Any, make: Callable[[int, int, list[Any], Any, float], Any]) -> list[Any]:
    """make(kind, variable, children, weights, probability of one) for every node, children first."""
    nodes: list[Any] = []
    starts = data["starts"]
    for k, kind in enumerate(data["kind"].tolist()):
        first, end = int(starts[k]), int(starts[k + 1])
        children = [nodes[child] for child in data["children"][first:end]]
        nodes.append(make(kind, int(data["variable"][k]), children, data["weights"][first:end], float(data["p"][k])))
    return nodes


def spflow(data: Any) -> tuple[Evaluate, str]:
    """SPFlow 0.0.x: nodes are Python objects, evaluated by NumPy in double precision."""
    base = importlib.import_module("spn.structure.Base")
    leaves = importlib.import_module("spn.structure.leaves.parametric.Parametric")
    inference = importlib.import_module("spn.algorithms.Inference")

    def make(kind: int, variable: int, children: list[Any], weights: Any, p: float) -> Any:
        if kind == BERNOULLI:
            return leaves.Categorical(p=[1 - p, p], scope=[variable])
        if kind == SUM:
            node = base.Sum(weights=(weights / weights.sum()).tolist(), children=children)
            node.scope = list(children[0].scope)
            return node
        node = base.Product(children=children)
        node.scope = [v for child in children for v in child.scope]
        return node

    root = each_node(data, make)[-1]
    base.assign_ids(root)
    return lambda rows: inference.log_likelihood(root, rows)[:, 0], importlib.metadata.version("spflow")


def spflow_torch(data: Any) -> tuple[Evaluate, str]:
    """SPFlow 1.x: PyTorch modules, here one for each node, as learned circuits have no layers of equal nodes."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    sums = importlib.import_module("spflow.modules.sums")
    products = importlib.import_module("spflow.modules.products")
    leaves = importlib.import_module("spflow.modules.leaves")
    sys.setrecursionlimit(100_000)

    def make(kind: int, variable: int, children: list[Any], weights: Any, p: float) -> Any:
        if kind == BERNOULLI:
            return leaves.Bernoulli(scope=variable, probs=torch.tensor([[[p]]]))
        if kind == SUM:
            shaped = torch.tensor(weights / weights.sum()).reshape(1, -1, 1, 1)
            return sums.Sum(inputs=children, weights=shaped)
        return products.Product(inputs=children)

    root = each_node(data, make)[-1]

    def evaluate(rows: Any) -> Any:
        with torch.no_grad():
            return root.log_likelihood(torch.from_numpy(rows)).numpy().reshape(len(rows))

    return evaluate, importlib.metadata.version("spflow")


def deeprob(data: Any) -> tuple[Evaluate, str]:
    """deeprob-kit: nodes are Python objects, evaluated by NumPy in single precision."""
    node_module = importlib.import_module("deeprob.spn.structure.node")
    leaf_module = importlib.import_module("deeprob.spn.structure.leaf")
    inference = importlib.import_module("deeprob.spn.algorithms.inference")

    def make(kind: int, variable: int, children: list[Any], weights: Any, p: float) -> Any:
        if kind == BERNOULLI:
            return leaf_module.Bernoulli(variable, p=p)
        if kind == SUM:
            return node_module.Sum(children=children, weights=(weights / weights.sum()).tolist())
        return node_module.Product(children=children)

    root = each_node(data, make)[-1]
    node_module.assign_ids(root)
    return lambda rows: inference.log_likelihood(root, rows).reshape(-1), importlib.metadata.version("deeprob-kit")


LIBRARIES = {"spflow": spflow, "spflow-torch": spflow_torch, "deeprob": deeprob}


def main() -> None:
    data: Any = None
    evaluate: Evaluate | None = None
    # What libraries print must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if "open" in request:
                data = dict(np.load(request["open"]))
                evaluate, version = LIBRARIES[request["library"]](data)
                answer = {"version": version, "log_likelihoods": np.asarray(evaluate(data["rows"]), float).tolist()}
            else:
                assert evaluate is not None
                query = request.get("query")
                rows = data["rows"] if query is None else data["queries"][query : query + 1]
                started, wall = time.process_time(), time.perf_counter()
                found = evaluate(rows)
                answer = {"seconds": time.process_time() - started, "wall": time.perf_counter() - wall}
                answer["first"] = float(found[0])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
