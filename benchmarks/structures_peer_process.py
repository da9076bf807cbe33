"""Peers of posteriors over structures, in an environment that has them; asked by the other benchmarks.

python -m benchmarks.structures_peer_process gadget|hill-climb|ges|bdeu IN.npz OUT.npz '{"iterations": 10000}'
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np


def gadget(rows, settings):
    """Graphs (n, d, d) that sumu's Gadget draws, BGe with the fair prior."""
    import sumu

    d = rows.shape[1]
    data = sumu.Data(rows, discrete=False)
    sampler = sumu.Gadget(
        data=data,
        scoref="bge",
        ess=1,
        max_id=-1,
        K=min(d - 1, settings["candidates"]),
        d=3,
        cp_algo="greedy",
        cp_path=None,
        mc3_chains=16,
        burn_in=settings["burn_in"],
        iterations=settings["iterations"],
        thinning=max(1, settings["iterations"] // settings["samples"]),
        tolerance=2.0**-32,
    )
    np.random.seed(settings["seed"])  # noqa: NPY002 (sumu draws from it)
    dags, _ = sampler.sample()
    graphs = np.zeros((len(dags), d, d), bool)
    for graph, families in zip(graphs, dags, strict=True):
        for family in families:
            node, parents = family[0], family[1] if len(family) > 1 else ()
            parents = parents if hasattr(parents, "__iter__") else family[1:]
            for parent in parents:
                graph[int(parent), int(node)] = True
    return {"graphs": graphs}


def hill_climb(rows, settings):
    """The graph of pgmpy's hill climbing with BDeu."""
    import pandas as pd
    from pgmpy.estimators import BDeu, HillClimbSearch

    table = pd.DataFrame(rows).astype(str).astype("category")
    table.columns = [str(i) for i in range(rows.shape[1])]
    search = HillClimbSearch(table)
    found = search.estimate(
        scoring_method=BDeu(table, equivalent_sample_size=settings["ess"]),
        max_indegree=settings["max_parents"],
        show_progress=False,
    )
    graph = np.zeros((rows.shape[1],) * 2, bool)
    for a, b in found.edges():
        graph[int(a), int(b)] = True
    return {"graph": graph}


def ges(rows, settings):
    """The equivalence class that causal-learn's GES finds, [i, j] for i -> j and both for an undirected edge."""
    from causallearn.search.ScoreBased.GES import ges as search

    found = search(rows.astype(float), score_func="local_score_BDeu", maxP=settings["max_parents"])["G"].graph
    return {"graph": (found == -1) & ((found.T == 1) | (found.T == -1))}


def bdeu(rows, settings):
    """Seconds that pgmpy's BDeu takes a family, the mean over some."""
    import pandas as pd
    from pgmpy.estimators import BDeu

    table = pd.DataFrame(rows).astype("category")
    table.columns = [str(i) for i in range(rows.shape[1])]
    score = BDeu(table, equivalent_sample_size=1.0)
    families = settings["families"]
    score.local_score(str(families[0][0]), [str(p) for p in families[0][1]])
    started = time.perf_counter()
    values = [score.local_score(str(node), [str(p) for p in parents]) for node, parents in families]
    return {"seconds": np.array((time.perf_counter() - started) / len(families)), "values": np.array(values)}


def main() -> None:
    task, source, target, settings = sys.argv[1:5]
    tasks = {"gadget": gadget, "hill-climb": hill_climb, "ges": ges, "bdeu": bdeu}
    rows = np.load(source)["rows"]
    started = time.perf_counter()
    found = tasks[task](rows, json.loads(settings))
    np.savez(target, whole_seconds=time.perf_counter() - started, **found)


if __name__ == "__main__":
    main()
