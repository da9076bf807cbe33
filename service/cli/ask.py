"""`fewpass query | predict | score | impute`: answers of a model about values, structures and rows of files, computed
in this process without a server.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer import Argument, Option

from learners.models.estimation import Average
from learners.models.query import How
from learners.wording import count_with_noun
from service import product
from service.cli.answer_words import show_distribution_answer, show_structure_answer
from service.cli.shared_options import (
    AbsentOption,
    ColumnsOption,
    ForceOption,
    JsonOption,
    OutputOption,
    PresentOption,
    Reference,
    Texts,
    UrisArgument,
    WorkspaceOption,
    read_columns_option,
)
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.requests.written_evidence import parse_evidence_weights, parse_name_value_pairs, parse_written_evidence
from service.terminal_output import (
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_warning,
    print_written_rows,
    terminal_progress_bar,
)

SAMPLING = ("error", "time_limit_s", "seed")
AVERAGE = ("n", "level", "seed", "prior")
STRUCTURES = {"edges", "graph", "graphs", "paths", "effects", "score"}
KINDS = "marginal, conditional, moments, sample, map, impute or surprise; of structures: edges, graph, graphs, paths, effects or score"


def query_command(
    model: Reference,
    kind: Annotated[str, Argument(help=f"What to ask for: {KINDS}.")] = "conditional",
    variables: Annotated[
        Texts, Option("--of", help="A column to answer for; may be repeated. By default all columns.")
    ] = None,
    given: Annotated[
        Texts,
        Option(
            "--given",
            help="Evidence: column=value, column=low..high, column in {a,b} or column != value; may be repeated.",
        ),
    ] = None,
    likely: Annotated[Texts, Option("--likely", help="Soft evidence, as 'column: a=.8,b=.2'; may be repeated.")] = None,
    do: Annotated[Texts, Option("--do", help="Intervention on a network, as column=value; may be repeated.")] = None,
    average: Annotated[
        bool, Option("--average", help="Average over the graphs of a posterior over structures, with intervals.")
    ] = False,
    sample: Annotated[
        bool,
        Option(
            "--sample",
            help="Sample where a network is too large for an exact answer, until --set error=.002 or --set time_limit_s=10.",
        ),
    ] = False,
    present: PresentOption = None,
    absent: AbsentOption = None,
    edge: Annotated[
        Texts,
        Option(
            "--edge", help="An edge of the graph to score, or of the graph that answers, as 'a->b'; may be repeated."
        ),
    ] = None,
    network: Annotated[
        Path | None,
        Option("--network", help="Network file with the graph to score or to query, or with the edges to require."),
    ] = None,
    parameters: Annotated[
        Texts, Option("--set", help="n, seed, prior, level, joint, solver, k, best or time_limit_s, as name=value.")
    ] = None,
    best: Annotated[int | None, Option("--best", help="Number of assignments that map returns, best first.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Ask how probable values are given what you know of other columns, or how probable structures are."""
    request: JSONObject = {"kind": kind}
    if likely:
        request["likely"] = parse_option(parse_evidence_weights, likely)
    if network is not None:
        if edge:
            raise typer.BadParameter("give either --edge or --network", param_hint="--network")
        found = _edges_of(network)
        is_known = average or kind in STRUCTURES - {"score"}
        edge, present = (edge, [*(present or []), *found]) if is_known else (found, present)
    edges = {name: arcs for name, arcs in (("present", present), ("absent", absent)) if arcs}
    pairs = parse_option(parse_name_value_pairs, parameters, "--set")
    if sample:
        request["sampling"] = {name: pairs.pop(name) for name in SAMPLING if name in pairs}
    if average:
        if edge:
            raise typer.BadParameter("give either --edge or --average", param_hint="--edge")
        request["graph"] = edges | {name: pairs.pop(name) for name in AVERAGE if name in pairs}
    else:
        request |= edges | ({("edges" if kind in STRUCTURES else "graph"): edge} if edge else {})
    request |= ({"variables": variables} if variables else {}) | pairs
    if best is not None:
        request["best"] = best
    with open_existing_workspace(workspace) as here:
        schema = product.load_served_model(here, model).schema
        read = partial(parse_written_evidence, is_value=schema.has_word)
        request |= {name: parse_option(read, texts) for name, texts in (("evidence", given), ("do", do)) if texts}
        answer = product.query_model(here, model, [_read_query(request)])[0]
    print_json_and_exit(answer, json_output)
    if unused := answer.get("unused"):
        print_warning(f"feature selection removed these columns, so they have no effect: {', '.join(unused)}")
    for words in answer.get("warnings", []):
        print_warning(words)
    if answer["kind"] in STRUCTURES:
        show_structure_answer(answer)
    else:
        show_distribution_answer(answer, schema)


def _edges_of(path: Path) -> list[str]:
    from learners.orders.formats.network_files import read_network

    return list(read_network(path).edges)


def parse_option(
    read: Callable[[list[str]], JSONObject], texts: list[str] | None, option: str | None = None
) -> JSONObject:
    """Parse the texts of an option; a parse error is a usage error."""
    try:
        return read(texts or [])
    except InvalidRequest as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _read_query(request: JSONObject) -> Any:
    """Validate a query and return it."""
    from pydantic import ConfigDict, Field, TypeAdapter

    from learners.models.query import AnyQuery

    known: TypeAdapter[Any] = TypeAdapter(
        Annotated[AnyQuery, Field(discriminator="kind")], config=ConfigDict(extra="forbid")
    )
    return known.validate_python(request)


def predict_command(
    model: Reference,
    uris: UrisArgument,
    output: OutputOption,
    keep: Annotated[Texts, Option("--keep", help="Input column to copy; may be repeated.")] = None,
    interval: Annotated[
        float | None,
        Option(
            "--interval",
            help="Add bounds for the sampling error of the training rows at this level, such as 0.9, given structure, weights and trees.",
        ),
    ] = None,
    explain: Annotated[bool, Option("--explain", help="Add the contribution of each column.")] = False,
    top_k: Annotated[
        int | None,
        Option(
            "--top-k",
            min=1,
            help="Write the K most probable classes of each row as lists, instead of a column for each class.",
        ),
    ] = None,
    columns: ColumnsOption = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict the class of each row of files and write a Parquet or CSV file, batch by batch with bounded memory."""
    started = time.perf_counter()
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        n_rows = product.predict_files(
            here,
            model,
            uris,
            output,
            columns=read_columns_option(columns),
            keep=keep or [],
            interval=interval,
            is_explained=explain,
            top_k=top_k,
            replace=force,
            report=report,
            warn=print_warning,
        )
    print_written_rows(output, {"n_rows": n_rows}, started, json_output)
    if not keep and not json_output:
        out.print(
            "The output has no input columns; --keep COLUMN copies one, such as a key.", style="dim", highlight=False
        )


def score_command(
    model: Reference,
    uris: UrisArgument,
    output: OutputOption,
    keep: Annotated[Texts, Option("--keep", help="Input column to copy; may be repeated.")] = None,
    average: Annotated[
        bool, Option("--average", help="Average over the graphs of a posterior over structures.")
    ] = False,
    columns: ColumnsOption = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Score how probable each row is under a model: log likelihood and surprise rank (1 is the most surprising)."""
    started = time.perf_counter()
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        over = Average() if average else None
        facts = product.score_file_likelihoods(
            here,
            model,
            uris,
            output,
            over,
            read_columns_option(columns),
            keep=keep or [],
            replace=force,
            report=report,
            warn=print_warning,
        )
    print_written_rows(output, facts, started, json_output)
    if not json_output:
        mean = facts["log_likelihood"]
        out.print("no row is possible" if mean is None else f"mean log likelihood {mean:.4f} a row")
        if facts["n_impossible"]:
            out.print(f"{facts['n_impossible']:,} rows have probability zero")
        if average:
            out.print(_of_average(facts))
        if facts["densities"]:
            out.print(f"densities, not probabilities, of: {escape_rich_markup(', '.join(facts['densities']))}")


def _of_average(facts: JSONObject) -> str:
    """Describe how graphs were averaged."""
    own = facts["average"]
    how = (
        "exactly" if own["is_exact"] else f"by {own['n']:,} draws (standard error {own.get('standard_error', 0.0):.2g})"
    )
    n = facts["n_incomplete"]
    lacking = f"; {count_with_noun(n, 'row')} with missing or unseen values" if n else ""
    return f"averaged over graphs {how}{lacking}"


def impute_command(
    model: Reference,
    uris: UrisArgument,
    output: OutputOption,
    how: Annotated[str, Option("--how", help="mode, mean (numbers; the mode for other columns) or draw.")] = "mode",
    columns: Annotated[
        Texts,
        Option(
            "--of", help="A column to fill; may be repeated. By default every column of the model that the data has."
        ),
    ] = None,
    draws: Annotated[int, Option("--draws", help="Completed rows for each row, with --how draw.")] = 1,
    seed: Annotated[int, Option("--seed", min=0, help="Seed of the draws.")] = 0,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Fill missing cells from their distribution given the rest of the row. All columns are copied."""
    from service.product.inference.density_rows import Filling

    filling = Filling(cast("How", how), tuple(columns or ()), draws, seed)
    started = time.perf_counter()
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        facts = product.impute_files(
            here, model, uris, output, filling, replace=force, report=report, warn=print_warning
        )
    print_written_rows(output, facts, started, json_output)
    if not json_output:
        for name, n in facts["n_filled"].items():
            out.print(f"{escape_rich_markup(name)}: {n:,} cells")
        if facts["n_left"]:
            out.print(f"{facts['n_left']:,} cells were not filled: impossible rows, or values that share a code")
