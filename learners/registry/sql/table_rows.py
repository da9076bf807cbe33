"""Predict every row of a table from its codes: complete rows, and rows with missing values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from learners.classifiers.lookup.completeness import LIKELY, SURE
from learners.classifiers.lookup.elimination import MOST_COMBINATIONS
from learners.registry.sql.dialects import IMPOSSIBLE, Dialect, Query, balanced_sql_sum
from learners.registry.sql.encoding import add_encoding_step
from learners.registry.sql.sql_networks import Writable


def add_table_row_answers(
    query: Query, writable: Writable, table: str, shown: Sequence[str], absent: Collection[str]
) -> str:
    """Add the step with k0, k1, … and p0, p1, … of every row of a table: the shown columns, and class probabilities.

    `table`: in quotes.
    `shown`: columns of the table.
    `absent`: columns of the model that it does not have.
    """
    dialect, schema, used = query.dialect, writable.schema, writable.used
    sizes = schema.domain_sizes.tolist()
    keys = [f"k{i}" for i in range(len(shown))]
    renamed = [f"t.{dialect.identifier(column)} AS k{i}" for i, column in enumerate(shown)]
    coded = add_encoding_step(query, schema, used, table, renamed, absent)
    codes = [f"c{i}" for i in used]
    nullable = [i for i in used if schema.attributes[i].has_missing]
    has_null = " OR ".join(f"c{i} = {schema.attributes[i].missing_code}" for i in nullable)
    lacks = " OR ".join(f"c{i} >= {sizes[i]}" for i in writable.needed)
    cases = [f"WHEN {lacks} THEN {f'CASE WHEN {has_null} THEN 2 ELSE 1 END' if nullable else 1}"] * bool(lacks)
    cases += [f"WHEN {has_null} THEN 3"] * bool(nullable)
    mark = f"CASE {' '.join(cases)} ELSE 0 END" if cases else "0"
    marked = query.add("marked", [*keys, *codes, f"{mark} AS mark"], coded, is_shared=True)
    direct = _complete(query, writable, marked, keys)
    if not cases:
        return direct
    answers = ", ".join([*keys, *(f"p{k}" for k in query.classes)])
    parts = [direct]
    rest = f"{marked}\n  WHERE mark = 1"
    if nullable:
        nulls = _nulls(query, writable, marked, keys, nullable)
        parts.append(f"{nulls} WHERE is_told = 1")
        columns = ", ".join([*keys, *codes, "mark"])
        rest = (
            f"(SELECT {columns} FROM {rest}\n    UNION ALL SELECT {columns} FROM {nulls} WHERE is_told = 0) AS the_rest"
        )
    parts.append(_incomplete(query, writable, rest, keys, nullable))
    return query.add("answered", [answers], f"\n  UNION ALL SELECT {answers} FROM ".join(parts))


def _complete(query: Query, writable: Writable, marked: str, kept: Sequence[str]) -> str:
    """Add the step that predicts rows without missing values."""
    codes, where = [f"c{i}" for i in writable.used], f"{marked}\n  WHERE mark = 0"
    keyed = [*kept, *codes, f"{_key(query.dialect, codes)} AS row_key"]
    complete = query.add("complete", keyed, where, is_shared=True)
    source = query.add("different", ["row_key", *codes], complete, distinct=True, is_shared=True)
    scored = query.softmax(writable.add_scores(query, source), ["row_key"], writable.prior)
    answers = [*(f"m.{column}" for column in kept), *(f"a.p{k} AS p{k}" for k in query.classes)]
    return query.add("direct", answers, f"{complete} AS m JOIN {scored} AS a ON a.row_key = m.row_key")


def _nulls(query: Query, writable: Writable, marked: str, kept: Sequence[str], nullable: Sequence[int]) -> str:
    """Add the step for rows with nulls: codes, predictions where lookups suffice (`is_told`), and otherwise the mark
    for the next step.

    Mark 3 means that the row lacks nothing else; what remains of these rows is handled as mark 2. Rows of mark 2
    whose nulls are certainly values are handled as mark 1.
    """
    dialect, codes = query.dialect, [f"c{i}" for i in writable.used]
    keyed = [*kept, *codes, f"{_key(dialect, codes)} AS row_key"]
    nulls = query.add("nulls", [*keyed, "mark"], f"{marked}\n  WHERE mark IN (2, 3)", is_shared=True)
    source = query.add("different_nulls", ["row_key", *codes, "mark"], nulls, distinct=True, is_shared=True)
    whole = query.add("whole_nulls", ["row_key", *codes], f"{source} WHERE mark = 3", is_shared=True)
    scored = query.softmax(writable.add_scores(query, whole), ["row_key"], writable.prior)
    counted = ["row_key", *_counted(writable, nullable)]
    own = [f"{code} AS c{i}" for i, code in _hidden_codes(writable, nullable).items()]
    hidden = query.add("hidden_nulls", [*counted, *own, "mark"], source, is_shared=True)
    of_value, of_hidden = (writable.add_evidence(query, rows) for rows in (source, hidden))
    odds = f"CASE WHEN v.evidence < {IMPOSSIBLE} THEN -7e2 ELSE v.evidence - h.evidence - {LOG_HIDDEN} END AS log_odds"
    joins = (
        f"{hidden} AS m JOIN {of_value} AS v ON v.row_key = m.row_key JOIN {of_hidden} AS h ON h.row_key = m.row_key"
    )
    odds = query.add("null_odds", ["m.row_key", odds], joins + _factorials(query))
    weighted = query.add("null_weights", ["row_key", f"{_weight('log_odds')} AS w"], odds, is_shared=True)
    likely = f"{hidden} AS m JOIN {weighted} AS w ON w.row_key = m.row_key WHERE m.mark = 3 AND w.w >= {LIKELY} AND w.w < {SURE}"
    likely = query.add("likely", ["m.row_key", *(f"m.{code}" for code in codes)], likely, is_shared=True)
    other = writable.add_known(query, likely, by_look_ups=True)
    mixed = [
        f"CASE WHEN b.row_key IS NULL THEN a.p{k} ELSE w.w * a.p{k} + (1e0 - w.w) * b.p{k} END AS p{k}"
        for k in query.classes
    ]
    mark = f"CASE WHEN m.mark = 2 AND w.w >= {SURE} THEN 1 ELSE 2 END AS mark"
    columns = [*(f"m.{name}" for name in (*kept, *codes)), mark, *mixed]
    columns.append(f"CASE WHEN m.mark = 3 AND w.w >= {LIKELY} THEN 1 ELSE 0 END AS is_told")
    joins = (
        f"{nulls} AS m JOIN {weighted} AS w ON w.row_key = m.row_key LEFT JOIN {scored} AS a ON a.row_key = m.row_key"
    )
    joins += f" LEFT JOIN {other} AS b ON b.row_key = m.row_key"
    return query.add("nulls_looked_up", columns, joins, is_shared=True)


def _weight(log_odds: str) -> str:
    """Convert log odds to a probability."""
    clipped = f"CASE WHEN {log_odds} > 7e2 THEN 7e2 WHEN {log_odds} < -7e2 THEN -7e2 ELSE {log_odds} END"
    return f"1e0 / (1e0 + EXP(-({clipped})))"


def _hidden_codes(writable: Writable, nullable: Collection[int]) -> dict[int, str]:
    """Return the code of each attribute in use, with nulls as missing values."""
    sizes = writable.schema.domain_sizes.tolist()
    return {i: f"CASE WHEN c{i} = 0 THEN {sizes[i]} ELSE c{i} END" if i in nullable else f"c{i}" for i in writable.used}


def _counted(writable: Writable, nullable: Sequence[int]) -> list[str]:
    """Count the known values of a row, and the nulls among them."""
    sizes = writable.schema.domain_sizes.tolist()
    n_known = balanced_sql_sum(["0", *(f"CASE WHEN c{i} < {sizes[i]} THEN 1 ELSE 0 END" for i in writable.used)])
    n_null = balanced_sql_sum(["0", *(f"CASE WHEN c{i} = 0 THEN 1 ELSE 0 END" for i in nullable)])
    return [f"{n_known} AS n_known", f"{n_null} AS n_null"]


# Where the share of hidden values is as likely one as another, s of n are hidden with probability s! (n - s)! / (n + 1)!.
LOG_HIDDEN = "(f1.log_factorial + f2.log_factorial - f3.log_factorial)"


def _factorials(query: Query) -> str:
    """Return the joins that `LOG_HIDDEN` needs, with the counts of m."""
    factorials = query.table("factorials")
    return (
        f"\n    LEFT JOIN {factorials} AS f1 ON f1.n = m.n_null"
        f"\n    LEFT JOIN {factorials} AS f2 ON f2.n = m.n_known - m.n_null"
        f"\n    LEFT JOIN {factorials} AS f3 ON f3.n = m.n_known + 1"
    )


def _incomplete(query: Query, writable: Writable, rest: str, kept: Sequence[str], nullable: Sequence[int]) -> str:
    """Add the step that predicts the remaining rows: those with missing values, or with nulls that may hide a value.

    Each row is evaluated unchanged and, if it has a null that training saw as a value, also as if the null hid
    the value (see `learners.classifiers.lookup.completeness.Completeness`). Rows with the same codes are
    evaluated once.
    """
    dialect, used = query.dialect, writable.used
    hidden = _hidden_codes(writable, nullable)
    key_own = _key(dialect, [f"c{i}" for i in used])
    key_hidden = _key(dialect, [hidden[i] for i in used])
    codes, counted = [f"c{i}" for i in used], _counted(writable, nullable)
    keys = [f"{key_own} AS key_own", f"CASE WHEN mark = 2 THEN {key_hidden} END AS key_hidden"]
    own_or_hidden = {i: f"CASE WHEN mark = 2 THEN {code} ELSE c{i} END" for i, code in hidden.items()}
    columns = [*kept, *codes, "mark", *keys, *counted, f"{_is_too_much(query, writable, own_or_hidden)} AS is_too_much"]
    lacking = query.add("lacking", columns, rest, is_shared=True)
    select = f"SELECT key_own AS row_key, {', '.join(codes)} FROM {lacking} WHERE is_too_much = 0"
    if nullable:
        without = ", ".join(f"{hidden[i]} AS c{i}" for i in used)
        select += (
            f"\n    UNION ALL SELECT key_hidden AS row_key, {without} FROM {lacking} WHERE mark = 2 AND is_too_much = 0"
        )
    source = query.add("asked", ["row_key", *codes], f"({select}) AS both_readings", distinct=True)
    source = writable.add_known(query, source)
    own = [f"m.{column}" for column in kept]
    if not nullable:
        shares = [f"a.p{k} AS p{k}" for k in query.classes]
        return query.add("told", [*own, *shares], f"{lacking} AS m LEFT JOIN {source} AS a ON a.row_key = m.key_own")
    both = [f"a.p{k} AS a{k}" for k in query.classes] + [f"b.p{k} AS b{k}" for k in query.classes]
    log_odds = f"a.evidence - b.evidence - {LOG_HIDDEN} AS log_odds"
    joins = (
        f"{lacking} AS m\n    LEFT JOIN {source} AS a ON a.row_key = m.key_own"
        f"\n    LEFT JOIN {source} AS b ON b.row_key = m.key_hidden"
    )
    source = query.add("readings", [*own, "m.mark", *both, log_odds], joins + _factorials(query))
    weight = f"CASE WHEN mark = 2 THEN {_weight('log_odds')} ELSE 1e0 END AS w"
    names = [f"{of}{k}" for of in "ab" for k in query.classes]
    source = query.add("weighted", [*kept, "mark", *names, weight], source)
    pooled = [f"CASE WHEN mark = 2 THEN w * a{k} + (1e0 - w) * b{k} ELSE a{k} END AS p{k}" for k in query.classes]
    return query.add("told", [*kept, *pooled], source)


def _key(dialect: Dialect, codes: Iterable[str]) -> str:
    return " || ',' || ".join(f"CAST({code} AS {dialect.text})" for code in codes) or "''"


def _is_too_much(query: Query, writable: Writable, codes: Mapping[int, str]) -> str:
    """Return an expression that is 1 if the missing parents have more combinations than `predict` sums exactly, else 0."""
    limit, sizes = math.log(MOST_COMBINATIONS / query.n_classes), writable.schema.domain_sizes.tolist()
    conditions = []
    for families in writable.summing:
        logs = {i: math.log(families.sizes[i]) for i in families.parents}
        if sum(logs.values()) > limit:
            terms = [f"CASE WHEN {codes[i]} >= {sizes[i]} THEN {log!r} ELSE 0 END" for i, log in logs.items()]
            conditions.append(f"{balanced_sql_sum(terms)} > {limit!r}")
    return f"CASE WHEN {' OR '.join(conditions)} THEN 1 ELSE 0 END" if conditions else "0"
