"""`fewpass serve | worker | demo | precompile`: the processes that stay, and what lets them start quickly."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.shared_options import JsonOption, WorkspaceOption, own_folder
from service.terminal import settings_of


def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="Port; 0 takes a free one.", show_default="8000")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Serving processes.", show_default="1")
    ] = None,
    job_workers: Annotated[
        int | None, typer.Option("--job-workers", min=0, help="Job worker processes.", show_default="1")
    ] = None,
    predict_only: Annotated[
        bool | None,
        typer.Option(
            "--predict-only/--no-predict-only",
            help="Without the control plane and jobs.",
            show_default="no-predict-only",
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: Annotated[bool, typer.Option("--json", help="Log JSON lines, also on a terminal.")] = False,
) -> None:
    """Serve predictions and the REST API, and run jobs in worker processes."""
    import os
    import sys

    from service.processes.supervisor import run_server

    is_for_people = sys.stderr.isatty() and "FEWPASS_LOG_FORMAT" not in os.environ
    run_server(
        settings_of(
            workspace,
            host=host,
            port=port,
            workers=workers,
            job_workers=job_workers,
            predict_only=predict_only,
            log_format="json" if json_output else "console" if is_for_people else None,
        )
    )


def worker(
    workspace: WorkspaceOption = None,
    parent: Annotated[int | None, typer.Option("--parent", hidden=True, help="Process that must stay alive.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Log JSON lines, whatever the environment says.")] = False,
) -> None:
    """Run jobs of a workspace, apart from serving."""
    from service.processes.supervisor import run_worker

    run_worker(settings_of(workspace, log_format="json" if json_output else None), parent)


def demo(
    rows: Annotated[int, typer.Option("--rows", min=10_000, help="Orders to learn from.")] = 500_000,
    output: Annotated[Path, typer.Option("--out", help="Folder for pictures and results.", callback=own_folder)] = Path(
        "demo-output"
    ),
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    json_output: JsonOption = False,
) -> None:
    """Learn from more rows than memory may hold, refresh, forget, serve, and show what came out."""
    from service.operations.demo import run_demo

    run_demo(rows, output, seed, json_output)


def precompile(
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Compile in so many at once.", show_default="all cores")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compile every kernel that trainings and requests run, so that none of them waits for the compiler."""
    from service.operations.precompile import compile_in_processes
    from service.settings import Settings, available_threads
    from service.terminal import COMPILING, err, out, show_json

    if not json_output:
        err.print(COMPILING)
    seconds = compile_in_processes(processes or available_threads(Settings()))
    if json_output:
        show_json({"seconds": seconds})
        return
    out.print(f"All kernels are compiled ({seconds:.0f} s).", highlight=False)
