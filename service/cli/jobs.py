"""`fewpass jobs`: running and finished jobs."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.padding import Padding
from typer import Argument, Option

from learners.errors import redact_uri_secrets, subject_and_reason
from service import product
from service.cli.shared_options import ForceOption, JsonOption, OutputOption, WorkspaceOption
from service.requests.json_values import JSONObject
from service.terminal_output import (
    EXIT_FAILED,
    command_line_settings,
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_json_document,
    print_json_or_text,
    progress_text,
    terminal_progress_bar,
)

app = typer.Typer(help="Submit, list, show, follow, cancel and retry jobs.", invoke_without_command=True)
JobId = Annotated[str, Argument(help="Id of the job.")]
Limit = Annotated[int, Option("--limit", min=1, max=500, help="Maximum number of jobs to list.")]


@app.callback(invoke_without_command=True)
def jobs_command(
    context: typer.Context, limit: Limit = 20, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """List the newest jobs, unless a subcommand is given."""
    if context.invoked_subcommand is None:
        list_jobs_command(limit, workspace, json_output)


@app.command("list")
def list_jobs_command(limit: Limit = 20, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the newest jobs."""
    with open_existing_workspace(workspace) as here:
        items = product.job_queue(here).list(limit=limit).items
    print_json_and_exit(items, json_output)
    # No table: at 80 columns it would break ids, which people copy.
    for job in items:
        out.print(f"[bold]{job.id}[/]  {job.kind}  {job.state}  {job.created_at:%Y-%m-%d %H:%M} UTC", soft_wrap=True)
        if words := _words(job):
            out.print(Padding(escape_rich_markup(words), (0, 0, 0, 4)), highlight=False)
    if not items:
        out.print("[dim]no jobs yet[/]")


@app.command("submit")
def submit_job_command(
    job: Annotated[str, Argument(help="A job as JSON or a JSON file, as in POST /v1/jobs.")],
    priority: Annotated[str, Option("--priority", help="high, normal or low.")] = "normal",
    key: Annotated[
        str | None, Option("--key", help="Idempotency key: submitting the same job again starts nothing new.")
    ] = None,
    memory_limit: Annotated[
        str | None, Option("--memory-limit", help="Memory limit, such as 2GiB; the job is ended above it.")
    ] = None,
    time_limit: Annotated[float | None, Option("--time-limit", help="Time limit in seconds.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Queue a job that a worker runs: train, refresh, evaluate, forget, query, score, impute or schema."""
    from service.workspace import Workspace

    limits = {"memory_limit": memory_limit, "time_limit_s": time_limit}
    job_request = read_job_request(job) | {name: limit for name, limit in limits.items() if limit is not None}
    from service.requests.requests import SubmissionRequest

    request = build_request_or_usage_error(SubmissionRequest, {"job": job_request, "priority": priority})
    with Workspace(command_line_settings(workspace)) as here:
        submitted, _ = product.submit_job(here, request.job, key, is_remote=False, priority=request.priority)
    _show(submitted, json_output)


@app.command("show")
def show_job_command(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Show one job."""
    with open_existing_workspace(workspace) as here:
        job = product.job_queue(here).get(job_id)
    _show(job, json_output)


@app.command("watch")
def watch_job_command(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Follow a job until it ends. The exit code says whether it succeeded."""
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        while not (job := product.job_queue(here).get(job_id)).is_finished:
            report(job.progress or {"step": job.state})
            time.sleep(0.2)
    _show(job, json_output)
    if job.state != "succeeded":
        raise typer.Exit(EXIT_FAILED)


@app.command("cancel")
def cancel_job_command(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Cancel a queued or running job."""
    with open_existing_workspace(workspace) as here:
        _show(product.cancel_job(here, job_id), json_output)


@app.command("retry")
def retry_job_command(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Submit a failed or cancelled job again."""
    with open_existing_workspace(workspace) as here:
        _show(product.retry_job(here, job_id), json_output)


@app.command("log")
def show_job_log_command(
    job_id: JobId,
    workspace: WorkspaceOption = None,
    json_output: Annotated[
        bool, Option("--json", help="Accepted for consistency: logs are always JSON lines.")
    ] = False,
) -> None:
    """Print the log of a job as JSON lines."""
    del json_output
    with open_existing_workspace(workspace) as here:
        typer.echo(product.read_job_log(here, job_id), nl=False)


@app.command("output")
def show_job_output_command(
    job_id: JobId,
    to: OutputOption,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Copy the rows written by a score or impute job."""
    with open_existing_workspace(workspace) as here:
        product.write_job_output(here, job_id, to, replace=force)
    print_json_or_text(
        {"out": redact_uri_secrets(to)}, f"[bold]{escape_rich_markup(redact_uri_secrets(to))}[/]", json_output
    )


def _show(job: Any, json_output: bool) -> None:
    if json_output:
        print_json_document(job)
        return
    out.print(f"[bold]{job.id}[/] {job.kind}: {job.state}")
    if words := _words(job):
        out.print(escape_rich_markup(words))


def _words(job: Any) -> str:
    if job.error is not None:
        return str(job.error.get("detail", ""))
    if job.result is not None and "promotion" in job.result:
        return str(job.result["promotion"]["reason"])
    if job.result is not None:
        facts = {name: value for name, value in job.result.items() if name != "sha256" and isinstance(value, str | int)}
        return ", ".join(f"{name} {value}" for name, value in facts.items())
    return progress_text(job.progress) if job.progress else ""


def read_job_request(text: str) -> JSONObject:
    """Parse a job from JSON, or from the file that holds it."""
    try:
        return dict(json.loads(text if text.lstrip().startswith("{") else Path(text).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise typer.BadParameter(
            f"{text[:80]!r} is neither JSON nor a JSON file: {error}", param_hint="--job"
        ) from error


def build_request_or_usage_error(shape: Any, fields: JSONObject) -> Any:
    """Build a request from its fields; a validation error becomes a usage error that names the wrong field."""
    from pydantic import ValidationError

    from service.requests.validation_messages import validation_messages_by_place

    try:
        return shape(**fields)
    except ValidationError as error:
        messages = (
            subject_and_reason(".".join(map(str, place)), words)
            for place, words in validation_messages_by_place(error.errors(), shape)
        )
        raise typer.BadParameter("; ".join(messages)) from error
