"""A kind of model in one file: naive Bayes whose numeric columns are Gaussian in each class, from their moments."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from learners.classifiers.recipes import schema_pass
from learners.models.model import ModelDefaults
from learners.models.parameters import Parameters
from learners.passes.statistic import CodeStatistic
from learners.registry.column_graphs import structure_column_graph
from learners.registry.kind import Kind
from learners.registry.recipes import Recipe
from learners.schema import Schema


class ClassMoments(CodeStatistic):
    """Rows, sums and sums of squares of each number in each class: (3, n_classes, n_numbers) float64."""

    stage = "adding up numbers"

    def __init__(self, schema):
        self.schema = schema
        self.sums = np.zeros((3, schema.n_classes, len(schema.continuous)))

    @property
    def spec(self):
        return {"statistic": "class moments"}

    def under(self, schema):
        return ClassMoments(schema)

    def update(self, rows):
        for k in range(self.schema.n_classes):
            numbers = rows.numbers[:, rows.y == k]
            powers = (~np.isnan(numbers), numbers, numbers**2)
            self.sums[:, k] += [np.nansum(power, axis=1) for power in powers]

    def _combine(self, other, sign):
        self.sums += sign * other.sums

    def to_arrow(self):
        return pa.table({"sum": self.sums.ravel()})

    def from_arrow(self, table):
        read = self.empty()
        read.sums = table["sum"].to_numpy().reshape(self.sums.shape).copy()
        return read


class GaussianNaiveBayes(ModelDefaults):
    """P(class) and, in each class, a Gaussian of each number; what is missing is summed out."""

    kind = "gaussian naive bayes"

    def __init__(self, schema, sums, facts):
        self.schema, self.sums, self.facts = schema, sums, dict(facts)
        n, total, squares = sums
        self.means = total / np.maximum(n, 1)
        self.variances = np.maximum(squares / np.maximum(n, 1) - self.means**2, 1e-9)
        self.log_prior = np.log(np.array(facts["class_counts"]) + 1.0)

    def predict_proba(self, chunk):
        apart = chunk.numbers[:, :, np.newaxis] - self.means.T[:, np.newaxis]
        variances = self.variances.T[:, np.newaxis]
        logs = self.log_prior + np.nansum(-0.5 * (np.log(variances) + apart**2 / variances), axis=0)
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def structure(self):
        names = [self.schema.attributes[i].name for i in self.schema.continuous]
        nodes = [{"name": self.schema.target, "role": "class"}]
        nodes += [{"name": name, "role": "attribute"} for name in names]
        return {"nodes": nodes, "edges": [{"from": self.schema.target, "to": name} for name in names]}

    def to_arrays(self):
        return {"kind": self.kind, "schema": self.schema.to_json(), "facts": self.facts}, {"sums": self.sums}

    @classmethod
    def from_arrays(cls, header, arrays):
        return cls(Schema.from_json(header["schema"]), arrays["sums"], header["facts"])

    def tables(self):
        return {"moments": pa.table({"mean": self.means.ravel(), "variance": self.variances.ravel()})}


@dataclass(frozen=True)
class GaussianParameters(Parameters):
    """How many values a column may have."""

    max_values: int = 1000


def gaussian_naive_bayes(target, parameters, given=None, overrides=None):
    """One pass after the schema."""
    schema = yield from schema_pass(target, given, overrides or {}, parameters.max_values)
    gaussian = [replace(a, distribution="gaussian") if a.kind == "numeric" else a for a in schema.attributes]
    schema = replace(schema, attributes=tuple(gaussian))
    moments = yield ClassMoments(schema)
    counts = moments.sums[0].max(axis=1).astype(int).tolist()
    facts = {"learner": "gaussian-nb", "parameters": asdict(parameters), "n_rows": sum(counts), "class_counts": counts}
    return GaussianNaiveBayes(schema, moments.sums, facts)


GAUSSIAN_NAIVE_BAYES = Kind(GaussianNaiveBayes, graph=lambda model: structure_column_graph(model.structure()))
GAUSSIAN_NB = Recipe("naive Bayes of Gaussian numbers", GaussianParameters, gaussian_naive_bayes, 1, keeps_schema=False)
