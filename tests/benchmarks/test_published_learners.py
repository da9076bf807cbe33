"""Tables beside published results, and recalibrations."""

import numpy as np
import pytest

from benchmarks.published_learners import (
    N_FOLDS,
    RECALIBRATIONS,
    log_loss,
    normalised,
    published_page,
    recalibrated,
    small_page,
)


def answers_of(seed, n, power):
    """Probabilities of three classes and the classes; those drawn from the probabilities to a power are sharper than true."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return normalised(p**power), y


@pytest.mark.parametrize("name", sorted(RECALIBRATIONS))
def test_recalibrations_answer_distributions_and_mend_answers_that_are_too_sharp(name):
    p, y = answers_of(0, 4000, 3.0)
    mended = RECALIBRATIONS[name](p[:2000], y[:2000])(p[2000:])
    assert mended.sum(axis=1) == pytest.approx(1.0) and (mended > 0).all()
    assert log_loss(mended, y[2000:]) < 0.9 * log_loss(p[2000:], y[2000:])


def test_calibrated_answers_hardly_change_and_unknown_classes_cost_the_most():
    p, y = answers_of(1, 4000, 1.0)
    losses = recalibrated(p, y, 0)
    assert losses.keys() == RECALIBRATIONS.keys()
    assert losses["temperature"] == pytest.approx(log_loss(p, y), rel=0.01)
    assert log_loss(p[:1], np.array([-1])) == pytest.approx(-np.log(1e-12))


def test_pages_hold_the_sets_of_which_all_folds_are_there():
    whole = [
        {"set": "car", "part": "half", "rows": 10, "loss": loss} | dict.fromkeys(RECALIBRATIONS, 0.5)
        for loss in (0.1, 0.3)
    ]
    page = published_page([*whole, whole[0] | {"set": "iris"}], {"car": ("SVM", 0.05), "iris": ("STG", 0.1)})
    assert N_FOLDS["half"] == 2 and "| half | 1 | 4.000 | 0 | 1: car |" in page
    assert "| car | SVM | 0.0500 | 0.2000 |" in page and "iris" not in page
    line = {"set": "car", "size": 50, "shares": 1.0, "auto": 0.5, "nb": 0.4}
    assert "| 50 | 1 | 0.500, 0.500 (car) | 1.250, 1.250 (car) | car 1.250 |" in small_page([line])
