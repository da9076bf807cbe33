"""Answers to queries as printed tables: joint distributions and posteriors over structures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.product.inference.metric_words import interval_words
from service.requests.json_values import JSONMapping, JSONObject
from service.terminal_output import out, print_records, print_table

if TYPE_CHECKING:
    from learners.schema import Attribute, Schema  # which loads numpy

# What an answer may be in one number, and what it may say besides; each with its words.
ONE_NUMBER = {
    "probability": "probability",
    "density": "density",
    "log_likelihood": "log likelihood (natural log)",
    "rank": "share of drawn rows that are at most as likely",
    "standard_error": "standard error",
}
BESIDES = {
    "log_probability": "log probability (natural log)",
    "upper_bound": "upper bound of the log probability (natural log)",
    "is_optimal": "proved optimal",
    "log_evidence": "log probability of the evidence (natural log)",
}
LOGARITHMS = {"log_probability", "log_evidence", "log_likelihood", "upper_bound"}
ROUNDING = 1e-12
MOST_CELLS = 50
MISSING = "(missing)"
MOST_ROWS = 50
ARROW = "->"
LIMITS = {"max_parents": "parents", "candidates": "candidate parents"}


def show_structure_answer(answer: JSONMapping) -> None:
    """Print the answer to a query about structures: probable edges, paths and large effects first."""
    for name in (
        "log_evidence",
        "log_score",
        "log_posterior",
        "log_odds",
        "best_log_score",
        "expected_shd",
        "expected_essential_shd",
    ):
        if name in answer:
            value = answer[name]  # JSON has no infinities
            out.print(f"{name} {'-inf' if value is None else format(value, '.6g')}")
    match answer["kind"]:
        case "edges" | "paths" as kind:
            _show_pairs(kind.removesuffix("s"), answer[kind])
        case "graphs":
            _show_graphs(answer["graphs"])
        case "effects":
            _show_effects(answer)
        case "score":
            out.print("the best graph:")
            _print_edges(answer["best_edges"])
        case _:
            _print_edges(answer["edges"])
    if "effective_sample_size" in answer:
        out.print(f"effective_sample_size {answer['effective_sample_size']:.0f}")
    for note in answer.get("notes", []):
        out.print(f"note: {note}")
    out.print(answer_coverage_words(answer["coverage"]))


def show_intervention_answer(intervention: JSONMapping) -> None:
    """Print which arcs an intervention cuts, and which columns to adjust for."""
    cut = [_arrow(arc) + _share(arc.get("probability")) for arc in intervention["cut"]]
    out.print(f"cut: {', '.join(cut) or 'no arcs'}", markup=False, highlight=False)
    rows = []
    for pair in intervention.get("back_door", ()):
        adjusted = pair["adjust_for"]  # names, or with their probabilities
        names = [f"{name}{_share(adjusted[name])}" for name in adjusted] if isinstance(adjusted, dict) else adjusted
        is_cause = _number(pair["probability"]) if "probability" in pair else ("yes" if pair["is_cause"] else "no")
        rows.append([_arrow(pair), is_cause, ", ".join(names) or "nothing"])
    if rows:
        print_table(None, ["pair", "is a cause", "adjust for"], rows, empty="")


def _share(probability: float | None) -> str:
    return "" if probability is None else f" ({probability:.2f})"


def answer_coverage_words(coverage: JSONMapping) -> str:
    """Describe how much of the posterior an answer covers."""
    limits = coverage.get("limits", {})
    bounds = [f"at most {limits[name]} {word}" for name, word in LIMITS.items() if limits.get(name) is not None]
    within = f" of graphs with {' and '.join(bounds)} of each column" if bounds else ""
    if coverage["is_exact"]:
        return f"exact: sum over all orders{within}"
    (low, high), (least, most) = coverage["orders_interval"], coverage["graphs_interval"]
    return (
        f"coverage, 95% interval of {coverage['n_draws']} draws: orders {coverage['orders']:.1%} ({low:.1%} to {high:.1%}), "
        f"graphs {coverage['graphs']:.1%} ({least:.1%} to {most:.1%}){within}"
    )


def _show_graphs(graphs: Sequence[JSONMapping]) -> None:
    has_weights = any("weight" in graph for graph in graphs)
    rows = [
        [graph["count"]]
        + ([f"{graph['weight']:.4f}"] if has_weights else [])
        + [f"{graph['log_posterior']:.4f}", ", ".join(map(_arrow, graph["edges"])) or "(no edges)"]
        for graph in graphs
    ]
    names = ["drawn"] + (["weight"] if has_weights else []) + ["log posterior", "edges"]
    print_table(None, names, rows[:MOST_ROWS], empty="")
    _say_more(len(rows), "graphs")


def _show_effects(answer: JSONMapping) -> None:
    pairs = sorted(answer["effects"], key=lambda pair: -abs(pair["mean"]))
    has_errors = any("standard_error" in pair for pair in pairs)
    rows = [
        [_arrow(pair), f"{pair['mean']:.6g}", f"{pair['low']:.4g} to {pair['high']:.4g}"]
        + ([f"{pair['standard_error']:.2g}"] if has_errors else [])
        for pair in pairs[:MOST_ROWS]
    ]
    names = ["effect", "mean", f"{answer['level']:.0%} interval"] + (["standard error"] if has_errors else [])
    print_table(None, names, rows, empty="")
    _say_more(len(pairs), "effects")


def _show_pairs(what: str, pairs: Sequence[JSONMapping]) -> None:
    ordered = sorted(pairs, key=lambda pair: -(pair["probability"] or 0.0))
    has_errors = any("standard_error" in pair for pair in pairs)
    rows = [
        [_arrow(pair), _number(pair["probability"])] + ([_number(pair.get("standard_error"), "")] if has_errors else [])
        for pair in ordered[:MOST_ROWS]
    ]
    print_table(None, [what, "probability"] + (["standard error"] if has_errors else []), rows, empty="")
    _say_more(len(pairs), f"{what}s")


def _number(value: float | None, unknown: str = "unknown") -> str:
    return unknown if value is None else f"{value:.4f}"


def _print_edges(edges: Sequence[Mapping[str, str]]) -> None:
    for text in map(_arrow, edges) if edges else ["(no edges)"]:
        out.print(text, markup=False, highlight=False)


def _arrow(edge: JSONMapping) -> str:
    return f"{edge['from']}{ARROW}{edge['to']}"


def _say_more(n: int, what: str) -> None:
    if n > MOST_ROWS:
        out.print(f"The first {MOST_ROWS} of {n:,} {what}; --json shows all.")


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


def show_distribution_answer(answer: JSONObject, schema: "Schema") -> None:
    """Print the answer with the class before other columns, followed by its additional facts."""
    _show_numbers(answer, ONE_NUMBER)
    level = f"{answer.get('level', 0):.0%} interval"
    if "interval" in answer:
        out.print(f"{level} {_ends(answer['interval'])}")
    distributions = answer.get("distributions", {})
    for column in sorted(distributions, key=lambda name: name != schema.target):
        distribution = distributions[column]
        ends = answer.get("intervals", {}).get(column)
        errors = answer.get("standard_errors", {}).get(column)
        rows = [
            [interval_words(label), f"{p:.4f}"]
            + ([f"{errors[label]:.2g}"] if errors is not None else [])
            + ([_ends(ends[label])] if ends is not None else [])
            for label, p in distribution.items()
        ]
        names = ["standard error"] * (errors is not None) + [level] * (ends is not None)
        print_table(None, [column, "probability", *names], rows, empty="")
    if "distribution" in answer:
        has_ends = any("interval" in cell for cell in answer["distribution"])
        rows = [
            [_cell(cell["values"]), f"{cell['probability']:.4f}"] + ([_ends(cell["interval"])] if has_ends else [])
            for cell in answer["distribution"]
        ]
        print_table(None, ["values", "probability"] + ([level] if has_ends else []), rows[:MOST_CELLS], empty="")
        if len(rows) > MOST_CELLS:
            out.print(f"The {MOST_CELLS} most probable of {len(rows):,}; --json shows all.")
    if "moments" in answer:
        times = {own.name: own for own in schema.attributes if own.is_time}
        has_ends = any("interval" in m for m in answer["moments"].values())
        rows = [
            [name, _mean(m["mean"], times.get(name)), f"{m['variance']:.6g}"]
            + ([_ends(m["interval"], times.get(name))] if has_ends else [])
            for name, m in answer["moments"].items()
        ]
        print_table(None, ["column", "mean", "variance"] + ([level] if has_ends else []), rows, empty="")
    if "imputed" in answer:
        rows = [[name, _word(guess["value"]), _around(guess)] for name, guess in answer["imputed"].items()]
        print_table(None, ["column", "best guess", "how sure"], rows, empty="")
    if "best" in answer:
        names = list(answer["assignment"])
        rows = [
            [_word(each["assignment"][name]) for name in names]
            + [f"{each['log_probability']:.6g}", "yes" if each["is_optimal"] else "no"]
            for each in answer["best"]
        ]
        print_records([*names, "log probability (natural log)", "proved optimal"], rows)
    elif "assignment" in answer:
        rows = [[name, _word(value)] for name, value in answer["assignment"].items()]
        print_table(None, ["column", "most probable"], rows, empty="")
    if answer.get("rows"):
        names = list(answer["rows"][0])
        print_records(names, [[_word(row[name]) for name in names] for row in answer["rows"]])
    for name, interval in answer.get("stands_for", {}).items():
        words = " or ".join(map(interval_words, interval.split(" or ")))
        out.print(f"{name}: the evidence is read as its interval, {words}", markup=False, highlight=False)
    has_evidence = answer.get("log_evidence") is None or abs(answer["log_evidence"]) >= ROUNDING
    _show_numbers(answer, {name: words for name, words in BESIDES.items() if has_evidence or name != "log_evidence"})
    if "of" in answer:  # which circuit of a posterior over circuits has answered
        out.print(f"of {answer['of']}")
    if "sampled" in answer:
        out.print(_samples(answer["sampled"]))
    if "intervention" in answer:
        show_intervention_answer(answer["intervention"])
    if answer.get("graph") == "average":
        out.print(f"average over {answer['n']:,} draws of {answer['n_graphs']:,} graphs")
        out.print(answer_coverage_words(answer["coverage"]))


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


def _mean(number: float, time: "Attribute | None") -> str:
    """Format a mean; times to the second."""
    return f"{number:.10g}" if time is None else time.number_text(round(number))


def _ends(interval: Sequence[float], time: "Attribute | None" = None) -> str:
    """Format the ends of an interval; times to the second."""
    low, high = (f"{end:.4g}" if time is None else time.number_text(round(end)) for end in interval)
    return f"{low} to {high}"


def _cell(values: JSONObject) -> str:
    return ", ".join(f"{name}={_word(value)}" for name, value in values.items())


def _word(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:.6g}" if isinstance(value, float) else interval_words(str(value))
