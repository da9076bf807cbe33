"""Pictures of a fitted estimator: matplotlib axes in, axes out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from learners.errors import InvalidArgument, InvalidParameter, require_matplotlib
from learners.estimators.columns import KnownColumns
from learners.estimators.table_inputs import are_paths, rows_as_record_batches
from learners.models.graph_layout import layered_graph_layout, trim_edge_route_to_nodes, truncate_xml_text
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_report import drift_report
from learners.monitoring.reference import served_reference, training_reference
from learners.monitoring.served_counts import ServedCounts
from learners.passes.engine import collect
from learners.passes.sources.csv.types import declared_text_types
from learners.passes.sources.row_streams import source_from_row_stream
from learners.passes.sources.source import Source
from learners.registry.importance import column_importances
from learners.registry.model_kinds import kind_of
from service.product.views.graph_svg import LONGEST, Box
from service.product.views.pictures import BLUE, RED, draw_reliability_on_axes, draw_trace_on_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from service.product.versions.fitted_models import Fitted

MOST_BARS = 30
TEXT, FILL, RIM, CLASS_FILL, EDGE = "#1b2733", "#f6f8fa", "#4e5d6c", "#fff3c4", "#7a8896"
PIXELS = 100.0  # of the layout to an inch
LETTERS, MARGIN = 12.0, 14.0
THINNEST, WIDEST = 0.8, 4.0


class Plots:
    """Pictures of a fitted estimator, as `model.plot`. Each method draws on the given axes or new ones, and returns
    them.

    Parameters
    ----------
    estimator : fitted estimator
    fitted : Fitted
        What is kept of it.
    """

    def __init__(self, estimator: Any, fitted: Fitted) -> None:
        require_matplotlib("model.plot")
        self._estimator = estimator
        self._columns = KnownColumns(type(estimator).__name__, fitted.model, fitted.columns, fitted.is_named)

    def __call__(self, *_args: object, **_keywords: object) -> None:
        """Refuse a call of `model.plot` itself, naming its methods. Raises TypeError."""
        methods = [f"model.plot.{name}()" for name in vars(Plots) if not name.startswith("_")]
        raise TypeError(f"model.plot() draws nothing by itself: call {', '.join(methods[:-1])} or {methods[-1]}.")

    def structure(self, ax: Axes | None = None) -> Axes:
        """Draw the network with parents above children and edge widths by information; for a posterior the best graph,
        with other edges dashed.

        The class is a parent of every column; those edges are left out.

        Raises
        ------
        NoGraph
            If the model has no graph between columns, as circuits and trees have none.
        """
        model = self._columns.model
        graph = kind_of(model).graph(model)
        boxes = [Box(name, None, "") for name in graph.columns]
        place = {name: number for number, name in enumerate(graph.columns)}
        ends = [(place[edge.source], place[edge.sink]) for edge in graph.edges]
        spots = layered_graph_layout([box.width for box in boxes], ends)
        root = [] if graph.target is None else [Box(graph.target, None, "")]
        top = sum(box.height + 2 * MARGIN for box in root)
        width, height = max([spots.width, *(box.width + 2 * MARGIN for box in root)]), spots.height + top
        axes = _axes(ax, width / PIXELS, height / PIXELS, is_bare=True)
        axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
        axes.set_axis_off()
        axes.apply_aspect()
        across = axes.transData.transform([(0.0, 0.0), (1.0, 0.0)])[:, 0]
        size = LETTERS * (across[1] - across[0]) * 72 / axes.figure.dpi
        most = 1.0 if graph.unit == "probability" else max((edge.weight for edge in graph.edges), default=0.0) or 1.0
        for edge, route in zip(graph.edges, spots.routes, strict=True):
            path = trim_edge_route_to_nodes(route, boxes[place[edge.source]].height, boxes[place[edge.sink]].height)
            wide = THINNEST + (WIDEST - THINNEST) * edge.weight / most
            _arrow(axes, [(x, y + top) for x, y in path], wide)
        for edge in graph.others:
            at = [(spots.x[n], spots.y[n] + top) for n in (place[edge.source], place[edge.sink])]
            _arrow(axes, at, THINNEST + (WIDEST - THINNEST) * edge.weight, linestyle="--", alpha=0.6)
        for box in root:
            _box(axes, box, width / 2, MARGIN + box.height / 2, size, CLASS_FILL)
        for box, x, y in zip(boxes, spots.x, spots.y, strict=True):
            _box(axes, box, x, y + top, size, FILL)
        return axes

    def calibration(self, X: Any, y: Any = None, ax: Axes | None = None) -> Axes:
        """Draw how often the predicted class is right against its predicted probability.

        Parameters
        ----------
        X, y : table and classes
            As of `report`: best rows that training has not seen.

        Raises
        ------
        As `report`.
        """
        numbers = self._estimator._report_numbers(X, y)
        axes = _axes(ax, 5, 5)
        draw_reliability_on_axes(axes, [(type(self._estimator).__name__, numbers.calibration)])
        axes.set_title(numbers.verdict, fontsize="small", wrap=True)
        return axes

    def importance(self, ax: Axes | None = None) -> Axes:
        """Draw `feature_importances_` as bars, largest on top; at most 30 columns.

        Raises
        ------
        NoImportances
            If the model has none.
        """
        names = self._columns.names
        shares = column_importances(self._columns.model, names)
        first = np.argsort(-shares, kind="stable")[:MOST_BARS]
        return _bars(
            ax, [names[i] for i in first], shares[first].tolist(), "share of information in each column of the class"
        )

    def drift(self, X: Any, against: Any = None, ax: Axes | None = None) -> Axes:
        """Draw how far each column of the rows is from the training data, in log loss per row; alarms are red.

        Parameters
        ----------
        X : table
            The rows to judge.
        against : table, optional
            What to compare them with instead of the rows of training.

        Raises
        ------
        InvalidParameter
            If the model keeps no counts of its training, and `against` is not given.
        EmptyData, SourceError, SchemaError
        """
        watched = Watched(self._columns.model)
        known = (
            training_reference(watched)
            if against is None
            else served_reference("other rows", self._counts(watched, against))
        )
        if known is None:
            text = f"a model of kind {watched.model.kind!r} keeps no counts of its training. Pass rows to compare with"
            raise InvalidParameter("against", None, because=text)
        report: Any = drift_report(self._counts(watched, X), known)
        columns = report["columns"][:MOST_BARS]
        colors = [RED if column["is_alarming"] else BLUE for column in columns]
        names, sizes = [column["column"] for column in columns], [column["family_nats"] for column in columns]
        axes = _bars(ax, names, sizes, "change, in log loss per row", colors)
        words = report["causes"][0]["words"] if report["causes"] else "No alarm."
        axes.set_title(words, fontsize="small", wrap=True)
        return axes

    def trace(self, ax: Axes | None = None) -> Axes:
        """Draw the chains of a `CircuitPosterior`: the log joint of each sweep, and the share of accepted
        proposals.

        Raises
        ------
        NoChains
            If the model was not sampled.
        """
        model = self._columns.model
        trace = kind_of(model).trace(model)
        axes = _axes(ax, 8, 5)
        draw_trace_on_axes(axes, trace)
        return axes

    def _counts(self, watched: Watched, X: Any) -> ServedCounts:
        source = self._source_of(X)
        self._columns.check_names([name for name in source.arrow_schema.names if name != watched.schema.target])
        return collect(ServedCounts(watched, present=source.arrow_schema.names), source)

    def _source_of(self, X: Any) -> Source:
        if are_paths(X) or isinstance(X, Source):
            return X if isinstance(X, Source) else Source.open(X, types=declared_text_types(self._columns.model.schema))
        rows = rows_as_record_batches(X, self._estimator)
        by_position = self._columns.names_by_position(len(rows.arrow_schema), rows.is_named)
        rows = rows if by_position is None else rows.renamed(by_position)
        return source_from_row_stream(rows.arrow_schema, rows.batches, "rows")


def _axes(ax: Axes | None, width: float, height: float, *, is_bare: bool = False) -> Axes:
    """Return the given axes, or new ones of `width` by `height` inches; bare axes fill their figure."""
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes

    if ax is not None:
        if not isinstance(ax, Axes):
            raise InvalidArgument("ax", ax, "matplotlib axes, such as those of plt.subplots()")
        return ax
    figure = plt.figure(figsize=(width, height), layout=None if is_bare else "constrained")
    axes: Axes = figure.add_axes((0, 0, 1, 1)) if is_bare else figure.add_subplot()
    return axes


def _bars(ax: Axes | None, names: list[str], sizes: list[float], label: str, colors: Any = None) -> Axes:
    axes = _axes(ax, 6, 0.8 + 0.28 * len(names))
    places = np.arange(len(names))
    axes.barh(places, sizes, color=BLUE if colors is None else colors)
    axes.set_yticks(places, [truncate_xml_text(name, LONGEST) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    return axes


def _box(axes: Axes, box: Box, x: float, y: float, size: float, fill: str) -> None:
    from matplotlib.patches import Rectangle

    corner = (x - box.width / 2, y - box.height / 2)
    axes.add_patch(Rectangle(corner, box.width, box.height, facecolor=fill, edgecolor=RIM, zorder=2))
    axes.text(
        x,
        y,
        truncate_xml_text(box.name, LONGEST),
        size=size,
        color=TEXT,
        ha="center",
        va="center",
        zorder=3,
        parse_math=False,
    )


def _arrow(axes: Axes, route: list[tuple[float, float]], width: float, **style: Any) -> None:
    """Draw an edge that is vertical at its bends, as `graph_layout.svg_edge_path` does."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    points, codes = [route[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in itertools.pairwise(route):
        middle = (y0 + y1) / 2
        points += [(x0, middle), (x1, middle), (x1, y1)]
        codes += [Path.CURVE4] * 3
    arrow = FancyArrowPatch(
        path=Path(points, codes), arrowstyle="-|>", mutation_scale=9, linewidth=width, color=EDGE, zorder=1, **style
    )
    axes.add_patch(arrow)
