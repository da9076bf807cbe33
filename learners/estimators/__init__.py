"""The learners as scikit-learn estimators."""

import sys

from learners.estimators.circuits import SumProductNetwork
from learners.estimators.classifier import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier
from learners.estimators.structure_posterior import StructurePosterior
from learners.passes import learner
from learners.passes.sources import source_files
from learners.schema import hash_kernels
from learners.schema.encoding import column_code_kernels

__all__ = ["ESKDB", "KDB", "NB", "SKDB", "TAN", "FewPassClassifier", "StructurePosterior", "SumProductNetwork"]

# Where pickles of estimators from before 28 November 2026 look for classes that have moved since.
sys.modules |= {
    "learners.passes.sources.content": source_files,
    "learners.passes.sources.file_sets": source_files,
    "learners.passes.sources.files": source_files,
    "learners.passes.stored_statistics": learner,
    "learners.schema.encoding.batch_kernels": column_code_kernels,
    "learners.schema.encoding.string_kernels": hash_kernels,
}
