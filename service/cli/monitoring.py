"""`fewpass drift | monitor | labels | alerts | webhooks`: is the data still what the model was trained on, and what do served models show?"""

from typing import Annotated

import typer

from service import product
from service.cli.shared_options import JsonOption, Reference, UrisArgument, WorkspaceOption
from service.requests.json_values import JSONObject
from service.terminal import escape, opened, out, progress_bar, say, show_json, show_list, show_table
from storage.monitoring.alert_records import AlertRecord

EXIT_DRIFT = 3
MOST_COLUMNS = 20
app = typer.Typer(help="Send alerts to others.", no_args_is_help=True)


def drift(
    model: Reference,
    uris: UrisArgument,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="Other files to compare with; may be repeated.", show_default="the training"),
    ] = None,
    q: Annotated[
        float, typer.Option("--q", help="Greatest rate of false discoveries of an alarm.", min=0, max=1)
    ] = 0.01,
    nats: Annotated[float, typer.Option("--nats", help="Least change of an alarm, as log loss a row.", min=0)] = 0.01,
    points: Annotated[float, typer.Option("--points", help="Least change of a rate of an alarm.", min=0)] = 1.0,
    check: Annotated[bool, typer.Option("--check", help=f"Exit with {EXIT_DRIFT} if there is an alarm.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare rows with what a model was trained on, in one pass: what has changed, and what the cause is."""
    from learners.monitoring.drift_tests import Limits

    limits = Limits(q, nats, points)
    with opened(workspace) as here, progress_bar(not json_output) as report:
        found = product.drift(here, model, uris, against=against or (), limits=limits, report=report)
    if json_output:
        show_json(found)
    else:
        show_drift(found)
    if check and found["is_drifting"]:
        raise typer.Exit(EXIT_DRIFT)


def show_drift(found: JSONObject) -> None:
    """Causes first, then the columns with the largest effects."""
    rows, reference = found["rows"], found["reference"]
    for warning in found.get("warnings", []):
        out.print(f"[yellow]warning[/]: {escape(warning)}", highlight=False)
    out.print(f"{rows['counted']:,} rows against {escape(reference['name'])} ({reference['rows']:,} rows)")
    if not found["causes"]:
        out.print("[green]no drift[/]: no difference is both sure and large enough")
    for number, cause in enumerate(found["causes"], 1):
        out.print(f"[bold]{number}.[/] {escape(cause['words'])}", highlight=False)
    shown = [
        [column["column"], column["family_nats"], column["family_q"], column["psi"], column["js"], _worst(column)]
        for column in found["columns"][:MOST_COLUMNS]
    ]
    show_table(None, ["column", "change", "q", "PSI", "JS", "quality"], shown)
    if len(found["columns"]) > MOST_COLUMNS:
        out.print(f"The {MOST_COLUMNS} largest of {len(found['columns']):,} columns; --json tells all.")
    estimated = found["estimated"]
    if estimated["accuracy"] is not None:
        out.print(
            f"estimated accuracy {estimated['accuracy']:.4f}, log loss {estimated['log_loss']:.4f}: {estimated['caveat']}"
        )


def _worst(column: JSONObject) -> str:
    """The rate that has changed most, in points."""
    changed = [(kind, rate["points"]) for kind, rate in column["rates"].items() if rate["points"]]
    if not changed:
        return ""
    kind, points = max(changed, key=lambda one: abs(one[1]))
    return f"{kind} {points:+.2g}"


def monitor(
    model: Reference,
    window: Annotated[str, typer.Option("--window", help="How long, such as 24h or 7d.")] = "24h",
    against: Annotated[
        str, typer.Option("--against", help="training, window:7d, same-hour:4w or version:3.")
    ] = "training",
    check: Annotated[bool, typer.Option("--check", help=f"Exit with {EXIT_DRIFT} if there is an alarm.")] = False,
    forget: Annotated[
        list[str] | None, typer.Option("--forget", help="Forget the prediction of this key or id; may be repeated.")
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show what a served model was asked, what has changed, and what labels say."""
    with opened(workspace) as here:
        if forget:
            done = product.forget_predictions(here, model, forget)
            show_json(done) if json_output else out.print(
                f"{done['predictions']} predictions and {done['labels']} labels are forgotten, {done['subtracted']} rows "
                "are subtracted from the counts"
            )
            return
        found = product.monitor(here, model, window=window, against=against)
    if json_output:
        show_json(found)
    elif found["is_drifting"] is None:
        out.print(escape(str(found["why"])))
    else:
        show_drift(found)
    if check and found["is_drifting"]:
        raise typer.Exit(EXIT_DRIFT)


def labels(
    model: Reference,
    uris: UrisArgument,
    key: Annotated[str, typer.Option("--key", help="The column of your keys, or of ids with --ids.")],
    label: Annotated[str, typer.Option("--label", help="The column of the classes.")],
    ids: Annotated[bool, typer.Option("--ids", help="The column holds the ids that predictions answered.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send labels of earlier predictions; sending them again changes nothing."""
    with opened(workspace) as here:
        done = product.add_labels(here, model, product.labels_of_files(here, uris, key, label, "id" if ids else "key"))
    words = f"{done['accepted']:,} labels: {done['matched']:,} matched, {done['pending']:,} wait for a prediction"
    say(done, words, json_output)


def alerts(
    model: Annotated[str | None, typer.Option("--model", help="Of one model.")] = None,
    is_open: Annotated[bool, typer.Option("--open", help="Only those that are not over.")] = False,
    acknowledge: Annotated[
        list[str] | None, typer.Option("--acknowledge", help="Note that this alert was seen; may be repeated.")
    ] = None,
    mute: Annotated[
        list[str] | None, typer.Option("--mute", help="Send no more about this alert; may be repeated.")
    ] = None,
    unmute: Annotated[
        list[str] | None, typer.Option("--unmute", help="Send about this alert again; may be repeated.")
    ] = None,
    resolve: Annotated[list[str] | None, typer.Option("--resolve", help="Close this alert; may be repeated.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """List alerts, the newest first, after some of them were noted as seen, muted or resolved."""
    with opened(workspace) as here:
        for alert in acknowledge or ():
            product.acknowledge_alert(here, alert)
        for alert in mute or ():
            product.mute_alert(here, alert)
        for alert in unmute or ():
            product.mute_alert(here, alert, is_muted=False)
        for alert in resolve or ():
            product.resolve_alert(here, alert)
        found = product.list_alerts(here, model, is_open=True if is_open else None)
    rows = [
        [one["id"], f"{one['model']}@{one['version']}", one["fired_at"][:16], _state(one), one["words"]]
        for one in found
    ]
    show_list(found, json_output, ["id", "model", "fired", "state", "cause"], rows, "no alerts")


def _state(alert: AlertRecord) -> str:
    if alert["resolved_at"]:
        return f"resolved {alert['resolved_at'][:16]}"
    return ("seen" if alert["acknowledged_at"] else "open") + (", muted" if alert["is_muted"] else "")


@app.command("list")
def list_all(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List webhooks."""
    with opened(workspace) as here:
        found = product.list_webhooks(here)
    rows = [[one["id"], one["url"], one["created_at"]] for one in found]
    show_list(found, json_output, ["id", "url", "created"], rows)


@app.command()
def add(
    url: str,
    model: Annotated[list[str] | None, typer.Option("--model", help="May be repeated; all unless given.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send alerts to a URL; the secret is shown this once."""
    with opened(workspace) as here:
        webhook = product.create_webhook(here, url, model or [])
    show_json(webhook) if json_output else out.print(f"{webhook['id']} {webhook['secret']}", highlight=False)


@app.command()
def test(webhook: str, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Send a test event."""
    with opened(workspace) as here:
        delivery = product.test_webhook(here, webhook)
    words = f"{delivery['status']} after {delivery['attempts']} attempts{': ' + delivery['error'] if delivery['error'] else ''}"
    say(delivery, words, json_output)


@app.command()
def delete(webhook: str, workspace: WorkspaceOption = None) -> None:
    """Send nothing there any more."""
    with opened(workspace) as here:
        product.delete_webhook(here, webhook)
