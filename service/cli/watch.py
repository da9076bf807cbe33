"""`fewpass drift | monitor | labels | alerts | webhooks`: drift of data from the training data, and monitoring of
served models.
"""

from typing import Annotated, get_args

import typer
from typer import Option

from learners.wording import count_with_noun
from service import product
from service.cli.shared_options import (
    ColumnsOption,
    JsonOption,
    Reference,
    Texts,
    UrisArgument,
    WorkspaceOption,
    list_without_subcommand,
    read_columns_option,
)
from service.product.inference.metric_words import largest_rate_change_words
from service.requests.event_kinds import EventKind
from service.requests.json_values import JSONObject
from service.terminal_output import (
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_document,
    print_json_or_table,
    print_json_or_text,
    print_table,
    terminal_progress_bar,
)
from storage.monitoring.alert_records import AlertRecord

EXIT_DRIFT = 3
MOST_COLUMNS = 20
webhooks_app = typer.Typer(help="Send alerts and events to URLs.", invoke_without_command=True)


def drift_command(
    model: Reference,
    uris: UrisArgument,
    against: Annotated[
        Texts, Option("--against", help="Other files to compare with; may be repeated.", show_default="the training")
    ] = None,
    q: Annotated[float, Option("--q", help="False discovery rate of alarms.", min=0, max=1)] = 0.01,
    nats: Annotated[
        float, Option("--nats", help="Smallest change that raises an alarm, in nats of log loss per row.", min=0)
    ] = 0.01,
    points: Annotated[
        float, Option("--points", help="Smallest change of a rate that raises an alarm, in percentage points.", min=0)
    ] = 1.0,
    check: Annotated[bool, Option("--check", help=f"Exit with {EXIT_DRIFT} if there is an alarm.")] = False,
    columns: ColumnsOption = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare rows with the training data of a model: what changed, and the likely causes. Classes count if the rows have them."""
    from learners.monitoring.drift_findings import Limits

    limits = Limits(q, nats, points)
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        known = read_columns_option(columns)
        drift = product.file_drift_report(
            here, model, uris, against=against or (), limits=limits, report=report, columns=known
        )
    if json_output:
        print_json_document(drift)
    else:
        show_drift(drift)
    if check and drift["is_drifting"]:
        raise typer.Exit(EXIT_DRIFT)


def show_drift(drift: JSONObject) -> None:
    """Print a drift report: causes first, then the columns with the largest effects."""
    rows, reference = drift["rows"], drift["reference"]
    for warning in drift.get("warnings", []):
        out.print(f"[yellow]warning[/]: {escape_rich_markup(warning)}", highlight=False)
    out.print(f"{rows['counted']:,} rows against {escape_rich_markup(reference['name'])} ({reference['rows']:,} rows)")
    if drift["is_drifting"] is None:
        out.print(escape_rich_markup(drift["why"]), highlight=False)
    elif not drift["causes"]:
        out.print("[green]no drift[/]: no difference is both significant and large enough")
    for number, cause in enumerate(drift["causes"], 1):
        out.print(f"[bold]{number}.[/] {escape_rich_markup(cause['words'])}", highlight=False)
    if "note" in drift:
        out.print(f"[yellow]{escape_rich_markup(drift['note'])}[/] (--against)", highlight=False)
    shown = [
        [
            *(column[name] for name in ("column", "family_nats", "family_q", "psi", "js")),
            largest_rate_change_words(column),
        ]
        for column in drift["columns"][:MOST_COLUMNS]
    ]
    print_table(None, ["column", "change", "q", "PSI", "JS", "quality"], shown)
    if len(drift["columns"]) > MOST_COLUMNS:
        out.print(f"The {MOST_COLUMNS} largest of {len(drift['columns']):,} columns; --json shows all.")
    estimated = drift["estimated"]
    if estimated["accuracy"] is not None:
        out.print(
            f"estimated accuracy {estimated['accuracy']:.4f}, log loss {estimated['log_loss']:.4f}: {estimated['caveat']}"
        )


def monitor_command(
    model: Reference,
    window: Annotated[str, Option("--window", help="Length of the window, such as 24h or 7d.")] = "24h",
    against: Annotated[str, Option("--against", help="training, window:7d, same-hour:4w or version:3.")] = "training",
    check: Annotated[bool, Option("--check", help=f"Exit with {EXIT_DRIFT} if there is an alarm.")] = False,
    forget: Annotated[
        Texts, Option("--forget", help="Forget the prediction of this key or id; may be repeated.")
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the served rows of a model, how they changed, and its accuracy on labelled predictions."""
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
    key: Annotated[str, Option("--key", help="Column with your keys, or with prediction ids if --ids is set.")],
    label: Annotated[str, Option("--label", help="Column with the classes.")],
    ids: Annotated[bool, Option("--ids", help="The key column holds prediction ids.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Add labels of earlier predictions. Sending them again changes nothing."""
    with open_existing_workspace(workspace) as here:
        done = product.add_prediction_labels(
            here, model, product.read_label_files(here, uris, key, label, "id" if ids else "key")
        )
    words = f"{done['accepted']:,} labels: {done['matched']:,} matched, {done['pending']:,} wait for a prediction"
    print_json_or_text(done, words, json_output)


def alerts_command(
    model: Annotated[str | None, Option("--model", help="Only alerts of this model.")] = None,
    is_open: Annotated[bool, Option("--open", help="Only open alerts.")] = False,
    acknowledge: Annotated[Texts, Option("--acknowledge", help="Mark this alert as seen; may be repeated.")] = None,
    mute: Annotated[
        Texts, Option("--mute", help="Send webhooks nothing more about this alert; may be repeated.")
    ] = None,
    unmute: Annotated[Texts, Option("--unmute", help="Send webhooks this alert again; may be repeated.")] = None,
    resolve: Annotated[Texts, Option("--resolve", help="Close this alert; may be repeated.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the alerts, newest first, after acknowledging, muting or resolving those named."""
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
def list_webhooks_command(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the webhooks."""
    with open_existing_workspace(workspace) as here:
        webhooks = product.list_webhooks(here)
    rows = [
        [one["id"], one["url"], ", ".join(one["models"]) or "all", ", ".join(one["events"]), one["created_at"]]
        for one in webhooks
    ]
    print_json_or_table(webhooks, json_output, ["id", "url", "models", "events", "created"], rows)


list_without_subcommand(webhooks_app, list_webhooks_command)


@webhooks_app.command("add")
def add_webhook_command(
    url: str,
    model: Annotated[
        Texts, Option("--model", help="Send only this model's; may be repeated. By default all models.")
    ] = None,
    event: Annotated[
        Texts, Option("--event", help=f"{', '.join(get_args(EventKind))}; may be repeated. By default alert alone.")
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send alerts and events to a URL; the secret is shown only now."""
    with open_existing_workspace(workspace) as here:
        webhook = product.create_webhook(here, url, model or [], events=event or ())
    print_json_document(webhook) if json_output else out.print(f"{webhook['id']} {webhook['secret']}", highlight=False)


@webhooks_app.command("test")
def test_webhook_command(webhook: str, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Send a test event to a webhook."""
    with open_existing_workspace(workspace) as here:
        delivery = product.test_webhook(here, webhook)
    attempts = count_with_noun(delivery["attempts"], "attempt")
    if delivery["error"] is None:
        print_json_or_text(delivery, f"The receiver answered {delivery['status']} after {attempts}.", json_output)
        return
    print_json_or_text(delivery, f"Not delivered after {attempts}: {delivery['error']}", json_output)
    raise typer.Exit(1)


@webhooks_app.command("delete")
def delete_webhook_command(webhook: str, workspace: WorkspaceOption = None) -> None:
    """Delete a webhook."""
    with open_existing_workspace(workspace) as here:
        product.delete_webhook(here, webhook)
