"""Every row of a table, from its codes to its answer: rows that are complete, and rows that lack something."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from learners.classifiers.lookup.elimination import MOST_COMBINATIONS
from learners.registry.sql.dialects import Dialect, Query, balanced_sql_sum
from learners.registry.sql.encoding import add_encoding_step
from learners.registry.sql.sql_networks import Writable


def add_table_row_answers(
    query: Query, writable: Writable, table: str, shown: Sequence[str], absent: Collection[str]
) -> str:
    """The step with k0, k1, … and p0, p1, … of every row of a table: the columns that are shown, and class probabilities.

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
    has_null = " OR ".join(f"c{i} = 0" for i in nullable)
    lacks = " OR ".join(f"c{i} >= {sizes[i]}" for i in writable.needed)
    cases = [f"WHEN {has_null} THEN 2"] * bool(nullable) + [f"WHEN {lacks} THEN 1"] * bool(lacks)
    mark = f"CASE {' '.join(cases)} ELSE 0 END" if cases else "0"
    marked = query.add("marked", [*keys, *codes, f"{mark} AS mark"], coded, is_shared=True)
    direct = _complete(query, writable, marked, keys)
    if not cases:
        return direct
    incomplete = _incomplete(query, writable, marked, keys, nullable)
    answers = ", ".join([*keys, *(f"p{k}" for k in query.classes)])
    return query.add("answered", [answers], f"{direct}\n  UNION ALL SELECT {answers} FROM {incomplete}")


def _complete(query: Query, writable: Writable, marked: str, kept: Sequence[str]) -> str:
    """The step with the answers of rows that lack nothing."""
    codes, where = [f"c{i}" for i in writable.used], f"{marked}\n  WHERE mark = 0"
    if writable.trees is None:
        source = query.add("complete", [*kept, *codes], where)
        return query.softmax(writable.add_scores(query, source, kept), kept, writable.prior)
    keyed = [*kept, *codes, f"{_key(query.dialect, codes)} AS row_key"]
    complete = query.add("complete", keyed, where, is_shared=True)
    source = query.add("different", ["row_key", *codes], complete, distinct=True, is_shared=True)
    scored = query.softmax(writable.add_scores(query, source, ["row_key"]), ["row_key"], writable.prior)
    answers = [*(f"m.{column}" for column in kept), *(f"a.p{k} AS p{k}" for k in query.classes)]
    return query.add("direct", answers, f"{complete} AS m JOIN {scored} AS a ON a.row_key = m.row_key")


def _incomplete(query: Query, writable: Writable, marked: str, kept: Sequence[str], nullable: Sequence[int]) -> str:
    """The step with the answers of rows that lack something.

    Each row is asked as it is, and if it has a null that training saw as a value, also as if the null hid the value
    (see `learners.classifiers.lookup.lookup.Completeness`). Rows with the same codes are asked once.
    """
    dialect, used = query.dialect, writable.used
    sizes = writable.schema.domain_sizes.tolist()
    hidden = {i: f"CASE WHEN c{i} = 0 THEN {sizes[i]} ELSE c{i} END" if i in nullable else f"c{i}" for i in used}
    key_own = _key(dialect, [f"c{i}" for i in used])
    key_hidden = _key(dialect, [hidden[i] for i in used])
    n_known = balanced_sql_sum(["0", *(f"CASE WHEN c{i} < {sizes[i]} THEN 1 ELSE 0 END" for i in used)])
    n_null = balanced_sql_sum(["0", *(f"CASE WHEN c{i} = 0 THEN 1 ELSE 0 END" for i in nullable)])
    codes = [f"c{i}" for i in used]
    keys = [f"{key_own} AS key_own", f"CASE WHEN mark = 2 THEN {key_hidden} END AS key_hidden"]
    counted = [f"{n_known} AS n_known", f"{n_null} AS n_null"]
    columns = [*kept, *codes, "mark", *keys, *counted, f"{_is_too_much(query, writable, hidden)} AS is_too_much"]
    lacking = query.add("lacking", columns, f"{marked}\n  WHERE mark > 0", is_shared=True)
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
    # Where the share of hidden values is as likely one as another, s of n are hidden with probability s! (n - s)! / (n + 1)!.
    log_odds = "a.evidence - b.evidence - (f.log_factorial + g.log_factorial - h.log_factorial) AS log_odds"
    factorials = query.table("factorials")
    joins = (
        f"{lacking} AS m\n    LEFT JOIN {source} AS a ON a.row_key = m.key_own"
        f"\n    LEFT JOIN {source} AS b ON b.row_key = m.key_hidden"
        f"\n    LEFT JOIN {factorials} AS f ON f.n = m.n_null"
        f"\n    LEFT JOIN {factorials} AS g ON g.n = m.n_known - m.n_null"
        f"\n    LEFT JOIN {factorials} AS h ON h.n = m.n_known + 1"
    )
    source = query.add("readings", [*own, "m.mark", *both, log_odds], joins)
    clipped = "CASE WHEN log_odds > 7e2 THEN 7e2 WHEN log_odds < -7e2 THEN -7e2 ELSE log_odds END"
    weight = f"CASE WHEN mark = 2 THEN 1e0 / (1e0 + EXP(-({clipped}))) ELSE 1e0 END AS w"
    names = [f"{of}{k}" for of in "ab" for k in query.classes]
    source = query.add("weighted", [*kept, "mark", *names, weight], source)
    pooled = [f"CASE WHEN mark = 2 THEN w * a{k} + (1e0 - w) * b{k} ELSE a{k} END AS p{k}" for k in query.classes]
    return query.add("told", [*kept, *pooled], source)


def _key(dialect: Dialect, codes: Iterable[str]) -> str:
    return " || ',' || ".join(f"CAST({code} AS {dialect.text})" for code in codes)


def _is_too_much(query: Query, writable: Writable, hidden: Mapping[int, str]) -> str:
    """1 where the values of missing parents have more combinations than `predict` sums over exactly, 0 elsewhere."""
    limit, sizes = math.log(MOST_COMBINATIONS / query.n_classes), writable.schema.domain_sizes.tolist()
    conditions = []
    for families in writable.summing:
        logs = {i: math.log(families.sizes[i]) for i in families.parents}
        if sum(logs.values()) > limit:
            terms = [f"CASE WHEN {hidden[i]} >= {sizes[i]} THEN {log!r} ELSE 0 END" for i, log in logs.items()]
            conditions.append(f"{balanced_sql_sum(terms)} > {limit!r}")
    return f"CASE WHEN {' OR '.join(conditions)} THEN 1 ELSE 0 END" if conditions else "0"
