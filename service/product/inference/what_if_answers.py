"""The what-if explorer: every answer of a model about one case.

Each part is what another verb answers; a part that a model cannot answer has the reason instead, and the others are
answered.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field

from learners.circuits.model import CircuitModel
from learners.circuits.queries.likelihoods import SEVERAL, settled_columns
from learners.errors import Cancelled, LearnerError, NoClass, UnknownColumn
from learners.models.evidence import Evidence, Known, RawValue
from learners.models.explanation import explain
from learners.models.model import Model
from learners.models.query import Conditional, Edges, Map, Marginal, Moments
from learners.registry.model_kinds import kind_of, structure_posterior
from learners.schema import Chunk, Schema
from learners.schema.encoding.json_records import encode_json_records, json_number_reader
from learners.schema.value_choices import attribute_value_choices
from service.product.inference.queries import answer_model_queries, non_finite_to_none, queryable_circuit
from service.requests.abandonment import check_still_asked
from service.requests.first_findings import Body
from service.requests.json_values import JSONObject
from service.serving.predictor import Served

Part = Literal["prediction", "interval", "contributions", "posterior", "completion", "edges"]
PARTS: tuple[Part, ...] = ("prediction", "interval", "contributions", "posterior", "completion", "edges")
# What a model predicts of its class, not the joint distribution of any column.
OF_CLASS = ("prediction", "interval", "contributions")
# A question of more values would go through the circuit once for each.
MAX_ANSWERS = 64
MOST_NAMES = 10_000  # of columns or edges


class NoAnswer(LearnerError, ValueError):
    """Raised for a part that does not exist for this model or this evidence."""


def _distinct(names: list[Any]) -> list[Any]:
    """Return the distinct names in order."""
    return list(dict.fromkeys(names))


Names = Annotated[list[str], Field(max_length=MOST_NAMES), AfterValidator(_distinct)]


class WhatIfRequest(Body):
    """A case: the values supposed for some columns, and the requested parts of the answer."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    evidence: dict[str, Known] = Field(
        default_factory=dict,
        description="Null means that the value is missing. An omitted column is unknown. A list is a set of values. The label of an "
        "interval, such as `(22.5, inf]`, stands for every number in it.",
        examples=[{"outlook": ["sunny", "rain"], "humidity": 71.5}],
    )
    likely: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="Weights by value.", examples=[{"windy": {"True": 0.8, "False": 0.2}}]
    )
    do: dict[str, RawValue] = Field(
        default_factory=dict,
        description="Interventions: columns of a network set from outside, regardless of their causes.",
        examples=[{"outlook": "sunny"}],
    )
    target: str | None = Field(default=None, description="The column to answer for; the class by default.")
    level: float = Field(
        default=0.9,
        gt=0,
        lt=1,
        description="Level of the bounds for the sampling error of the training rows, given structure, weights and trees.",
    )
    parts: Annotated[list[Part], Field(max_length=len(PARTS)), AfterValidator(_distinct)] = Field(
        default_factory=lambda: list(PARTS), description="All unless given."
    )
    columns: Names | None = Field(default=None, description="Columns whose distributions to return; all by default.")
    present: Names = Field(
        default_factory=list,
        description="Edges known to be present, for posteriors over structures.",
        examples=[["a->b"]],
    )
    absent: Names = Field(default_factory=list, description="Edges known to be absent.")
    time_limit_s: float = Field(
        default=0.3, ge=0, le=60, description="Time limit of the search for the most probable completion."
    )
    best: int = Field(default=1, ge=1, le=20, description="Number of most probable completions to return.")

    @property
    def single(self) -> dict[str, RawValue]:
        """Return the columns with a single value."""
        return {name: value for name, value in self.evidence.items() if not isinstance(value, SEVERAL)}

    @property
    def several(self) -> list[str]:
        """Return the columns with several possible values."""
        return [*(name for name, value in self.evidence.items() if isinstance(value, SEVERAL)), *self.likely]


def answer_what_if(served: Served, case: WhatIfRequest, pause: Callable[[], None] = check_still_asked) -> JSONObject:
    """Answer every part of a case: `parts` by name, and in `absent` the reason for each part without an answer.

    `pause` is called before each part and while queries are answered; what it raises ends the answering.
    Raises UnknownColumn of evidence or a question that the model has no column for; InvalidEvidence, SchemaError or
    InvalidRequest of a value that a column cannot have.
    """
    model = served.model
    target = case.target if case.target is not None else model.schema.target
    names = case.evidence | case.likely | case.do
    served.check_names([names], ignore_unknown=False, way_out="or take it out of the evidence")
    _check_names(model, target, case.columns or ())
    numbers = numbers_in_intervals(model.joint.schema, case.single | case.do)
    single = case.single | {name: number for name, number in numbers.items() if name in case.evidence}
    record = {name: value for name, value in single.items() if name != model.schema.target}
    chunk = encode_json_records([record], model.schema)
    # Other members of an ensemble cut a column elsewhere: there the prediction is that of one number of the interval.
    predicted_at = {} if model.answering_member is None else {name: record[name] for name in numbers if name in record}
    by_part: dict[Part, Callable[[], JSONObject]] = {
        "prediction": lambda: _prediction(served, chunk) | ({"predicted_at": predicted_at} if predicted_at else {}),
        "interval": lambda: _interval(served, case, chunk),
        "contributions": lambda: _contributions(served, chunk),
        "posterior": lambda: _posterior(model, case, target, pause),
        "completion": lambda: _completion(model, case, pause),
        "edges": lambda: _edges(model, case),
    }
    parts: dict[str, JSONObject] = {}
    absent: dict[str, str] = {}
    for part in case.parts:
        pause()
        try:
            if part in OF_CLASS:
                _check_asks_class(served, case, target)
            parts[part] = by_part[part]()
        except Cancelled:
            raise
        except LearnerError as reason:
            absent[part] = str(reason)
    return {
        "model": served.name,
        "version": served.version,
        "kind": model.kind,
        "target": target,
        "parts": parts,
        "absent": absent,
        "warnings": [
            *unseen_value_warnings(served.schema, case.single | case.do | numbers),
            *_two_answers(model, case, parts),
        ],
    }


def numbers_in_intervals(schema: Schema, evidence: Mapping[str, RawValue]) -> dict[str, RawValue]:
    """Return a number, or a time, in each interval that the evidence names by its label."""
    numbers: dict[str, RawValue] = {}
    for attribute in schema.attributes:
        label = evidence.get(attribute.name)
        if attribute.kind == "numeric" and isinstance(label, str):
            number = dict(attribute_value_choices(attribute)).get(label)
            if number is not None:
                numbers[attribute.name] = number
    return numbers


def _two_answers(model: Model, case: WhatIfRequest, parts: Mapping[str, JSONObject]) -> list[str]:
    """Explain why prediction and posterior differ: one sentence for each missing value that causes it."""
    if kind_of(model).is_circuit or not {"prediction", "posterior"} <= parts.keys():
        return []
    return [
        f"{name} is missing: the posterior treats this as a value, as in training; the prediction also considers that the value is "
        "hidden by chance, so it may differ."
        for name, value in evidence_for_queries(model, case.single).items()
        if case.single[name] is None
    ]


def unseen_value_warnings(schema: Schema, evidence: Mapping[str, RawValue]) -> list[str]:
    """Return one sentence for each evidence value that training never saw: numbers out of range, unknown categories."""
    warnings = []
    for attribute in schema.attributes:
        value = evidence.get(attribute.name)
        if value is None:
            continue
        if attribute.kind == "nominal":
            if value not in attribute.values and not attribute.n_folded:
                warnings.append(f"{attribute.name} = {value}: training never saw this value.")
        elif attribute.quantiles:
            number, least, most = json_number_reader(attribute)(value), attribute.quantiles[0], attribute.quantiles[-1]
            if not least <= number <= most:
                low, high = (attribute.number_in_words(bound) for bound in (least, most))
                warnings.append(f"{attribute.name} = {value} is outside the range of training, {low} to {high}.")
    return warnings


def evidence_for_queries(model: Model, evidence: Evidence) -> dict[str, Known]:
    """Convert evidence for queries, where null means unknown: a missing value becomes its label.

    If training saw no missing value of a column, or a circuit sums it out, null means unknown, as in a prediction.
    """
    summed_out = model.columns_without_missing_state()
    attributes = {each.name: each for each in model.schema.attributes if each.name not in summed_out}
    known: dict[str, Known] = {}
    for name, value in evidence.items():
        if value is not None:
            known[name] = value
        elif name in attributes and attributes[name].has_missing:
            known[name] = attributes[name].unique_labels()[0]
    return known


def _check_names(model: Model, target: str | None, columns: Sequence[str]) -> None:
    names = [attribute.name for attribute in model.schema.attributes]
    if model.schema.target is not None:
        names.append(model.schema.target)
    for name in (*(() if target is None else (target,)), *columns):
        if name not in names:
            raise UnknownColumn(name, names)


def _check_asks_class(served: Served, case: WhatIfRequest, target: str | None) -> None:
    if case.do:
        raise NoAnswer(
            f"Predictions do not support interventions, and {min(case.do)!r} is set by do: the posterior answers."
        )
    if case.several:
        raise NoAnswer(
            f"Predictions need a single value for each known column, and {case.several[0]!r} has several: the posterior answers."
        )
    if served.schema.target is None:
        raise NoClass
    if target != served.schema.target:
        raise NoAnswer(f"Predictions are of {served.schema.target!r}; this view answers for {target!r}.")


def _prediction(served: Served, chunk: Chunk) -> JSONObject:
    """Return the model's prediction, and its prediction without evidence."""
    nothing = encode_json_records([{}], served.schema)
    probabilities = served.predict_proba(chunk)[0]
    return {
        "classes": served.classes,
        "probabilities": probabilities.tolist(),
        "prior": served.predict_proba(nothing)[0].tolist(),
        "prediction": served.classes[int(probabilities.argmax())],
        "entropy": _entropy(probabilities),
    }


def _interval(served: Served, case: WhatIfRequest, chunk: Chunk) -> JSONObject:
    low, high = served.model.credible_intervals(chunk, case.level)
    return {"level": case.level, "low": low[0].tolist(), "high": high[0].tolist()}


def _contributions(served: Served, chunk: Chunk) -> JSONObject:
    """Return the contribution of each evidence value; unknown columns contribute nothing."""
    explanation = explain(served.model, chunk)
    own = explanation.contributions[0]
    names = [attribute.name for attribute in served.schema.attributes]
    terms: list[JSONObject] = [
        {"column": name, "log_odds": non_finite_to_none(value)}
        for name, value in zip(names, own.tolist(), strict=True)
        if value
    ]
    terms.sort(key=lambda term: -math.inf if term["log_odds"] is None else -abs(term["log_odds"]))
    return {
        "prediction": served.classes[int(explanation.predicted[0])],
        "against": served.classes[int(explanation.against[0])],
        "log_odds": non_finite_to_none(float(explanation.log_odds[0])),
        "prior": non_finite_to_none(float(explanation.prior[0])),
        "contributions": terms,
    }


def _posterior(model: Model, case: WhatIfRequest, target: str | None, pause: Callable[[], None]) -> JSONObject:
    """Answer with the joint distribution: surprise of the evidence, the posterior of every column, and the most
    informative column to ask next.

    One pass with the evidence, and one with the evidence and each answer y of the question. From P(x | e, y) of every
    column follow P(x | e) = sum_y P(y | e) P(x | e, y) and the entropy that x is expected to take off the question,
    I(Y; X | e) = sum_y P(y | e) KL(P(x | e, y), P(x | e)).
    """
    known = _known(model, case)
    discrete, numeric = _free(queryable_circuit(model), {**known["evidence"], **case.do})
    (of_evidence,) = answer_model_queries(model, [Marginal(**known)], pause)
    log_evidence = of_evidence["log_probability"]
    distributions: dict[str, Mapping[str, float]] = {}
    if discrete and log_evidence is not None:
        distributions = answer_model_queries(model, [Conditional(discrete, **known)], pause)[0]["distributions"]
    columns = set(distributions if case.columns is None else case.columns)
    posterior: JSONObject = {
        "log_evidence": log_evidence,
        "surprise": None if log_evidence is None else -log_evidence,
        "is_density": "density" in of_evidence,
        "distributions": {name: dict(own) for name, own in distributions.items() if name in columns or name == target},
        "given": _given_labels(model, case.single | case.do),
    }
    if case.do:
        posterior["intervention"] = of_evidence["intervention"]
    if numeric and log_evidence is not None:
        posterior["moments"] = answer_model_queries(model, [Moments(numeric, **known)], pause)[0]["moments"]
    if model.answering_member is not None:
        posterior["member"] = model.answering_member
    if target is not None:
        posterior |= _about(model, known, target, distributions, pause)
    return posterior


def _known(model: Model, case: WhatIfRequest) -> dict[str, Any]:
    """Return the evidence in the form of queries."""
    return {"evidence": evidence_for_queries(model, case.evidence), "likely": case.likely, "do": case.do}


def _given_labels(model: Model, evidence: Mapping[str, RawValue]) -> dict[str, str]:
    """Return the label of each evidence value, such as the interval of a number."""
    schema = model.joint.schema
    unknown = model.columns_without_missing_state()
    record = {
        name: value
        for name, value in {**evidence, **numbers_in_intervals(schema, evidence)}.items()
        if name != schema.target and not (value is None and name in unknown)
    }
    codes = encode_json_records([record], schema).x[:, 0].tolist()
    return {
        attribute.name: attribute.unique_labels()[code]
        for attribute, code in zip(schema.attributes, codes, strict=True)
        if attribute.name in record and code < attribute.n_values
    }


def _free(model: CircuitModel, evidence: Evidence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the discrete and the numeric columns that are not given."""
    columns = model.columns
    settled = settled_columns(evidence)
    free = [v for v in columns.circuit.scope(columns.circuit.root) if columns.names[v] not in settled]
    discrete = tuple(columns.names[v] for v in free if columns.n_values[v])
    return discrete, tuple(columns.names[v] for v in free if not columns.n_values[v])


def _about(
    model: Model,
    known: dict[str, Any],
    target: str,
    distributions: Mapping[str, Mapping[str, float]],
    pause: Callable[[], None],
) -> JSONObject:
    """Return the distribution of the target, and how much each other column would reveal about it."""
    if target not in distributions:
        reason = (
            f"{target!r} is given."
            if target in known["evidence"] or target in known["do"]
            else f"{target!r} has no distribution: it is numeric, not in the model, or the evidence is impossible."
        )
        return {"question": None, "ask_next": None, "why_no_question": reason}
    own = distributions[target]
    possible = [(label, p) for label, p in own.items() if p > 0]
    is_many = len(possible) > MAX_ANSWERS
    if is_many or len(distributions) == 1:
        reason = f"More than {MAX_ANSWERS} answers are possible." if is_many else "Every other column is given."
        return {"question": dict(own), "ask_next": None, "why_no_question": reason}
    # With its value known, what else is known of the target says nothing more.
    known = known | {"likely": {name: weights for name, weights in known["likely"].items() if name != target}}
    queries = [Conditional(**known | {"evidence": {**known["evidence"], target: label}}) for label, _ in possible]
    each = [answer["distributions"] for answer in answer_model_queries(model, queries, pause)]
    weights = np.array([p for _, p in possible])
    return {"question": dict(own), "entropy": _entropy(weights), "ask_next": _drops(weights / weights.sum(), each)}


def _drops(weights: np.ndarray, each: Sequence[Mapping[str, Mapping[str, float]]]) -> list[JSONObject]:
    """Return I(Y; X | e) of every column X that is not given, in nats, largest first."""
    drops: list[JSONObject] = []
    for name in each[0] if each else ():
        table = np.array([list(answer[name].values()) for answer in each])  # (n_answers, n_values)
        mean = weights @ table
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(table > 0, table * np.log(table / mean), 0.0)
        drops.append({"column": name, "entropy_drop": max(0.0, float(weights @ terms.sum(axis=1)))})
    return sorted(drops, key=lambda drop: (-drop["entropy_drop"], drop["column"]))


def _completion(model: Model, case: WhatIfRequest, pause: Callable[[], None]) -> JSONObject:
    """Return the most probable values of all columns that are not given."""
    query = Map(**_known(model, case), time_limit_s=case.time_limit_s, best=case.best)
    return answer_model_queries(model, [query], pause)[0]


def _edges(model: Model, case: WhatIfRequest) -> JSONObject:
    if (posterior := structure_posterior(model)) is None:
        raise NoAnswer(
            f"A model of kind {model.kind!r} has one structure; a posterior over structures (learner orders) has edges to suppose."
        )
    return dict(posterior.answer([Edges(present=tuple(case.present), absent=tuple(case.absent))])[0])


def _entropy(probabilities: np.ndarray) -> float:
    """Entropy of a distribution, in nats."""
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())
