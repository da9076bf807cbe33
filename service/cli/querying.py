"""`fewpass query`: ask a model's joint distribution, or its posterior over structures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from service import product
from service.cli.shared_options import AbsentOption, JsonOption, PresentOption, Reference, WorkspaceOption
from service.cli.structures import coverage_words, show_answer, show_intervention
from service.product.inference.metric_words import interval
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.requests.written_evidence import evidence_of, likely_of, pairs_of
from service.terminal import opened, out, show_json, show_records, show_table

# What an answer may be in one number, and what it may say besides; each with its words.
ONE_NUMBER = {
    "probability": "probability",
    "density": "density",
    "log_likelihood": "log likelihood",
    "rank": "share of rows that are at most as likely",
    "standard_error": "standard error",
}
BESIDES = {
    "log_probability": "log probability",
    "upper_bound": "no assignment has a log probability above",
    "is_optimal": "proved to be the most probable",
    "log_evidence": "log probability of what is given",
}
LOGARITHMS = {"log_probability", "log_evidence", "log_likelihood", "upper_bound"}
ROUNDING = 1e-12
MOST_CELLS = 50
MISSING = "(missing)"
SAMPLING = ("error", "time_limit_s", "seed")
AVERAGE = ("n", "level", "seed", "prior")
STRUCTURES = {"edges", "graph", "graphs", "paths", "effects", "score"}
KINDS = "marginal, conditional, moments, sample, map, impute or surprise; of structures: edges, graph, graphs, paths, effects or score"


def query(
    model: Reference,
    kind: Annotated[str, typer.Argument(help=f"What to ask for: {KINDS}.")] = "conditional",
    variables: Annotated[
        list[str] | None, typer.Option("--of", help="A column to tell; may be repeated. By default all that can be.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--given",
            help="What is known: column=value, column=low..high, column in {a,b} or column != value; may be repeated.",
        ),
    ] = None,
    likely: Annotated[
        list[str] | None,
        typer.Option("--likely", help="How likely values are to be, as 'column: a=.8,b=.2'; may be repeated."),
    ] = None,
    do: Annotated[
        list[str] | None,
        typer.Option("--do", help="What is set from outside, as column=value; may be repeated. Of networks."),
    ] = None,
    average: Annotated[
        bool, typer.Option("--average", help="Of a posterior over structures: average over its graphs, with intervals.")
    ] = False,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="If a network is too large for an exact answer: samples, until --set error=.002 or --set time_limit_s=10.",
        ),
    ] = False,
    present: PresentOption = None,
    absent: AbsentOption = None,
    edge: Annotated[
        list[str] | None,
        typer.Option("--edge", help="An edge of the graph to score, or that is to answer, as 'a->b'; may be repeated."),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option("--network", help="A network file: the graph to score or to answer, or edges that are there."),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", help="n, seed, prior, level, joint, solver, k, best or time_limit_s, as name=value."),
    ] = None,
    best: Annotated[int | None, typer.Option("--best", help="How many assignments 'map' tells, best first.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Ask how probable values are, given what you know of other columns; or how probable structures are."""
    request: JSONObject = {"kind": kind}
    for name, texts, read in (("evidence", given, evidence_of), ("likely", likely, likely_of), ("do", do, evidence_of)):
        if texts:
            request[name] = written(read, texts)
    if network is not None:
        if edge:
            raise typer.BadParameter("give either --edge or --network", param_hint="--network")
        found = _edges_of(network)
        is_known = average or kind in STRUCTURES - {"score"}
        edge, present = (edge, [*(present or []), *found]) if is_known else (found, present)
    edges = {name: arcs for name, arcs in (("present", present), ("absent", absent)) if arcs}
    pairs = written(pairs_of, parameters, "--set")
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
    with opened(workspace) as here:
        answer = product.query(here, model, [_read_query(request)])[0]
        target = product.served(here, model).schema.target
    if json_output:
        show_json(answer)
        return
    if answer["kind"] in STRUCTURES:
        show_answer(answer)
    else:
        _show(answer, target)


def _edges_of(path: Path) -> list[str]:
    from learners.orders.formats.network_files import read_network

    return list(read_network(path).edges)


def written(read: Callable[[list[str]], JSONObject], texts: list[str] | None, option: str | None = None) -> JSONObject:
    """What an option says, read; what is wrong with it is a wrong use of the command."""
    try:
        return read(texts or [])
    except InvalidRequest as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _show_numbers(answer: JSONObject, words: JSONMapping) -> None:
    for name in words:
        if name in answer:
            value = answer[name]
            if isinstance(value, float) and name in LOGARITHMS and abs(value) < ROUNDING:
                value = 0.0  # a sum of probabilities that is one but for rounding
            if value is None and name in LOGARITHMS:  # JSON has no infinities
                value = float("-inf")
            text = ("yes" if value else "no") if isinstance(value, bool) else f"{value:.6g}"
            out.print(f"{words[name]}: {text}", highlight=False)


def _show(answer: JSONObject, target: str | None) -> None:
    """The answer, the class before other columns; then what it says besides."""
    _show_numbers(answer, ONE_NUMBER)
    level = f"{answer.get('level', 0):.0%} interval"
    if "interval" in answer:
        out.print(f"{level} {_ends(answer['interval'])}")
    distributions = answer.get("distributions", {})
    for column in sorted(distributions, key=lambda name: name != target):
        distribution = distributions[column]
        ends = answer.get("intervals", {}).get(column)
        errors = answer.get("standard_errors", {}).get(column)
        rows = [
            [interval(label), f"{p:.4f}"]
            + ([f"{errors[label]:.2g}"] if errors is not None else [])
            + ([_ends(ends[label])] if ends is not None else [])
            for label, p in distribution.items()
        ]
        names = ["standard error"] * (errors is not None) + [level] * (ends is not None)
        show_table(None, [column, "probability", *names], rows, empty="")
    if "distribution" in answer:
        has_ends = any("interval" in cell for cell in answer["distribution"])
        rows = [
            [_cell(cell["values"]), f"{cell['probability']:.4f}"] + ([_ends(cell["interval"])] if has_ends else [])
            for cell in answer["distribution"]
        ]
        show_table(None, ["values", "probability"] + ([level] if has_ends else []), rows[:MOST_CELLS], empty="")
        if len(rows) > MOST_CELLS:
            out.print(f"The {MOST_CELLS} most probable of {len(rows):,}; --json tells all.")
    if "moments" in answer:
        # More digits than elsewhere: a time is a number of ten digits.
        has_ends = any("interval" in m for m in answer["moments"].values())
        rows = [
            [name, f"{m['mean']:.10g}", f"{m['variance']:.6g}"] + ([_ends(m["interval"])] if has_ends else [])
            for name, m in answer["moments"].items()
        ]
        show_table(None, ["column", "mean", "variance"] + ([level] if has_ends else []), rows, empty="")
    if "imputed" in answer:
        rows = [[name, _word(guess["value"]), _around(guess)] for name, guess in answer["imputed"].items()]
        show_table(None, ["column", "best guess", "how sure"], rows, empty="")
    if "best" in answer:
        names = list(answer["assignment"])
        rows = [
            [_word(each["assignment"][name]) for name in names]
            + [f"{each['log_probability']:.6g}", "yes" if each["is_optimal"] else "no"]
            for each in answer["best"]
        ]
        show_records([*names, "log probability", "proved"], rows)
    elif "assignment" in answer:
        rows = [[name, _word(value)] for name, value in answer["assignment"].items()]
        show_table(None, ["column", "most probable"], rows, empty="")
    if answer.get("rows"):
        names = list(answer["rows"][0])
        show_records(names, [[_word(row[name]) for name in names] for row in answer["rows"]])
    has_evidence = answer.get("log_evidence") is None or abs(answer["log_evidence"]) >= ROUNDING
    _show_numbers(answer, {name: words for name, words in BESIDES.items() if has_evidence or name != "log_evidence"})
    if "of" in answer:  # which circuit of a posterior over circuits has answered
        out.print(f"of {answer['of']}")
    if "sampled" in answer:
        out.print(_samples(answer["sampled"]))
    if "intervention" in answer:
        show_intervention(answer["intervention"])
    if answer.get("graph") == "average":
        out.print(f"average over {answer['n']:,} draws of {answer['n_graphs']:,} graphs")
        out.print(coverage_words(answer["coverage"]))


def _samples(sampling: JSONObject) -> str:
    end = "" if sampling["is_reached"] else ", as time was up"
    return (
        f"sampled, not exact: {sampling['n']:,} samples worth {sampling['effective_sample_size']:,.0f} in {sampling['seconds']:.2g} s, largest "
        f"standard error {sampling['largest_error']:.2g}{end}"
    )


def _around(guess: JSONObject) -> str:
    if "probability" in guess:
        return f"probability {guess['probability']:.4f}"
    return f"standard deviation {guess['variance'] ** 0.5:.4g}"


def _ends(interval: Sequence[float]) -> str:
    low, high = interval
    return f"{low:.4g} to {high:.4g}"


def _cell(values: JSONObject) -> str:
    return ", ".join(f"{name}={_word(value)}" for name, value in values.items())


def _word(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:.6g}" if isinstance(value, float) else interval(str(value))


def _read_query(request: JSONObject) -> Any:
    """The query that was asked, checked."""
    from pydantic import ConfigDict, Field, TypeAdapter

    from learners.models.query import AnyQuery

    known: TypeAdapter[Any] = TypeAdapter(
        Annotated[AnyQuery, Field(discriminator="kind")], config=ConfigDict(extra="forbid")
    )
    return known.validate_python(request)
