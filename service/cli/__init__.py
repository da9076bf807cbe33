"""The command line, `fewpass`. Each command calls one function of the product and prints the result."""

import os
import signal
import sys
from typing import Annotated, Any

from service.startup import end_without_teardown, relax_gc_for_startup, restore_gc_after_startup, start_no_blas_threads

relax_gc_for_startup()  # before most is imported
start_no_blas_threads()

import typer  # noqa: E402
from pydantic import ValidationError  # noqa: E402
from typer.core import TyperGroup  # noqa: E402

from service.cli import (  # noqa: E402
    ask,
    audit,
    evaluation,
    exports,
    jobs,
    keys,
    learn,
    models,
    operate,
    receipts,
    schedules,
    watch,
)
from service.terminal_output import CommandProcess, err, print_error  # noqa: E402
from service.version import VERSION  # noqa: E402

restore_gc_after_startup()


class Commands(TyperGroup):
    """A command group that reports wrong options in fewpass's own words."""

    def invoke(self, ctx: Any) -> Any:
        """Run the named command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            words = "No version was added; the same command starts again." if ctx.invoked_subcommand == "train" else ""
            err.print(f"Interrupted. {words}".rstrip())
            raise typer.Exit(128 + signal.SIGINT) from None
        except typer.BadParameter as error:
            findings = error.__cause__.errors() if isinstance(error.__cause__, ValidationError) else []
            if findings and error.message == findings[0]["msg"]:  # else we have told it ourselves
                from service.requests.validation_messages import validation_message

                error.message = validation_message(findings[0])
            raise


class CommandLine(typer.Typer):
    """Typer application whose failures are one clear line and an exit code, never a traceback (unless FEWPASS_DEBUG is
    set).
    """

    @end_without_teardown()
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line and exit."""
        # As an exception, so that drafts are removed and servers that were started are ended.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        if sys.argv[1:2] not in (["serve"], ["worker"], ["demo"]):  # which last
            CommandProcess.begin()
        try:
            return super().__call__(*args, **kwargs)
        except BrokenPipeError:  # `fewpass models | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except Exception as error:
            if os.environ.get("FEWPASS_DEBUG"):
                raise
            sys.exit(print_error(error, as_json="--json" in sys.argv))


app = CommandLine(
    name="fewpass",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn probabilistic models from tables larger than memory, in a few passes, and serve them.",
)
# In the order in which `fewpass --help` lists them.
app.command("train", rich_help_panel="Learn")(learn.train_command)
app.command("schema", rich_help_panel="Learn")(learn.schema_command)
app.command("compare", rich_help_panel="Learn")(evaluation.compare_command)
app.command("evaluate", rich_help_panel="Learn")(learn.evaluate_command)
app.command("report", rich_help_panel="Learn")(exports.report_command)
app.command("forget", rich_help_panel="Learn")(learn.forget_command)
app.add_typer(models.app, name="models", rich_help_panel="Learn")
app.command("query", rich_help_panel="Ask")(ask.query_command)
app.command("predict", rich_help_panel="Ask")(ask.predict_command)
app.command("score", rich_help_panel="Ask")(ask.score_command)
app.command("impute", rich_help_panel="Ask")(ask.impute_command)
app.command("drift", rich_help_panel="Watch")(watch.drift_command)
app.command("monitor", rich_help_panel="Watch")(watch.monitor_command)
app.command("labels", rich_help_panel="Watch")(watch.labels_command)
app.command("alerts", rich_help_panel="Watch")(watch.alerts_command)
app.add_typer(jobs.app, name="jobs", rich_help_panel="Watch")
app.add_typer(watch.webhooks_app, name="webhooks", rich_help_panel="Watch")
app.command("serve", rich_help_panel="Operate")(operate.serve_command)
app.command("worker", rich_help_panel="Operate")(operate.worker_command)
app.command("backup", rich_help_panel="Operate")(operate.backup_command)
app.command("restore", rich_help_panel="Operate")(operate.restore_command)
app.command("doctor", rich_help_panel="Operate")(operate.doctor_command)
app.command("audit", rich_help_panel="Operate")(audit.audit_command)
app.add_typer(receipts.app, name="receipts", rich_help_panel="Operate")
app.command("bench", rich_help_panel="Operate")(evaluation.bench_command)
app.command("precompile", rich_help_panel="Operate")(operate.precompile_command)
app.command("demo", rich_help_panel="Operate")(operate.demo_command)
app.add_typer(schedules.app, name="schedules", rich_help_panel="Operate")
app.add_typer(keys.app, name="keys", rich_help_panel="Operate")


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Learn probabilistic models from tables larger than memory, in a few passes, and serve them."""
    if version:
        typer.echo(VERSION)
        raise typer.Exit
    del context
