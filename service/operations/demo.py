"""`fewpass demo`: learn from more rows than memory may hold, refresh, forget, serve, and show what came out."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from service.json_values import JSONObject
from service.operations import demo_small, demo_story
from service.operations.demo_data import write_real
from service.operations.demo_orders import write_orders
from service.operations.precompile import DEMO, compile_in_processes
from service.processes.local_server import local_server
from service.settings import Settings, available_threads
from service.terminal import COMPILING, err, out, show_json, show_table

MEMORY = "64MiB"


def run_demo(rows: int, output: Path, seed: int, json_output: bool) -> None:
    """Run the whole demo; everything it starts has ended when it returns.

    Parameters
    ----------
    rows : int
        Orders to learn from.
    output : Path
        Folder for the pictures and results.json.
    seed : int
        Of the orders, and of how the small tables are split.
    json_output : bool
        Print results.json instead of tables.
    """

    def say(text: str) -> None:
        if not json_output:
            err.print(f"[dim]{text}[/]", highlight=False)

    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fewpass-demo-") as directory:
        root = Path(directory)
        if not json_output:
            err.print(COMPILING)
        compile_in_processes(available_threads(Settings()), DEMO)  # so that the times below are those of training
        say(f"writing {rows:,} orders")
        orders = write_orders(root / "orders", rows, seed)
        settings = Settings(workspace=root / "workspace", memory=MEMORY, threads=1, job_workers=0, log_level="warning")
        story = demo_story.tell(settings, orders, say, not json_output)
        tables = write_real(root, seed)
        outcomes = [outcome for table in tables for outcome in demo_small.train_all(settings, table, json_output)]
        say("starting a server on a free loopback port")
        with local_server(settings) as server:
            story["requests"] = demo_story.ask(server.url, orders)
            demo_small.ask_over_http(server.url, tables, outcomes)
        written = [path for table in tables for path in demo_small.draw(settings, table, outcomes, output)]
    written.append(output / "results.json")
    results = {
        "orders": story,
        "tables": demo_small.results_of(tables, outcomes),
        "files": [str(path) for path in written],
        "seconds": time.perf_counter() - started,
    }
    written[-1].write_text(json.dumps(results, indent=2) + "\n")
    if json_output:
        show_json(results)
        return
    _show_story(story)
    demo_small.show(tables, outcomes)
    out.print("ECE: expected calibration error; by HTTP: median time of a request with one row.", highlight=False)
    out.print("Pictures and numbers: " + ", ".join(str(path) for path in written), soft_wrap=True, highlight=False)


def _show_story(story: JSONObject) -> None:
    """The orders, one line for each thing that happened."""
    show_table(
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
    given = ", ".join(f"{name} {value}" for name, value in requests["case"].items())
    lines = [
        f"[bold]Refresh[/]: {refresh['n_rows_read']:,} orders came. Version {refresh['version']} took "
        f"{refresh['seconds']:.1f} s: it read the new file and reused the counts of {refresh['n_rows_reused']:,} orders.",
        f"[bold]Forget[/]: {forget['where']}, {forget['n_rows']:,} orders. Version {forget['version']} took "
        f"{forget['seconds']:.1f} s with its proof: it {verdict} the model that the remaining {forget['n_rows_left']:,} "
        "orders give. The versions that knew them are deleted.",
        f"[bold]Ask[/]: all we know is {given}. Late with probability {requests['probability']:.2f}; "
        f"{requests['level']:.0%} interval {low:.2f} to {high:.2f}.",
        f"[bold]Serve[/]: {requests['n_requests']} requests of one row without {', '.join(requests['missing'])}: median "
        f"{requests['median_ms']:.2f} ms, 99 % within {requests['p99_ms']:.2f} ms.",
    ]
    for line in lines:
        out.print(line, highlight=False)


def _metrics(metrics: JSONObject) -> Sequence[float]:
    return [round(metrics[name], demo_small.SHOWN_DECIMALS) for name in demo_small.METRICS]


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"
