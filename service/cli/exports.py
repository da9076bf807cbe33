"""`fewpass models structure | circuit | trace | picture | network | sql` and `fewpass report`: exports and pictures of
a version.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from learners.errors import redact_uri_secrets
from learners.orders.formats.network_files import NetworkFormat, choose_network_file_format
from learners.registry.sql.dialects import DialectName
from learners.wording import count_with_noun
from service import product
from service.cli.shared_options import (
    AbsentOption,
    ColumnsOption,
    ForceOption,
    JsonOption,
    PresentOption,
    Reference,
    Texts,
    WorkspaceOption,
    read_columns_option,
)
from service.product.views.circuit_export import CircuitOf, Form, Picture
from service.requests.json_values import JSONObject
from service.terminal_output import (
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_table,
    print_warning,
    table_cell_text,
)

MOST_ON_A_TERMINAL = 2**18  # characters

if TYPE_CHECKING:
    from service.workspace import Workspace

MOST_SHARES = 10
TextOutput = Annotated[str | None, Option("--out", "-o", help="The file to write.", show_default="standard output")]


def _give(
    reference: str, make: Callable[["Workspace"], str | bytes], output: str | None, force: bool, workspace: Path | None
) -> None:
    """Print the export of a version, or write it to a file that appears only when complete."""
    with open_existing_workspace(workspace) as here:
        if output is None:
            content = make(here)
            if sys.stdout.isatty() and len(content) > MOST_ON_A_TERMINAL:
                raise typer.BadParameter(
                    f"{len(content) / 2**20:,.1f} MiB are too much for a terminal: name a file with --out, or redirect the output.",
                    param_hint="--out",
                )
            typer.echo(content, nl=content[-1:] not in ("\n", b"\n"))
        else:
            n_bytes = product.write_output(output, lambda: make(here), replace=force)
            out.print(
                f"{escape_rich_markup(reference)} -> {escape_rich_markup(redact_uri_secrets(output))}, {n_bytes:,} bytes"
            )


def export_structure_command(
    reference: Reference,
    member: Annotated[int | None, Option("--member", help="Number of a member, for an ensemble.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the graph of a model: the parents of each attribute."""
    with open_existing_workspace(workspace) as here:
        structure = product.version_structure(here, reference, member)
    print_json_and_exit(structure, json_output)
    for edge in structure["edges"]:
        out.print(f"{escape_rich_markup(str(edge['from']))} -> {escape_rich_markup(str(edge['to']))}", highlight=False)
    if not structure["edges"]:
        of_circuit = f"It is a circuit: fewpass models circuit {escape_rich_markup(reference)} shows its nodes."
        why = of_circuit if "circuit" in structure else "No column depends on another, given the class."
        out.print(
            f"No edge joins any two of {count_with_noun(len(structure['nodes']), 'column')}. {why}", highlight=False
        )
    facts = dict(structure.get("facts", {}))
    if selection := facts.pop("selection", None):
        show_skdb_selection_losses(selection)
    facts.pop("concentrations", None)
    for title, table in (("circuit", structure.get("circuit", {})), ("training", facts)):
        if table:
            print_table(title, ["fact", "value"], [[name, table_cell_text(value)] for name, value in table.items()])


def export_circuit_command(
    reference: Reference,
    form: Annotated[
        Form, Option("--format", "-f", help="dot (Graphviz), svg (a picture), or model (for `import`).")
    ] = "text",
    of: Annotated[
        CircuitOf, Option("--of", help="graphs: the parents of each column, for a posterior over structures.")
    ] = "columns",
    output: TextOutput = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write the circuit of a model; for a network, the circuit that it compiles to."""
    if form == "model" and output is None:
        raise typer.BadParameter("a model is binary: name a file with --out", param_hint="--out")
    _give(reference, lambda here: product.export_version_circuit(here, reference, form, of), output, force, workspace)


def export_trace_command(
    reference: Reference,
    output: Annotated[str, Option("--out", "-o", help="The SVG file to write.")],
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Draw the chains of a sampled circuit: log joint and acceptance rate of every sweep."""
    _give(reference, lambda here: product.draw_chain_trace(here, reference), output, force, workspace)


def export_picture_command(
    reference: Reference,
    output: Annotated[str, Option("--out", "-o", help="The SVG file to write.")],
    of: Annotated[
        Picture, Option("--of", help="A heat map of the edges, or the graph with widths by probability.")
    ] = "edges",
    present: PresentOption = None,
    absent: AbsentOption = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Draw the edge probabilities of a posterior over structures."""

    def drawn(here: "Workspace") -> bytes:
        return product.draw_edge_posterior(here, reference, of, present or (), absent or ())

    _give(reference, drawn, output, force, workspace)


def export_network_command(
    reference: Reference,
    form: Annotated[
        NetworkFormat | None,
        Option("--format", "-f", help="bif, xmlbif or xdsl (GeNIe).", show_default="by the name of the file, else bif"),
    ] = None,
    output: TextOutput = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write the network of a model for other programs, as BIF, XMLBIF or XDSL.

    For an ensemble this is its joint member, for a posterior over structures the most probable graph.
    """
    chosen = choose_network_file_format(output, form)
    _give(reference, lambda here: product.export_version_network(here, reference, chosen), output, force, workspace)


def export_sql_command(
    reference: Reference,
    table: Annotated[str, Option("--table", help="Table whose rows are predicted, such as schema.table.")],
    dialect: Annotated[DialectName, Option("--dialect", "-d", help="Database that runs the script.")] = "duckdb",
    view: Annotated[
        str | None,
        Option(
            "--view", help="Name of the view, and prefix of the names of its tables.", show_default="the model's name"
        ),
    ] = None,
    key: Annotated[
        Texts,
        Option(
            "--key",
            help="Column of the table to show beside the predictions; may be repeated.",
            show_default="the model's columns",
        ),
    ] = None,
    absent: Annotated[
        Texts, Option("--absent", help="Column of the model that the table lacks; may be repeated.")
    ] = None,
    output: TextOutput = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write a model as SQL: tables, and a view with the class probabilities of every row of a table.

    A large model needs --out: its table of log probabilities becomes a Parquet file beside the script, called like it with
    .parquet at the end, which DuckDB reads.
    """
    beside = None if output is None or "://" in output else Path(output)
    files: list[Path | None] = []

    def written(here: "Workspace") -> str:
        script, logs = product.export_version_sql(
            here, reference, table, dialect, view, key or (), absent or (), beside=beside, replace=force
        )
        files.append(logs)
        return script

    _give(reference, written, output, force, workspace)
    if logs := files[-1]:
        out.print(f"It reads {escape_rich_markup(str(logs))}, {logs.stat().st_size:,} bytes")


def report_command(
    reference: Reference,
    uris: Annotated[list[str], Argument(help="Files, folders, globs or URIs of rows with known classes.")],
    html: Annotated[str, Option("--html", "--out", "-o", help="The page to write.")],
    columns: ColumnsOption = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write a quality report of a model as one HTML page: verdict, losses, calibration, confusion, importances,
    excluded columns.
    """
    with open_existing_workspace(workspace) as here:
        known = read_columns_option(columns)
        numbers = product.write_version_report(
            here, reference, uris, html, replace=force, columns=known, warn=print_warning
        )
    out.print(escape_rich_markup(numbers.verdict), highlight=False)
    if numbers.shares and numbers.shares[0].loss is not None:
        shown = numbers.shares[:MOST_SHARES]
        rows = [[each.column, f"{each.loss:+.4f} ± {each.error:.4f}", f"{each.share:.1%}"] for each in shown]
        print_table("information in each column", ["column", "log loss", "share"], rows)
    out.print(f"{escape_rich_markup(reference)} -> {escape_rich_markup(redact_uri_secrets(html))}")


def show_skdb_selection_losses(selection: JSONObject) -> None:
    """Print SkDB's mean losses, one column per number of parents, at a dozen prefixes of the attributes; the smallest
    is marked.
    """
    losses = selection["mean_loss"]
    n = len(losses[0]) - 1
    chosen = selection["n_attributes"], selection["k"]
    rows = [
        [str(i), *(f"{row[i]:.4f}{'*' if (i, k) == chosen else ''}" for k, row in enumerate(losses))]
        for i in sorted({round(n * step / 11) for step in range(12)} | {chosen[0]})
    ]
    print_table("mean leave-one-out loss (* chosen)", ["attributes", *(f"k = {k}" for k in range(len(losses)))], rows)
