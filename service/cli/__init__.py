"""The command line: `fewpass`. Each command calls one verb of the workspace and prints what it returns."""

import os
import signal
import sys
from typing import Any

from service.startup import begin_loading, end_loading

begin_loading()  # before most is imported

import typer  # noqa: E402
from pydantic import ValidationError  # noqa: E402
from typer.core import TyperGroup  # noqa: E402

from service.cli import (  # noqa: E402
    densities,
    evaluation,
    jobs,
    keys,
    learning,
    models,
    monitoring,
    operations,
    querying,
    schedules,
    serving,
    views,
    watching,
)
from service.terminal import CommandProcess, show_error  # noqa: E402
from service.version import VERSION  # noqa: E402

end_loading()


class Commands(TyperGroup):
    """A group of commands that tells wrong options in our words."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            findings = error.__cause__.errors() if isinstance(error.__cause__, ValidationError) else []
            if findings and error.message == findings[0]["msg"]:  # else we have told it ourselves
                from service.requests.validation_messages import complaint

                error.message = complaint(findings[0])
            raise


class CommandLine(typer.Typer):
    """Typer, but a failure is one clear line and an exit code, never a traceback (unless FEWPASS_DEBUG is set)."""

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
            sys.exit(show_error(error, as_json="--json" in sys.argv))


app = CommandLine(
    name="fewpass",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn probabilistic models from tables larger than memory, in a few passes, and serve them.",
)
app.command()(serving.demo)
app.command()(serving.serve)
app.command()(serving.worker)
app.command()(serving.precompile)
app.command()(learning.train)
app.command()(learning.predict)
app.command()(densities.score)
app.command()(densities.impute)
app.command()(learning.evaluate)
app.command()(views.report)
app.command()(learning.forget)
app.command()(monitoring.drift)
app.command()(watching.monitor)
app.command()(watching.labels)
app.command()(watching.alerts)
app.command()(querying.query)
app.command()(evaluation.compare)
app.command()(evaluation.bench)
app.command()(learning.schema)
app.command()(operations.backup)
app.command()(operations.restore)
app.command()(operations.doctor)
app.add_typer(models.app, name="models")
app.add_typer(jobs.app, name="jobs")
app.add_typer(schedules.app, name="schedules")
app.add_typer(keys.app, name="keys")
app.add_typer(watching.app, name="webhooks")


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    """Learn probabilistic models from tables larger than memory, in a few passes, and serve them."""
    if version:
        typer.echo(VERSION)
        raise typer.Exit
    del context
