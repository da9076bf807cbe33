"""`fewpass demo`: learn from more rows than memory may hold, refresh, forget, serve, and show what came out."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from learners.evaluation.metrics import evaluate, reliability_diagram_points
from learners.evaluation.peers import RawColumns
from learners.kernels.arrays import Codes, Floats
from learners.passes.sources.source import Source
from service import product
from service.operations.bench import peak_rss_bytes, run_in_fresh_process
from service.operations.demo_orders import TARGET, USER, Orders, write_orders
from service.operations.precompile import DEMO, precompile_in_processes
from service.processes.local_server import local_server
from service.product.inference.scoring import probabilities_and_true_classes
from service.product.views import pictures
from service.requests.json_values import JSONObject
from service.requests.requests import ForgetRequest, TrainRequest
from service.settings import Settings, available_threads
from service.terminal_output import COMPILING, err, out, print_json_document, print_table, terminal_progress_bar
from service.workspace import Workspace

MEMORY = "64MiB"
MODEL, AUTO_MODEL, ALIAS = "orders", "orders-auto", "champion"
OFTEN_UNKNOWN = ("weight_kg", "distance_km", "weather")
CASE: JSONObject = {"city": "Oslo", "carrier": "Postale", "category": "furniture", "weather": "snow"}
LEVEL = 0.9
N_REQUESTS = 200
ROUNDS, DEPTH = 100, 6  # XGBoost's own defaults
METRICS = ("zero_one_loss", "rmse", "log_loss", "ece")


def run_demo(rows: int, output: Path, seed: int, json_output: bool) -> None:
    """Run the demo into a folder, with pictures and results.json, and print tables or that; all it starts has ended then."""

    def say(text: str) -> None:
        if not json_output:
            err.print(f"[dim]{text}[/]", highlight=False)

    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fewpass-demo-") as directory:
        root = Path(directory)
        say(COMPILING)
        precompile_in_processes(available_threads(Settings()), DEMO)  # so that the times below are those of training
        say(f"writing {rows:,} orders")
        orders = write_orders(root / "orders", rows, seed)
        settings = Settings(workspace=root / "workspace", memory=MEMORY, threads=1, job_workers=0, log_level="warning")
        say(f"training kDB-2, auto and XGBoost on {rows:,} orders, one after the other, each in a process of its own")
        answers, labels, models = train_demo_models(settings, orders)
        written = draw_demo_pictures(settings, answers, labels, output)
        results: JSONObject = {
            "n_train": orders.n_train,
            "n_test": orders.n_test,
            "n_columns": len(pq.read_schema(orders.test)),
            "bytes_in_memory": orders.n_bytes,
            "bytes_of_files": sum(path.stat().st_size for path in orders.train),
            "memory": MEMORY,
            "models": models,
            "least_losses": bayes_optimal_losses(orders),
        }
        say(f"tomorrow's file: {orders.n_tomorrow:,} orders more")
        results["refresh"] = refresh_demo_model(settings, orders)
        say("a customer asks to be deleted")
        results["forget"] = forget_demo_customer(settings, orders, not json_output)
        say("starting a server on a free loopback port")
        with local_server(settings) as server:
            results["requests"] = query_demo_server(server.url, orders)
    written.append(output / "results.json")
    results |= {"files": [str(path) for path in written], "seconds": time.perf_counter() - started}
    written[-1].write_text(json.dumps(results, indent=2) + "\n")
    if json_output:
        print_json_document(results)
        return
    _show(results)
    out.print("Pictures and numbers: " + ", ".join(str(path) for path in written), soft_wrap=True, highlight=False)


class Cost(NamedTuple):
    """What a training took, from the start of its process: wall and processor seconds, and its peak resident memory."""

    wall_s: float
    cpu_s: float
    peak_bytes: int

    @classmethod
    def since(cls, started: float) -> Cost:
        """Up to now, for a process that began at a time of `time.time`."""
        return cls(time.time() - started, time.process_time(), peak_rss_bytes())


def demo_train_request(orders: Orders) -> TrainRequest:
    """What the shop asks for, in the first week and every night after."""
    return TrainRequest(
        uris=[str(orders.train[0].parent / "week-*.parquet")],
        target=TARGET,
        learner="kdb",
        parameters={"k": 2},
        model=MODEL,
        aliases=[ALIAS],
        update=True,
        holdout=0,
    )


def train_demo_models(settings: Settings, orders: Orders) -> tuple[dict[str, Floats], Codes, list[JSONObject]]:
    """Train our models and XGBoost's from the same files, each in a process of its own, on one thread.

    Returns the probabilities of the test rows by learner, their classes, and what results.json says of each.
    """
    kdb = demo_train_request(orders)
    auto = TrainRequest(uris=kdb.uris, target=TARGET, learner="auto", model=AUTO_MODEL)
    costs, answers = {}, {}
    for learner, request in (("kDB-2", kdb), ("auto", auto)):
        costs[learner], _ = run_in_fresh_process(_trained, settings, request.model_dump(), time.time())
        with Workspace(settings) as workspace:
            model = product.load_served_model(workspace, request.model).model
            answers[learner], labels = probabilities_and_true_classes(model, Source.open(str(orders.test)))
    files = [str(path) for path in orders.train]
    (costs["XGBoost"], answers["XGBoost"]), _ = run_in_fresh_process(
        train_demo_xgboost, files, str(orders.test), TARGET, time.time()
    )
    results = [
        {"learner": learner, **costs[learner]._asdict(), "metrics": vars(evaluate(probabilities, labels))}
        for learner, probabilities in answers.items()
    ]
    return answers, labels, results


def _trained(settings: Settings, request: JSONObject, started: float) -> Cost:
    with Workspace(settings) as workspace:
        product.train_model_version(workspace, TrainRequest(**request))
    return Cost.since(started)


def train_demo_xgboost(files: Sequence[str], test: str, target: str, started: float) -> tuple[Cost, Floats]:
    """XGBoost on one thread, all rows in memory, texts as codes: its cost, and (n_test, 2) probabilities by class."""
    import xgboost

    pa.set_cpu_count(1)
    tables = [pq.read_table(path) for path in files]
    whole = pa.concat_tables(tables)
    classes = pa.array(sorted(whole[target].unique().to_pylist()))
    y = pc.index_in(whole[target], classes).to_numpy()
    columns = RawColumns(whole.drop_columns([target]))
    rows = np.concatenate([columns.numbers_of(table).astype(np.float32) for table in tables])
    del tables, whole
    settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": DEPTH, "nthread": 1}
    booster = xgboost.train(settings, xgboost.QuantileDMatrix(rows, y, nthread=1), ROUNDS)
    cost = Cost.since(started)
    p = booster.inplace_predict(columns.numbers_of(pq.read_table(test)).astype(np.float32)).astype(np.float64)
    return cost, np.stack([1 - p, p], axis=1)


def refresh_demo_model(settings: Settings, orders: Orders) -> JSONObject:
    """Tomorrow has come: its file is moved beside the others, and only that is read."""
    orders.tomorrow.rename(orders.train[0].parent / "week-6.parquet")
    started = time.perf_counter()
    with Workspace(settings) as workspace:
        version, passes = product.train_and_report_passes(workspace, demo_train_request(orders))
    return {
        "version": version.version,
        "n_rows": version.n_rows,
        "n_rows_read": max(int(one["n_rows_read"]) for one in passes),
        "n_rows_reused": min(int(one["n_rows_reused"]) for one in passes),
        "seconds": time.perf_counter() - started,
    }


def forget_demo_customer(settings: Settings, orders: Orders, is_shown: bool) -> JSONObject:
    """A customer asks to be deleted: the rows leave the counts and the model, and that is proved."""
    user = pq.ParquetFile(orders.train[0]).read_row_group(0, columns=[USER])[USER][0].as_py()
    where = f"{USER} = '{user}'"
    started = time.perf_counter()
    with Workspace(settings) as workspace, terminal_progress_bar(is_shown) as report:
        done = product.forget_rows(workspace, ForgetRequest(model=MODEL, where=where), report)
        seconds = time.perf_counter() - started
        version = done["versions"][0]["version"]
        product.set_alias(workspace, MODEL, ALIAS, version)
        for number in range(1, version):
            product.delete_version(workspace, MODEL, number)
    (proof,) = done["proofs"]
    of_proof = {"is_equal": proof["is_equal"], "n_rows_left": proof["n_rows"], "seconds": seconds}
    return {"where": where, "n_rows": done["n_rows"], "version": version} | of_proof


def query_demo_server(url: str, orders: Orders) -> JSONObject:
    """Rows without some columns, over HTTP: one with an interval, and many for their latency."""
    batch = pq.ParquetFile(orders.test).read_row_group(0).slice(0, N_REQUESTS)
    missing = {TARGET, *OFTEN_UNKNOWN}
    # As JSON has it: times are text.
    records = [
        {name: value if isinstance(value, str | int | float) else str(value) for name, value in record.items()}
        for record in batch.drop_columns(sorted(missing)).to_pylist()
    ]
    with httpx.Client(base_url=url, timeout=60) as client:
        path = f"/v1/models/{MODEL}/predict"
        answer = client.post(path, params={"interval": LEVEL}, json={"records": [CASE]}).raise_for_status().json()
        late = answer["classes"].index("yes")
        milliseconds = latencies_ms(client, MODEL, records)
    return {
        "case": CASE,
        "probability": answer["probabilities"][0][late],
        "interval": answer["intervals"][0][late],
        "level": LEVEL,
        "missing": sorted(missing - {TARGET}),
        "n_requests": len(milliseconds),
        "median_ms": statistics.median(milliseconds),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
    }


def latencies_ms(client: httpx.Client, model: str, records: Sequence[JSONObject]) -> list[float]:
    """Milliseconds of requests with one row each."""
    latencies = []
    for record in records:
        started = time.perf_counter()
        answer = client.post(f"/v1/models/{model}/predict", json={"records": [record]})
        latencies.append((time.perf_counter() - started) * 1000)
        answer.raise_for_status()
    return latencies


def bayes_optimal_losses(orders: Orders) -> dict[str, float]:
    """What no model can be expected to beat: the losses of the true probabilities, in expectation."""
    share = orders.late_shares
    return {
        "zero_one_loss": float(np.minimum(share, 1 - share).mean()),
        "rmse": float(np.sqrt((share * (1 - share)).mean())),
        "log_loss": float(-(share * np.log(share) + (1 - share) * np.log1p(-share)).mean()),
        "ece": 0.0,
    }


def draw_demo_pictures(settings: Settings, answers: Mapping[str, Floats], labels: Codes, output: Path) -> list[Path]:
    """The structure of kDB-2, and the reliability of all of them."""
    structure, diagram = output / "orders-structure.svg", output / "orders-reliability.svg"
    with Workspace(settings) as workspace:
        structure.write_bytes(product.draw_version_structure(workspace, MODEL))
    curves = [
        (name, reliability_diagram_points(p.max(axis=1), p.argmax(axis=1) == labels)) for name, p in answers.items()
    ]
    title = "Reliability on late parcels"
    pictures.draw_svg_picture(lambda axes: pictures.draw_reliability_on_axes(axes, curves), diagram, title, 6, 6)
    return [structure, diagram]


def _show(story: JSONObject) -> None:
    """The orders, one line for each thing that happened."""
    print_table(
        f"Late parcels: {story['n_train']:,} orders × {story['n_columns']} columns, {_mib(story['bytes_in_memory'])} in "
        f"memory; counts may take {story['memory']}",
        ["learner", "train", "processor", "peak", "error", "RMSE", "log loss", "ECE"],
        [
            [
                one["learner"],
                f"{one['wall_s']:.1f} s",
                f"{one['cpu_s']:.1f} s",
                _mib(one["peak_bytes"]),
                *_metrics(one["metrics"]),
            ]
            for one in story["models"]
        ]
        + [["the truth", None, None, None, *_metrics(story["least_losses"])]],
    )
    refresh, forget, requests = story["refresh"], story["forget"], story["requests"]
    verdict = "equals, bit for bit," if forget["is_equal"] else "DIFFERS from"
    low, high = requests["interval"]
    evidence = ", ".join(f"{name} {value}" for name, value in requests["case"].items())
    lines = [
        f"[bold]Refresh[/]: {refresh['n_rows_read']:,} orders came. Version {refresh['version']} took "
        f"{refresh['seconds']:.1f} s: it read the new file and reused the counts of {refresh['n_rows_reused']:,} orders.",
        f"[bold]Forget[/]: {forget['where']}, {forget['n_rows']:,} orders. Version {forget['version']} took "
        f"{forget['seconds']:.1f} s with its proof: it {verdict} the model that the remaining {forget['n_rows_left']:,} "
        "orders give. The versions that knew them are deleted.",
        f"[bold]Ask[/]: all we know is {evidence}. Late with probability {requests['probability']:.2f}; "
        f"{requests['level']:.0%} interval {low:.2f} to {high:.2f}.",
        f"[bold]Serve[/]: {requests['n_requests']} requests of one row without {', '.join(requests['missing'])}: median "
        f"{requests['median_ms']:.2f} ms, 99 % within {requests['p99_ms']:.2f} ms.",
    ]
    for line in lines:
        out.print(line, highlight=False)


def _metrics(metrics: JSONObject) -> Sequence[float]:
    return [round(metrics[name], 3) for name in METRICS]  # more decimals would not fit into 80 columns


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"
