"""`fewpass demo`: learn from more rows than memory may hold, refresh, forget, serve, and show the results."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from learners.evaluation.metrics import evaluate
from learners.evaluation.peers import RawColumns
from learners.kernels.arrays import Floats
from learners.passes.sources.source import Source
from service import product
from service.operations.bench import peak_rss_bytes, run_in_fresh_process
from service.operations.demo_orders import TARGET, USER, Orders, write_orders
from service.operations.precompile import DEMO, precompile_in_processes
from service.processes.local_server import local_server
from service.product.inference.scoring import probabilities_and_true_classes
from service.requests.json_values import JSONObject
from service.requests.requests import ForgetRequest, TrainRequest
from service.settings import Settings, available_threads
from service.terminal_output import err, out, print_json_document, print_table, terminal_progress_bar
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
    """Run the demo into a folder with a picture and results.json, and print tables or that JSON; every process it
    started has ended on return.
    """

    def say(text: str) -> None:
        if not json_output:
            err.print(f"[dim]{text}[/]", highlight=False)

    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fewpass-demo-") as directory, ThreadPoolExecutor(3) as threads:
        root = Path(directory)
        settings = Settings(
            workspace=root / "workspace", memory=MEMORY, threads=1, job_workers=0, log_level="warning", warm_up=False
        )
        say(f"1 of 3: compiling kernels (once on a machine) while {rows:,} orders are written")
        compiled = threads.submit(precompile_in_processes, available_threads(Settings()), DEMO)
        orders = write_orders(root / "orders", rows, seed)
        compiled.result()  # so that the times below are those of training
        say("2 of 3: training kDB-2, auto and XGBoost side by side, each in a process of its own")
        models = train_demo_models(settings, orders, threads)
        picture = output / "orders-structure.svg"
        with Workspace(settings) as workspace:
            picture.write_bytes(product.draw_version_structure(workspace, MODEL))
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
        say(
            f"3 of 3: {orders.n_tomorrow:,} orders more; a customer asks to be deleted; a server on a free loopback port"
        )
        results["refresh"] = refresh_demo_model(settings, orders)
        results["forget"] = forget_demo_customer(settings, orders, not json_output)
        with local_server(settings) as server:
            results["requests"] = query_demo_server(server.url, orders)
    written = [picture, output / "results.json"]
    results |= {"files": [str(path) for path in written], "seconds": time.perf_counter() - started}
    written[-1].write_text(json.dumps(results, indent=2) + "\n")
    if json_output:
        print_json_document(results)
        return
    _show(results)
    files = ", ".join(str(path) for path in written)
    out.print(
        f"Picture and numbers: {files}. The demo took {results['seconds']:.0f} s.", soft_wrap=True, highlight=False
    )


class Cost(NamedTuple):
    """Cost of a training since the start of its process: wall and CPU seconds, and peak resident memory.

    `loaded_bytes` is the part of the peak used before the first row, by Python and libraries.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    loaded_bytes: int

    @classmethod
    def since(cls, started: float, loaded_bytes: int) -> Cost:
        """Return the cost up to now, for a process started at a `time.time` value."""
        return cls(time.time() - started, time.process_time(), peak_rss_bytes(), loaded_bytes)


def demo_train_request(orders: Orders) -> TrainRequest:
    """Return the training request of the shop, for the first week and every night after."""
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


def train_demo_models(settings: Settings, orders: Orders, threads: ThreadPoolExecutor) -> list[JSONObject]:
    """Train our models and XGBoost's on the same files, each in its own process with one thread; return their entries
    for results.json.
    """
    kdb = demo_train_request(orders)
    auto = TrainRequest(uris=kdb.uris, target=TARGET, learner="auto", model=AUTO_MODEL)
    files = [str(path) for path in orders.train]
    running = {
        "kDB-2": threads.submit(run_in_fresh_process, _trained, settings, kdb.model_dump(), time.time()),
        "auto": threads.submit(run_in_fresh_process, _trained, settings, auto.model_dump(), time.time()),
        "XGBoost": threads.submit(
            run_in_fresh_process, train_demo_xgboost, files, str(orders.test), TARGET, time.time()
        ),
    }
    done = {learner: future.result()[0] for learner, future in running.items()}
    costs = {"kDB-2": done["kDB-2"], "auto": done["auto"], "XGBoost": done["XGBoost"][0]}
    answers = {"XGBoost": done["XGBoost"][1]}
    with Workspace(settings) as workspace:
        for learner, request in (("kDB-2", kdb), ("auto", auto)):
            model = product.load_served_model(workspace, request.model).model
            answers[learner], labels = probabilities_and_true_classes(model, Source.open(str(orders.test)))
    return [
        {"learner": learner, **cost._asdict(), "metrics": vars(evaluate(answers[learner], labels))}
        for learner, cost in costs.items()
    ]


def _trained(settings: Settings, request: JSONObject, started: float) -> Cost:
    from learners.registry import recipes  # what a training loads before it reads

    recipes.learner(request["learner"], request["parameters"], request["target"])
    loaded = peak_rss_bytes()
    with Workspace(settings) as workspace:
        product.train_model_version(workspace, TrainRequest(**request))
    return Cost.since(started, loaded)


def train_demo_xgboost(files: Sequence[str], test: str, target: str, started: float) -> tuple[Cost, Floats]:
    """Train XGBoost on one thread with all rows in memory and texts as codes; return its cost and (n_test, 2) class
    probabilities.
    """
    import xgboost

    loaded = peak_rss_bytes()
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
    cost = Cost.since(started, loaded)
    p = booster.inplace_predict(columns.numbers_of(pq.read_table(test)).astype(np.float32)).astype(np.float64)
    return cost, np.stack([1 - p, p], axis=1)


def refresh_demo_model(settings: Settings, orders: Orders) -> JSONObject:
    """Refresh the model the next day: the new file joins the others, and only that file is read."""
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
    """Forget a customer: the rows are removed from the counts and the model, and the removal is proved."""
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
    """Predict rows with missing columns over HTTP: one with an interval, and many to measure latency."""
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
    """Return the latency of one-row requests in milliseconds."""
    latencies = []
    for record in records:
        started = time.perf_counter()
        answer = client.post(f"/v1/models/{model}/predict", json={"records": [record]})
        latencies.append((time.perf_counter() - started) * 1000)
        answer.raise_for_status()
    return latencies


def bayes_optimal_losses(orders: Orders) -> dict[str, float]:
    """Return the expected losses of the true probabilities, which no model can beat in expectation."""
    share = orders.late_shares
    return {
        "zero_one_loss": float(np.minimum(share, 1 - share).mean()),
        "rmse": float(np.sqrt((share * (1 - share)).mean())),
        "log_loss": float(-(share * np.log(share) + (1 - share) * np.log1p(-share)).mean()),
        "ece": 0.0,
    }


def _show(story: JSONObject) -> None:
    """Print the orders, and one line for each event of the demo."""
    print_table(
        f"Late parcels: {story['n_train']:,} orders × {story['n_columns']} columns, {_mib(story['bytes_in_memory'])} as a "
        f"table in memory; FEWPASS_MEMORY={story['memory']} bounds counts",
        ["learner", "train s", "CPU s", "peak", "loaded", "error", "RMSE", "log loss", "ECE"],
        [
            [
                one["learner"],
                f"{one['wall_s']:.1f}",
                f"{one['cpu_s']:.1f}",
                f"{one['peak_bytes'] / 2**20:.0f}",
                f"{one['loaded_bytes'] / 2**20:.0f}",
                *_metrics(one["metrics"]),
            ]
            for one in story["models"]
        ]
        + [["the truth", None, None, None, None, *_metrics(story["least_losses"])]],
    )
    refresh, forget, requests = story["refresh"], story["forget"], story["requests"]
    verdict = "equals, bit for bit," if forget["is_equal"] else "DIFFERS from"
    low, high = requests["interval"]
    evidence = ", ".join(f"{name} {value}" for name, value in requests["case"].items())
    lines = [
        "[bold]Memory[/]: FEWPASS_MEMORY bounds what is counted, however many rows there are. The peak, in MiB, is that of the whole process: "
        "Python and libraries, loaded before the first row, then counts, batches of rows being read, and the model. "
        "XGBoost holds all rows.",
        f"[bold]Refresh[/]: {refresh['n_rows_read']:,} orders came. Version {refresh['version']} took "
        f"{refresh['seconds']:.1f} s: it read the new file and reused the counts of {refresh['n_rows_reused']:,} orders.",
        f"[bold]Forget[/]: {forget['where']}, {forget['n_rows']:,} orders. Version {forget['version']} took "
        f"{forget['seconds']:.1f} s with its proof: it {verdict} the model of the remaining {forget['n_rows_left']:,} "
        "orders. The versions that contained the forgotten ones are deleted.",
        f"[bold]Ask[/]: all we know is {evidence}. Late with probability {requests['probability']:.2f}; "
        f"by the sampling error of the rows {low:.2f} to {high:.2f}.",
        f"[bold]Serve[/]: {requests['n_requests']} requests of one row without {', '.join(requests['missing'])}: median "
        f"{requests['median_ms']:.2f} ms, 99 % within {requests['p99_ms']:.2f} ms.",
    ]
    for line in lines:
        out.print(line, highlight=False)


def _metrics(metrics: JSONObject) -> Sequence[float]:
    return [round(metrics[name], 3) for name in METRICS]  # more decimals would not fit into 80 columns


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"
