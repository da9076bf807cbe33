"""A kernel is machine code that every user compiles: their number falls, or somebody says why not."""

import re

from tests.kernels.kernel_table import TABLE, kernels

# EM of hidden trees needs two of its own: as matrix products it takes twelve times as many edges a second (docs/results/density.md).
# Four compute SHAP values of trees, for which each model kept XGBoost's form of its trees, too.
# Five restore packed tables of ensembles, which halve stored models (docs/results/model-size.md): each row needs one restored before it, so numpy cannot.
MOST_KERNELS = 321
MOST_SIGNATURES = 355
LINES = TABLE.read_text().splitlines()


def test_every_kernel_is_in_the_table_and_there_are_no_more_than_before():
    """`make kernels` writes the table anew."""
    names = {name for name, _ in kernels()}
    assert names <= {re.split(r"[(:]", line)[0] for line in LINES}
    assert len(names) <= MOST_KERNELS


def test_kernels_are_compiled_for_no_more_types_than_before():
    assert sum(not line.endswith(": never compiled") for line in LINES) <= MOST_SIGNATURES


def test_precompiling_leaves_no_kernel_of_the_default_learner():
    never = [line for line in LINES if line.endswith(": never compiled")]
    assert never and not [line for line in never if re.match(r"learners\.(ensembles|classifiers\.lookup)\.", line)]
