"""A circuit as regions that unfold: one region, what it splits into, and what is below that."""

from collections.abc import Sequence

from learners.circuits.columns import columns_of
from learners.circuits.formats.regions import Region, regions
from learners.circuits.model import CircuitModel
from learners.errors import InvalidParameter
from learners.models.model import Model
from service.product.inference.queries import written
from service.product.views.graphs import ColumnGraph, GraphEdge
from service.requests.json_values import JSONObject

MOST_DRAWN = 60
NAMED = 3


def unfolded(model: Model, number: int | None = None, depth: int = 2) -> JSONObject:
    """A region of a model's circuit, with the regions below it as a graph.

    Parameters
    ----------
    model : Model
    number : int, optional
        Of the region; that of the root unless given.
    depth : int
        How far to unfold; fewer levels where more than `MOST_DRAWN` regions would be drawn.

    Returns
    -------
    dict
        `number`, `region`, `columns`, `names` (number to name of all regions drawn), `graph` (a `ColumnGraph`), `children` and
        `parents` (numbers), `n_regions`, `n_nodes`.

    Raises
    ------
    InvalidParameter
        If there is no such region.
    NoCircuit, NoJoint, NetworkTooLarge
    """
    circuit = written(model)
    found = regions(circuit.circuit)
    if number is None:
        number = len(found) - 1
    if not 0 <= number < len(found):
        raise InvalidParameter("region", number, f"there are {len(found):,}, from 0 to {len(found) - 1:,}")
    shown = _below(found, number, depth)
    columns = columns_of(circuit.circuit, circuit.schema).names
    names = {each: _name(found[each], each, columns) for each in shown}
    edges = tuple(
        GraphEdge(names[parent], names[child], 1.0)
        for parent in shown
        for child in found[parent].children
        if child in names
    )
    return {
        "number": number,
        "region": found[number],
        "columns": [columns[v] for v in found[number].variables],
        "names": names,
        "graph": ColumnGraph(None, tuple(names.values()), edges, {}, ""),
        "children": {child: _name(found[child], child, columns) for child in found[number].children},
        "parents": {n: _name(each, n, columns) for n, each in enumerate(found) if number in each.children},
        "n_regions": len(found),
        "n_nodes": circuit.circuit.n_nodes,
        "is_compiled": not isinstance(model, CircuitModel),
    }


def _below(found: Sequence[Region], number: int, depth: int) -> list[int]:
    """A region and those below it, level by level, as long as they can be drawn."""
    shown, level = [number], [number]
    for _ in range(depth):
        following = dict.fromkeys(child for each in level for child in found[each].children)
        level = [child for child in following if child not in shown]
        if len(shown) + len(level) > MOST_DRAWN:
            return shown + level[: MOST_DRAWN - len(shown)] if len(shown) == 1 else shown
        shown += level
    return shown


def _name(region: Region, number: int, columns: Sequence[str]) -> str:
    own = [columns[v] for v in region.variables]
    said = ", ".join(own) if len(own) <= NAMED else f"{len(own)} columns"
    return f"{number}: {said}"
