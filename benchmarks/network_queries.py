"""All marginals of published networks, given evidence and not, in processor seconds beside pyAgrum's, and how far apart they are.

python -m benchmarks.network_queries FOLDER --oracle PYTHON --out docs/results/network-queries.md

FOLDER holds networks as .bif or .bif.gz, such as those of the package pgmpy (utils/example_models). PYTHON is the interpreter of an
environment with pyAgrum and numpy; without it, only fewpass is measured.
"""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import options
from learners.orders.formats.network_files import parse_network
from learners.registry.discrete_networks import network_model
from learners.registry.networks.elimination.rows import Elimination
from learners.registry.networks.model import NetworkModel

# Each network is asked without evidence, and with every fifth variable known.
KNOWN = 5
LIMIT_S, LIMIT_BYTES = 60, 4 << 30
ORACLE = """
import json, resource, sys, time
import numpy as np, pyagrum as gum
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
read = np.load(sys.argv[1])
parents, sizes = json.loads(str(read["parents"])), read["sizes"].tolist()
network = gum.BayesNet()
for v, size in enumerate(sizes):
    network.add(gum.LabelizedVariable(f"v{v}", "", [f"a{i}" for i in range(size)]))
for v, own in enumerate(parents):
    for parent in own:
        network.addArc(parent, v)
for v, own in enumerate(parents):
    names = [f"v{u}" for u in (*own, v)]
    table = read[f"t{v}"].transpose([names.index(name) for name in reversed(list(network.cpt(v).names))])
    network.cpt(v).fillWith(np.ascontiguousarray(table).ravel().tolist())
told = {}
for which in ("without", "with"):
    began = time.process_time()
    engine = gum.LazyPropagation(network)
    if which == "with":
        engine.setEvidence({f"v{v}": int(code) for v, code in read["evidence"].tolist()})
    engine.makeInference()
    for v in range(len(sizes)):
        told[f"{which}{v}"] = engine.posterior(v).toarray()
    told["s" + which] = time.process_time() - began
np.savez(sys.argv[1], **told)
"""


def measured(path: Path, oracle: str | None) -> dict[str, Any]:
    """One row of the table."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    began = time.process_time()
    model = network_model(parse_network(content, path.name))
    assert isinstance(model, NetworkModel)
    row: dict[str, Any] = {"name": path.name.split(".")[0], "n": len(model.columns.names)}
    row["import_s"] = time.process_time() - began
    network, every = model.network, range(row["n"])
    elimination = Elimination(network, LIMIT_BYTES)
    row["n_cells"] = elimination.n_cells((), every)
    nothing = np.full((row["n"], 1), np.nan)
    drawn = elimination.row_draws(nothing, 1, [np.random.default_rng(0)], {})[0][0]
    known = nothing.copy()
    known[::KNOWN, 0] = drawn[::KNOWN]
    ours = {}
    for which, x in (("without", nothing), ("with", known)):
        began = time.process_time()
        ours[which] = Elimination(network, LIMIT_BYTES).row_marginals(x, every, {})[
            1
        ]  # the order of variables included
        row["s" + which] = time.process_time() - began
    if oracle is not None:
        evidence = np.array([(v, drawn[v]) for v in every[::KNOWN]], np.int64)
        row |= _beside(model, evidence, ours, oracle)
    return row


def _beside(model: NetworkModel, evidence: Any, ours: dict[str, Any], oracle: str) -> dict[str, Any]:
    """What pyAgrum takes, and the largest difference of a probability."""
    network = model.network
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.npz"
        np.savez(
            file,
            parents=json.dumps(network.parents),
            sizes=np.array(model.columns.n_values),
            evidence=evidence,
            **{f"t{v}": table for v, table in enumerate(network.tables)},
        )
        command = [oracle, "-c", ORACLE, str(file), str(LIMIT_BYTES)]
        limits = lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))  # noqa: E731
        done = subprocess.run(command, capture_output=True, preexec_fn=limits, check=False)
        if done.returncode:
            return {"reason": f"more than {LIMIT_S} s or {LIMIT_BYTES >> 30} GiB"}
        with np.load(file) as read:
            found = {name: read[name] for name in read.files}
    apart = {
        which: max(float(np.abs(own[0] - found[f"{which}{v}"]).max()) for v, own in enumerate(shares))
        for which, shares in ours.items()
    }
    return {
        "apart": max(apart.values()),
        "pyagrum_without": float(found["swithout"]),
        "pyagrum_with": float(found["swith"]),
    }


def page(rows: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = [
        "# Queries to published networks",
        "",
        "All marginals of each network by elimination, without evidence and with every fifth variable known, in processor seconds of one",
        "thread, with the search for an order and without reading the file; and the largest difference from the probabilities of pyAgrum",
        "(LazyPropagation), which gets the same tables. [The command](../../benchmarks/network_queries.py):",
        "`python -m benchmarks.network_queries FOLDER --oracle PYTHON --out docs/results/network-queries.md`",
        "",
        "| network | variables | cells of the tables | import | fewpass | pyAgrum | fewpass, evidence | pyAgrum, evidence | largest difference |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        reason = row.get("reason", "not measured")
        theirs = [f"{row[key]:.3f}" if key in row else reason for key in ("pyagrum_without", "pyagrum_with")]
        apart = f"{row['apart']:.0e}" if "apart" in row else ""
        lines.append(
            f"| {row['name']} | {row['n']:,} | {row['n_cells']:,} | {row['import_s']:.2f} | {row['swithout']:.3f} | {theirs[0]} "
            f"| {row['swith']:.3f} | {theirs[1]} | {apart} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = options(__doc__, oracle="", out=Path(), last=["link", "munin1"])
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    files = sorted(
        [*chosen.folder.glob("*.bif"), *chosen.folder.glob("*.bif.gz")], key=lambda file: file.stat().st_size
    )
    rows: list[dict[str, Any]] = []
    for file in sorted(files, key=lambda file: file.name.split(".")[0] in chosen.last):
        rows.append(measured(file, chosen.oracle or None))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if chosen.out != Path():
            chosen.out.write_text(page(sorted(rows, key=lambda row: row["name"])))


if __name__ == "__main__":
    main()
