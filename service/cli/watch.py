"""`fewpass drift | monitor | labels | alerts | webhooks | jobs`: is the data still what the model was trained on, what do served models show, and what is at work?"""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.padding import Padding
from typer import Argument, Option

from learners.errors import redact_uri_secrets
from service import product
from service.cli.shared_options import (
    ForceOption,
    JsonOption,
    OutputOption,
    Reference,
    Texts,
    UrisArgument,
    WorkspaceOption,
)
from service.product.inference.metric_words import largest_rate_change_words
from service.requests.json_values import JSONObject
from service.terminal_output import (
    EXIT_FAILED,
    command_line_settings,
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_json_document,
    print_json_or_table,
    print_json_or_text,
    print_table,
    progress_text,
    terminal_progress_bar,
)
from storage.monitoring.alert_records import AlertRecord

EXIT_DRIFT = 3
MOST_COLUMNS = 20
webhooks_app = typer.Typer(help="Send alerts to others.", no_args_is_help=True)


def drift_command(
    model: Reference,
    uris: UrisArgument,
    against: Annotated[
        Texts, Option("--against", help="Other files to compare with; may be repeated.", show_default="the training")
    ] = None,
    q: Annotated[float, Option("--q", help="Greatest rate of false discoveries of an alarm.", min=0, max=1)] = 0.01,
    nats: Annotated[float, Option("--nats", help="Least change of an alarm, as log loss a row.", min=0)] = 0.01,
    points: Annotated[float, Option("--points", help="Least change of a rate of an alarm.", min=0)] = 1.0,
    check: Annotated[bool, Option("--check", help=f"Exit with {EXIT_DRIFT} if there is an alarm.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare rows with what a model was trained on, in one pass: what has changed, and what the cause is."""
    from learners.monitoring.drift_tests import Limits

    limits = Limits(q, nats, points)
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        drift = product.file_drift_report(here, model, uris, against=against or (), limits=limits, report=report)
    if json_output:
        print_json_document(drift)
    else:
        show_drift(drift)
    if check and drift["is_drifting"]:
        raise typer.Exit(EXIT_DRIFT)


def show_drift(drift: JSONObject) -> None:
    """Causes first, then the columns with the largest effects."""
    rows, reference = drift["rows"], drift["reference"]
    for warning in drift.get("warnings", []):
        out.print(f"[yellow]warning[/]: {escape_rich_markup(warning)}", highlight=False)
    out.print(f"{rows['counted']:,} rows against {escape_rich_markup(reference['name'])} ({reference['rows']:,} rows)")
    if not drift["causes"]:
        out.print("[green]no drift[/]: no difference is both sure and large enough")
    for number, cause in enumerate(drift["causes"], 1):
        out.print(f"[bold]{number}.[/] {escape_rich_markup(cause['words'])}", highlight=False)
    shown = [
        [
            *(column[name] for name in ("column", "family_nats", "family_q", "psi", "js")),
            largest_rate_change_words(column),
        ]
        for column in drift["columns"][:MOST_COLUMNS]
    ]
    print_table(None, ["column", "change", "q", "PSI", "JS", "quality"], shown)
    if len(drift["columns"]) > MOST_COLUMNS:
        out.print(f"The {MOST_COLUMNS} largest of {len(drift['columns']):,} columns; --json tells all.")
    estimated = drift["estimated"]
    if estimated["accuracy"] is not None:
        out.print(
            f"estimated accuracy {estimated['accuracy']:.4f}, log loss {estimated['log_loss']:.4f}: {estimated['caveat']}"
        )


def monitor_command(
    model: Reference,
    window: Annotated[str, Option("--window", help="How long, such as 24h or 7d.")] = "24h",
    against: Annotated[str, Option("--against", help="training, window:7d, same-hour:4w or version:3.")] = "training",
    check: Annotated[bool, Option("--check", help=f"Exit with {EXIT_DRIFT} if there is an alarm.")] = False,
    forget: Annotated[
        Texts, Option("--forget", help="Forget the prediction of this key or id; may be repeated.")
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show what a served model was asked, what has changed, and what labels say."""
    with open_existing_workspace(workspace) as here:
        if forget:
            done = product.forget_predictions(here, model, forget)
            print_json_document(done) if json_output else out.print(
                f"{done['predictions']} predictions and {done['labels']} labels are forgotten, {done['subtracted']} rows "
                "are subtracted from the counts; a server that has yet to write some leaves them out"
            )
            return
        drift = product.monitoring_window_report(here, model, window=window, against=against)
    if json_output:
        print_json_document(drift)
    elif drift["is_drifting"] is None:
        out.print(escape_rich_markup(str(drift["why"])))
    else:
        show_drift(drift)
    if check and drift["is_drifting"]:
        raise typer.Exit(EXIT_DRIFT)


def labels_command(
    model: Reference,
    uris: UrisArgument,
    key: Annotated[str, Option("--key", help="The column of your keys, or of ids with --ids.")],
    label: Annotated[str, Option("--label", help="The column of the classes.")],
    ids: Annotated[bool, Option("--ids", help="The column holds the ids that predictions answered.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send labels of earlier predictions; sending them again changes nothing."""
    with open_existing_workspace(workspace) as here:
        done = product.add_prediction_labels(
            here, model, product.read_label_files(here, uris, key, label, "id" if ids else "key")
        )
    words = f"{done['accepted']:,} labels: {done['matched']:,} matched, {done['pending']:,} wait for a prediction"
    print_json_or_text(done, words, json_output)


def alerts_command(
    model: Annotated[str | None, Option("--model", help="Of one model.")] = None,
    is_open: Annotated[bool, Option("--open", help="Only those that are not over.")] = False,
    acknowledge: Annotated[
        Texts, Option("--acknowledge", help="Note that this alert was seen; may be repeated.")
    ] = None,
    mute: Annotated[Texts, Option("--mute", help="Send no more about this alert; may be repeated.")] = None,
    unmute: Annotated[Texts, Option("--unmute", help="Send about this alert again; may be repeated.")] = None,
    resolve: Annotated[Texts, Option("--resolve", help="Close this alert; may be repeated.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """List alerts, the newest first, after some of them were noted as seen, muted or resolved."""
    with open_existing_workspace(workspace) as here:
        for alert in acknowledge or ():
            product.acknowledge_alert(here, alert)
        for alert in mute or ():
            product.mute_alert(here, alert)
        for alert in unmute or ():
            product.mute_alert(here, alert, is_muted=False)
        for alert in resolve or ():
            product.resolve_alert(here, alert)
        alerts = product.list_alerts(here, model, is_open=True if is_open else None)
    rows = [
        [one["id"], f"{one['model']}@{one['version']}", one["fired_at"][:16], _state(one), one["words"]]
        for one in alerts
    ]
    print_json_or_table(alerts, json_output, ["id", "model", "fired", "state", "cause"], rows, "no alerts")


def _state(alert: AlertRecord) -> str:
    if alert["resolved_at"]:
        return f"resolved {alert['resolved_at'][:16]}"
    return ("seen" if alert["acknowledged_at"] else "open") + (", muted" if alert["is_muted"] else "")


@webhooks_app.command("list")
def list_webhooks(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List webhooks."""
    with open_existing_workspace(workspace) as here:
        webhooks = product.list_webhooks(here)
    rows = [[one["id"], one["url"], one["created_at"]] for one in webhooks]
    print_json_or_table(webhooks, json_output, ["id", "url", "created"], rows)


@webhooks_app.command("add")
def add_webhook(
    url: str,
    model: Annotated[Texts, Option("--model", help="May be repeated; all unless given.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send alerts to a URL; the secret is shown this once."""
    with open_existing_workspace(workspace) as here:
        webhook = product.create_webhook(here, url, model or [])
    print_json_document(webhook) if json_output else out.print(f"{webhook['id']} {webhook['secret']}", highlight=False)


@webhooks_app.command("test")
def test_webhook(webhook: str, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Send a test event."""
    with open_existing_workspace(workspace) as here:
        delivery = product.test_webhook(here, webhook)
    words = f"{delivery['status']} after {delivery['attempts']} attempts{': ' + delivery['error'] if delivery['error'] else ''}"
    print_json_or_text(delivery, words, json_output)


@webhooks_app.command("delete")
def delete_webhook(webhook: str, workspace: WorkspaceOption = None) -> None:
    """Send nothing there any more."""
    with open_existing_workspace(workspace) as here:
        product.delete_webhook(here, webhook)


jobs_app = typer.Typer(help="Submit, list, show, follow, cancel and retry jobs.", invoke_without_command=True)


JobId = Annotated[str, Argument(help="Id of the job.")]


Limit = Annotated[int, Option("--limit", min=1, max=500, help="Most jobs to list.")]


@jobs_app.callback(invoke_without_command=True)
def jobs_command(
    context: typer.Context, limit: Limit = 20, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """List the newest jobs, unless a subcommand is given."""
    if context.invoked_subcommand is None:
        list_jobs(limit, workspace, json_output)


@jobs_app.command("list")
def list_jobs(limit: Limit = 20, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the newest jobs."""
    with open_existing_workspace(workspace) as here:
        items = product.job_queue(here).list(limit=limit).items
    print_json_and_exit(items, json_output)
    # No table: at 80 columns it would break ids, which people copy.
    for job in items:
        out.print(f"[bold]{job.id}[/]  {job.kind}  {job.state}  {job.created_at:%Y-%m-%d %H:%M}", soft_wrap=True)
        if words := _words(job):
            out.print(Padding(escape_rich_markup(words), (0, 0, 0, 4)), highlight=False)
    if not items:
        out.print("[dim]no jobs yet[/]")


@jobs_app.command("submit")
def submit_job(
    job: Annotated[str, Argument(help="JSON of a job, or a file of it; as in POST /v1/jobs.")],
    priority: Annotated[str, Option("--priority", help="high, normal or low.")] = "normal",
    key: Annotated[str | None, Option("--key", help="Idempotency key: the same job again starts nothing new.")] = None,
    memory_limit: Annotated[
        str | None, Option("--memory-limit", help="Most memory it may use, such as 2GiB; beyond, it is ended.")
    ] = None,
    time_limit: Annotated[float | None, Option("--time-limit", help="Most seconds it may run.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Queue a job: train, refresh, evaluate, forget, query, score, impute or schema; a worker runs it."""
    from service.workspace import Workspace

    limits = {"memory_limit": memory_limit, "time_limit_s": time_limit}
    job_request = read_job_request(job) | {name: limit for name, limit in limits.items() if limit is not None}
    from service.requests.requests import SubmissionRequest

    request = build_request_or_usage_error(SubmissionRequest, {"job": job_request, "priority": priority})
    with Workspace(command_line_settings(workspace)) as here:
        submitted, _ = product.submit_job(here, request.job, key, is_remote=False, priority=request.priority)
    _show(submitted, json_output)


@jobs_app.command("show")
def show_job(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Show one job."""
    with open_existing_workspace(workspace) as here:
        job = product.job_queue(here).get(job_id)
    _show(job, json_output)


@jobs_app.command("watch")
def watch_job(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Follow a job to its end; the exit code says whether it succeeded."""
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        while not (job := product.job_queue(here).get(job_id)).is_finished:
            report(job.progress or {"step": job.state})
            time.sleep(0.2)
    _show(job, json_output)
    if job.state != "succeeded":
        raise typer.Exit(EXIT_FAILED)


@jobs_app.command("cancel")
def cancel_job(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Cancel a queued or running job."""
    with open_existing_workspace(workspace) as here:
        _show(product.job_queue(here).cancel(job_id), json_output)


@jobs_app.command("retry")
def retry_job(job_id: JobId, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Submit a failed or cancelled job again."""
    with open_existing_workspace(workspace) as here:
        _show(product.job_queue(here).retry(job_id), json_output)


@jobs_app.command("log")
def show_job_log(
    job_id: JobId,
    workspace: WorkspaceOption = None,
    json_output: Annotated[bool, Option("--json", help="Accepted for symmetry: logs are JSON lines.")] = False,
) -> None:
    """Print what the worker has logged of a job, a JSON object a line."""
    del json_output
    with open_existing_workspace(workspace) as here:
        typer.echo(product.read_job_log(here, job_id), nl=False)


@jobs_app.command("output")
def show_job_output(
    job_id: JobId,
    to: OutputOption,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Copy the rows that a job of kind score or impute has written."""
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
    """A job as JSON, or the file that holds it."""
    try:
        return dict(json.loads(text if text.lstrip().startswith("{") else Path(text).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise typer.BadParameter(
            f"{text[:80]!r} is neither JSON nor a file of it: {error}", param_hint="--job"
        ) from error


def build_request_or_usage_error(shape: Any, fields: JSONObject) -> Any:
    """A shape of what was given, or a usage error that names what does not fit."""
    from pydantic import ValidationError

    from service.requests.validation_messages import validation_messages_by_place

    try:
        return shape(**fields)
    except ValidationError as error:
        messages = (
            f"{'.'.join(map(str, place))}: {words}"
            for place, words in validation_messages_by_place(error.errors(), shape)
        )
        raise typer.BadParameter("; ".join(messages)) from error
