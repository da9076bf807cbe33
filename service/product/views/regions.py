"""Circuits as expandable regions."""

from collections.abc import Collection, Sequence

from learners.circuits.structures.region_drawing import Region, circuit_regions
from learners.circuits.variables import circuit_columns
from learners.errors import InvalidParameter
from learners.models.model import Model
from learners.registry.column_graphs import ColumnGraph, GraphEdge
from learners.registry.model_kinds import kind_of
from service.product.inference.queries import exportable_circuit
from service.requests.json_values import JSONObject

MOST_DRAWN = 60
# So many regions are unfolded at first.
FEW = 30
NAMED = 3
FOLD, UNFOLD = "− ", "+ "


def region_graph(model: Model, opened: Collection[int] | None = None) -> JSONObject:
    """Return the regions of a model's circuit as a graph, from the root down to the collapsed ones.

    The regions in `opened` are unfolded; by default those nearest the root, as long as few are drawn. Raises
    InvalidParameter if there is no such region; NoCircuit, NoJoint or NetworkTooLarge.

    Returns
    -------
    `graph` (a `ColumnGraph`), `names` (number to name of all regions drawn; of one column the column's), `regions` (number
    to `Region`, of those), `columns` (number to the names of its columns), `opened`, `n_regions`, `n_nodes`, `is_compiled`
    """
    circuit = exportable_circuit(model)
    regions = circuit_regions(circuit.circuit)
    root = len(regions) - 1
    for number in opened or ():
        if not 0 <= number <= root:
            raise InvalidParameter("open", number, f"from 0 to {root:,}, one of the {len(regions):,} regions")
    opened = _few(regions, root) if opened is None else frozenset(opened)
    shown = _shown(regions, root, opened)
    columns = circuit_columns(circuit.circuit, circuit.schema).names
    sign = {each: "" if not regions[each].children else FOLD if each in opened else UNFOLD for each in shown}
    names = {each: sign[each] + _name(regions[each], each, columns) for each in shown}
    edges = tuple(
        GraphEdge(names[parent], names[child], 1.0)
        for parent in shown
        if parent in opened
        for child in regions[parent].children
        if child in names
    )
    return {
        "names": names,
        "graph": ColumnGraph(None, tuple(names.values()), edges, {}, ""),
        "regions": {each: regions[each] for each in shown},
        "columns": {each: [columns[v] for v in regions[each].variables] for each in shown},
        "opened": opened,
        "n_regions": len(regions),
        "n_nodes": circuit.circuit.n_nodes,
        "is_compiled": not kind_of(model).is_circuit,
    }


def _shown(regions: Sequence[Region], root: int, opened: Collection[int]) -> list[int]:
    """Return the drawn regions level by level: the root and the children of each expanded region."""
    shown = {root: None}
    waiting = [root]
    for region in waiting:
        for child in regions[region].children if region in opened else ():
            if child not in shown and len(shown) < MOST_DRAWN:
                shown[child] = None
                waiting.append(child)
    return list(shown)


def _few(regions: Sequence[Region], root: int) -> frozenset[int]:
    """Return the regions to expand at first: the root, and regions below it while few are drawn."""
    opened = [root]
    for region in opened:
        for child in regions[region].children:
            if child not in opened and regions[child].children and len(_shown(regions, root, [*opened, child])) <= FEW:
                opened.append(child)
    return frozenset(opened)


def _name(region: Region, number: int, columns: Sequence[str]) -> str:
    own = [columns[v] for v in region.variables]
    if len(own) == 1:
        return own[0]
    names = ", ".join(own) if len(own) <= NAMED else f"{len(own)} columns"
    return f"{number}: {names}"
