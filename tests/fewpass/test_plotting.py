"""Pictures of estimators: what is drawn is what the numbers say."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import fewpass
from learners.errors import InvalidParameter, NoClass, NoImportances
from learners.registry.column_graphs import NoGraph
from learners.registry.kind import NoChains
from learners.registry.model_kinds import kind_of
from service.product.views.pictures import BLUE, RED

N = 1500


@pytest.fixture(scope="module", autouse=True)
def plt():
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    late = rng.random(N) < 0.4
    size = rng.normal(np.where(late, 6.0, 4.0), 1.0)
    where = np.where(rng.random(N) < 0.8, np.where(size > 5, "north", "south"), "$west$")
    more = {f"weight {i}": rng.normal(late + size, 1.0 + i) for i in range(4)}
    return pd.DataFrame({"where": where, "size": size} | more | {"late": late.astype(str)})


@pytest.fixture(scope="module")
def model(frame):
    return fewpass.KDB(k=1).fit(frame, "late")


@pytest.fixture(scope="module")
def posterior(frame):
    return fewpass.StructurePosterior().fit(frame[["where", "late"]])


def words_of(axes):
    return {text.get_text() for text in axes.texts}


def test_structure_has_a_box_for_each_column_and_an_arrow_for_each_edge(model, posterior, plt):
    axes = model.plot.structure()
    assert words_of(axes) >= {"late", "where", "size"} and len(axes.patches) == len(axes.texts) + len(
        kind_of(model.model_).graph(model.model_).edges
    )
    assert all(text.get_window_extent().width < axes.figure.bbox.width for text in axes.texts)
    given = plt.subplots()[1]
    assert posterior.plot.structure(given) is given and words_of(given) == {"where", "late"}
    axes.figure.canvas.draw()


def test_calibration_is_that_of_the_report(model, frame):
    axes = model.plot.calibration(frame)
    found = model.report(frame).numbers
    (line,) = [line for line in axes.lines if line.get_label() == "KDB"]
    assert line.get_xydata().tolist() == [[point.confidence, point.right] for point in found.calibration]
    assert axes.get_title() == found.verdict


def test_importance_has_the_greatest_on_top(model):
    axes = model.plot.importance()
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(model.feature_importances_, reverse=True)
    assert axes.get_yticklabels()[0].get_text() == model.feature_names_in_[model.feature_importances_.argmax()]


def test_drift_marks_the_column_that_has_moved(model, frame):
    moved = frame.assign(size=frame["size"] + 3)
    for axes in (model.plot.drift(moved), model.plot.drift(moved.to_dict("records"), against=frame)):
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert names[0] == "size" and axes.patches[0].get_facecolor() == mpl.colors.to_rgba(RED)
    axes = model.plot.drift(frame)
    assert axes.get_title() == "No alarm."
    assert {bar.get_facecolor() for bar in axes.patches} == {mpl.colors.to_rgba(BLUE)}


def test_trace_has_a_line_for_each_chain(frame):
    sampled = fewpass.CircuitPosterior(iterations=4).fit(frame[["where", "late"]][:50])
    assert "chain 1" in [line.get_label() for line in sampled.plot.trace().lines]


def test_what_cannot_be_drawn_is_told(model, posterior, frame):
    circuit = fewpass.SumProductNetwork(states=2).fit(frame[["where", "late"]])
    for error, draw in (
        (NoGraph, circuit.plot.structure),
        (NoChains, model.plot.trace),
        (NoImportances, posterior.plot.importance),
        (NoClass, lambda: circuit.plot.calibration(frame)),
        (InvalidParameter, lambda: circuit.plot.drift(frame)),
        (InvalidParameter, lambda: model.plot.importance(ax=3)),
    ):
        with pytest.raises(error):
            draw()
