"""`fewpass schedules`: jobs of a workspace that are submitted again and again."""

import json
from typing import Annotated, Any

import typer

from service import product
from service.cli.jobs import checked, read_request
from service.cli.shared_options import JsonOption, WorkspaceOption
from service.requests.json_values import JSONObject
from service.terminal import escape, opened, out, say, settings_of, show_json, show_list, show_table, text_of

app = typer.Typer(help="Create, list, change, pause and run schedules.", invoke_without_command=True)
Name = Annotated[str, typer.Argument(help="Name of the schedule.")]
CronOption = typer.Option("--cron", help="Minute, hour, day, month, weekday, such as '30 2 * * mon-fri'; or @daily.")
ZoneOption = typer.Option("--timezone", help="Such as Europe/Berlin.", show_default="UTC")
MissedOption = typer.Option("--missed", help="catch_up or skip.", show_default="catch_up")
JobOption = typer.Option("--job", help="JSON of a job, or a file of it; as in POST /v1/jobs.")


@app.callback(invoke_without_command=True)
def schedules(context: typer.Context, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the schedules, unless a subcommand is given."""
    if context.invoked_subcommand is None:
        list_all(workspace, json_output)


@app.command("list")
def list_all(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the schedules, each with its next time and its newest run."""
    with opened(workspace) as here:
        items = product.list_schedules(here, 1000).items
    rows = []
    for each in items:
        run = each.last_run
        last = (None, None) if run is None else (f"{text_of(run.due_at)} {run.outcome}", run.job_id)
        rows.append([each.name, each.cron, each.timezone, each.job["kind"], each.next_due_at or "paused", *last])
    columns = ["schedule", "cron", "zone", "job", "next (UTC)", "last run", "its job"]
    show_list(items, json_output, columns, rows, "no schedules yet: fewpass schedules create")


@app.command()
def create(
    name: Name,
    cron: Annotated[str, CronOption],
    job: Annotated[str, JobOption],
    timezone: Annotated[str, ZoneOption] = "UTC",
    missed: Annotated[str, MissedOption] = "catch_up",
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create a schedule; a worker must run for it to do something."""
    from service.requests.requests import ScheduleRequest
    from service.workspace import Workspace

    given = {"name": name, "cron": cron, "timezone": timezone, "missed": missed, "job": read_request(job)}
    with Workspace(settings_of(workspace)) as here:
        _show(product.create_schedule(here, checked(ScheduleRequest, given)), json_output)


@app.command()
def change(
    name: Name,
    cron: Annotated[str | None, CronOption] = None,
    job: Annotated[str | None, JobOption] = None,
    timezone: Annotated[str | None, ZoneOption] = None,
    missed: Annotated[str | None, MissedOption] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Change a schedule; what is not given stays."""
    from service.requests.requests import ScheduleChange

    given: JSONObject = {"cron": cron, "timezone": timezone, "missed": missed}
    given["job"] = None if job is None else read_request(job)
    with opened(workspace) as here:
        _show(product.change_schedule(here, name, checked(ScheduleChange, given)), json_output)


@app.command()
def show(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Show a schedule and its newest runs."""
    with opened(workspace) as here:
        schedule, runs = product.get_schedule(here, name), product.list_schedule_runs(here, name, 20).items
    if json_output:
        show_json(vars(schedule) | {"runs": runs})
        return
    _show(schedule, False)
    out.print(escape(json.dumps(dict(schedule.job))), soft_wrap=True)
    show_table(
        "newest runs",
        ["due (UTC)", "outcome", "job", "reason"],
        [[run.due_at, run.outcome, run.job_id, run.reason] for run in runs],
        empty="it was not due yet",
    )


@app.command()
def pause(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Stop a schedule from being due; a job that is running goes on."""
    with opened(workspace) as here:
        _show(product.pause_schedule(here, name), json_output)


@app.command()
def resume(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Let a schedule be due again from now on."""
    with opened(workspace) as here:
        _show(product.resume_schedule(here, name), json_output)


@app.command()
def run(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Submit the job of a schedule now."""
    with opened(workspace) as here:
        job = product.run_schedule(here, name)
    say(job, f"{job.id}: {job.state}; follow it with `fewpass jobs watch {job.id}`", json_output)


@app.command()
def delete(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Delete a schedule; its jobs and models stay."""
    with opened(workspace) as here:
        product.delete_schedule(here, name)
    say({"name": name, "deleted": True}, f"deleted {name}", json_output)


def _show(schedule: Any, json_output: bool) -> None:
    if json_output:
        show_json(schedule)
        return
    due = "paused" if schedule.next_due_at is None else f"next {schedule.next_due_at:%Y-%m-%d %H:%M} UTC"
    out.print(f"[bold]{schedule.name}[/]: {escape(schedule.cron)} {schedule.timezone}, {schedule.missed}, {due}")
