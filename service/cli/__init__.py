"""The command line, `fewpass`. Each command calls one function of the product and prints the result."""

import os
import signal
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

from service.startup import end_without_teardown, relax_gc_for_startup, restore_gc_after_startup, start_no_blas_threads

relax_gc_for_startup()  # before most is imported
start_no_blas_threads()

import typer  # noqa: E402
import typer.main  # noqa: E402
from typer.core import TyperCommand, TyperGroup  # noqa: E402

from service.version import VERSION  # noqa: E402

restore_gc_after_startup()


class CommandEntry(NamedTuple):
    """A command or a group of commands: where help lists it, and where it is, as "module of service.cli:name"."""

    panel: str
    place: str
    help: str  # the first paragraph of its docstring


# In the order in which `fewpass --help` lists them. That loads none of their modules, and a command loads its own.
COMMANDS = {
    "train": CommandEntry(
        "Learn", "learn:train_command", "Train a model and add it to the workspace as a new version."
    ),
    "schema": CommandEntry(
        "Learn",
        "learn:schema_command",
        "Infer how columns would be learned, in one pass: kinds, values, missing values and excluded columns.",
    ),
    "compare": CommandEntry(
        "Learn",
        "evaluation:compare_command",
        "Compare learners by repeated cross-validation over data sets. A repeated run continues where the last one stopped.",
    ),
    "evaluate": CommandEntry(
        "Learn",
        "learn:evaluate_command",
        "Measure a model on rows whose class is known, or several models side by side: fewpass evaluate a@1 a@2 FILE.",
    ),
    "report": CommandEntry(
        "Learn",
        "exports:report_command",
        "Write a quality report of a model as one HTML page: verdict, losses, calibration, confusion, importances, excluded columns.",
    ),
    "forget": CommandEntry(
        "Learn",
        "learn:forget_command",
        "Remove rows from the statistics and the models, and prove that nothing of them is left; or withdraw a rule of forgotten rows.",
    ),
    "models": CommandEntry("Learn", "models:app", "List, show, alias, tag, prune, export and import models."),
    "query": CommandEntry(
        "Ask",
        "ask:query_command",
        "Ask how probable values are given what you know of other columns, or how probable structures are.",
    ),
    "predict": CommandEntry(
        "Ask",
        "ask:predict_command",
        "Predict the class of each row of files and write a Parquet or CSV file, batch by batch with bounded memory.",
    ),
    "score": CommandEntry(
        "Ask",
        "ask:score_command",
        "Score how probable each row is under a model: log likelihood and surprise rank (1 is the most surprising).",
    ),
    "impute": CommandEntry(
        "Ask",
        "ask:impute_command",
        "Fill missing cells from their distribution given the rest of the row. All columns are copied.",
    ),
    "drift": CommandEntry(
        "Watch",
        "watch:drift_command",
        "Compare rows with the training data of a model: what changed, and the likely causes. Classes count if the rows have them.",
    ),
    "monitor": CommandEntry(
        "Watch",
        "watch:monitor_command",
        "Show the served rows of a model, how they changed, and its accuracy on labelled predictions.",
    ),
    "labels": CommandEntry(
        "Watch", "watch:labels_command", "Add labels of earlier predictions. Sending them again changes nothing."
    ),
    "alerts": CommandEntry(
        "Watch",
        "watch:alerts_command",
        "List the alerts, newest first, after acknowledging, muting or resolving those named.",
    ),
    "jobs": CommandEntry("Watch", "jobs:app", "Submit, list, show, follow, cancel and retry jobs."),
    "webhooks": CommandEntry("Watch", "watch:webhooks_app", "Send alerts and events to URLs."),
    "serve": CommandEntry(
        "Operate", "operate:serve_command", "Serve predictions and the REST API, and run jobs in worker processes."
    ),
    "worker": CommandEntry("Operate", "operate:worker_command", "Run the jobs of a workspace without serving."),
    "backup": CommandEntry(
        "Operate",
        "operate:backup_command",
        "Copy a consistent snapshot of the workspace, even while servers and jobs run, and check every byte.",
    ),
    "restore": CommandEntry(
        "Operate",
        "operate:restore_command",
        "Create a new workspace from a backup after checking every byte of it. An existing workspace is refused.",
    ),
    "doctor": CommandEntry(
        "Operate",
        "operate:doctor_command",
        "Check the workspace and its surroundings and print remedies. The exit code is 1 if a check fails.",
    ),
    "audit": CommandEntry(
        "Operate",
        "audit:audit_command",
        "Show who changed what, newest first, or check that no line of the audit log was changed or removed.",
    ),
    "bench": CommandEntry(
        "Operate",
        "evaluation:bench_command",
        "Measure how fast learners train and predict on this machine, and their memory, against a plain scan of the same files.",
    ),
    "precompile": CommandEntry(
        "Operate",
        "operate:precompile_command",
        "Compile every kernel that trainings and requests use, so that none of them waits for the compiler.",
    ),
    "demo": CommandEntry(
        "Operate",
        "operate:demo_command",
        "Learn from more rows than memory may hold, refresh, forget, serve, and show the results.",
    ),
    "receipts": CommandEntry("Operate", "receipts:app", "List, show and verify receipts of forgotten rows."),
    "schedules": CommandEntry("Operate", "schedules:app", "Create, list, change, pause and run schedules."),
    "keys": CommandEntry("Operate", "keys:app", "Create, list and revoke API keys."),
}


class LoadedCommands(MutableMapping[str, Any]):
    """The commands of `COMMANDS`, each loaded when it is first looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            panel, place, _ = COMMANDS[name]
            module, _, member = place.partition(":")
            found = getattr(import_module(f"service.cli.{module}"), member)
            parent = typer.Typer()
            parent.callback()(lambda: None)
            if isinstance(found, typer.Typer):
                parent.add_typer(found, name=name, rich_help_panel=panel)
            else:
                parent.command(name, rich_help_panel=panel)(found)
            self._loaded[name] = typer.main.get_group(parent).commands[name]
            examples = import_module("service.cli.examples")  # not for the list of commands
            examples.add_examples(self._loaded[name], name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS


class Commands(TyperGroup):
    """The commands, which are loaded when they are needed; wrong options are reported in fewpass's own words."""

    is_listing = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": None})
        self.commands = LoadedCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; in the list of all of them one that has only its help."""
        if self.is_listing and cmd_name in COMMANDS:
            panel, _, text = COMMANDS[cmd_name]
            return TyperCommand(cmd_name, help=text, rich_help_panel=panel)
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the commands without loading them."""
        self.is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.is_listing = False

    def invoke(self, ctx: Any) -> Any:
        """Run the named command."""
        from learners.errors import Surface, messages_for

        try:
            with messages_for(Surface.COMMAND_LINE):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            words = (
                "No version was added. Run the same command to start again."
                if ctx.invoked_subcommand == "train"
                else ""
            )
            from service.terminal_output import err

            err.print(f"Interrupted. {words}".rstrip())
            raise typer.Exit(128 + signal.SIGINT) from None
        except typer.BadParameter as error:
            from pydantic import ValidationError

            findings = error.__cause__.errors() if isinstance(error.__cause__, ValidationError) else []
            if findings and error.message == findings[0]["msg"]:  # else the message is our own
                from service.requests.validation_messages import validation_message

                error.message = validation_message(findings[0])
            if not error.message and error.ctx is not None:  # something is missing
                error.message = getattr(error.ctx.command, "epilog", None) or ""  # its example
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
        if sys.argv[1:] not in ([], ["--help"], ["--version"]):  # they need no module of ours
            from service.terminal_output import CommandProcess

            if sys.argv[1] not in ("serve", "worker", "demo"):  # long-running
                CommandProcess.begin()
        try:
            return super().__call__(*args, **kwargs)
        except BrokenPipeError:  # `fewpass models | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except Exception as error:
            if os.environ.get("FEWPASS_DEBUG"):
                raise
            from service.terminal_output import print_error

            sys.exit(print_error(error, as_json="--json" in sys.argv))


app = CommandLine(
    name="fewpass",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn probabilistic models from tables larger than memory, in a few passes, and serve them.",
)


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
