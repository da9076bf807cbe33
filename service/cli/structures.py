"""Answers of posteriors over structures as tables."""

from collections.abc import Mapping, Sequence

from service.requests.json_values import JSONMapping
from service.terminal import out, show_table

MOST_ROWS = 50
ARROW = "->"
LIMITS = {"max_parents": "parents", "candidates": "candidate parents"}


def show_answer(answer: JSONMapping) -> None:
    """Print the answer to a query about structures: probable edges, paths and large effects first."""
    for name in ("log_evidence", "log_score", "log_posterior", "log_odds", "best_log_score", "expected_shd"):
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
    out.print(coverage_words(answer["coverage"]))


def show_intervention(intervention: JSONMapping) -> None:
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
        show_table(None, ["pair", "is a cause", "adjust for"], rows, empty="")


def _share(probability: float | None) -> str:
    return "" if probability is None else f" ({probability:.2f})"


def coverage_words(coverage: JSONMapping) -> str:
    """How much of the posterior an answer is of."""
    limits = coverage.get("limits", {})
    bounds = [f"at most {limits[name]} {word}" for name, word in LIMITS.items() if limits.get(name) is not None]
    within = f" of graphs with {' and '.join(bounds)} of each column" if bounds else ""
    if coverage["is_exact"]:
        return f"exact: all orders{within} are added up"
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
    show_table(None, names, rows[:MOST_ROWS], empty="")
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
    show_table(None, names, rows, empty="")
    _say_more(len(pairs), "effects")


def _show_pairs(what: str, pairs: Sequence[JSONMapping]) -> None:
    ordered = sorted(pairs, key=lambda pair: -(pair["probability"] or 0.0))
    has_errors = any("standard_error" in pair for pair in pairs)
    rows = [
        [_arrow(pair), _number(pair["probability"])] + ([_number(pair.get("standard_error"), "")] if has_errors else [])
        for pair in ordered[:MOST_ROWS]
    ]
    show_table(None, [what, "probability"] + (["standard error"] if has_errors else []), rows, empty="")
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
        out.print(f"The first {MOST_ROWS} of {n:,} {what}; --json tells all.")
