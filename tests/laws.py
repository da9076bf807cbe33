"""What holds for every Statistic; `tests/counts/test_laws.py` runs these functions for all of them."""

import io
import json
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest

from learners.errors import StatisticMismatch
from learners.passes.row_rules import add_weighted_rows
from learners.passes.statistic import CodeStatistic, Divisible, Statistic
from learners.schema.schema_growth import schema_code_maps


def updated(empty, parts):
    """A fresh statistic of the parts."""
    statistic = empty.empty()
    for part in parts:
        statistic.update(part)
    return statistic


def merged(*statistics):
    """Their sum, leaving them as they are."""
    total = statistics[0].empty()
    for statistic in statistics:
        total.merge(statistic)
    return total


def merging_commutes_and_associates(empty, parts):
    a, b, c = (updated(empty, parts[i::3]) for i in range(3))
    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c))


def the_empty_statistic_is_neutral(empty, parts):
    whole = updated(empty, parts)
    assert merged(whole, empty.empty()) == whole == merged(empty.empty(), whole)
    assert updated(empty, []) == empty.empty()


def merging_leaves_the_other_as_it_was(empty, parts):
    ours, theirs = updated(empty, parts), updated(empty, parts)
    ours.merge(theirs)
    ours.merge(theirs)
    assert theirs == updated(empty, parts)


def what_was_added_can_be_subtracted(empty, parts):
    if not empty.can_subtract:
        return
    kept, gone = updated(empty, parts[::2]), updated(empty, parts[1::2])
    total = merged(kept, gone)
    total.subtract(gone)
    assert total == kept
    assert total.to_arrow().equals(kept.to_arrow()), "no trace of the subtracted rows is left"
    total.subtract(kept)
    assert total == empty.empty()


def order_and_partition_do_not_matter(empty, parts, join):
    one_by_one = [updated(empty, [part]) for part in reversed(parts)]
    assert updated(empty, [join(parts)]) == updated(empty, parts) == reduce(merged, one_by_one)


def different_rows_are_different(empty, parts):
    whole = updated(empty, parts)
    if sum(part.num_rows if isinstance(part, pa.RecordBatch) else part.n_rows for part in parts):
        assert whole != merged(whole, whole)
        assert whole != empty.empty()


def arrow_gives_it_back(empty, parts):
    whole = updated(empty, parts)
    table = through_a_stream(whole.to_arrow())
    in_pieces = pa.concat_tables([table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)])
    read = empty.empty().from_arrow(in_pieces)
    assert empty.empty().from_arrow(table) == whole == read
    # What was read is a value like any other: it can be added to and written again.
    assert merged(read, whole) == merged(whole, whole)
    read.merge(whole)
    assert read == merged(whole, whole)
    assert empty.from_arrow(whole.to_arrow()).to_arrow().equals(whole.to_arrow())


def others_are_refused(empty, stranger, parts):
    before, statistic = updated(empty, parts), updated(empty, parts)
    for combine in (statistic.merge, statistic.subtract) if empty.can_subtract else (statistic.merge,):
        with pytest.raises(StatisticMismatch, match=r"different|another"):
            combine(stranger)
        assert statistic == before, "what is refused changes nothing"
    assert statistic != stranger


def it_says_what_it_can(empty, parts):
    """What is promised of a statistic, it keeps."""
    assert isinstance(empty, Statistic)
    assert isinstance(empty.stage, str) and empty.stage
    assert json.loads(json.dumps(empty.spec)) == empty.empty().spec
    whole = updated(empty, parts)
    if not empty.can_subtract:
        with pytest.raises(StatisticMismatch, match="cannot be subtracted"):
            whole.subtract(updated(empty, parts))
    assert empty.empty().from_stored(through_a_stream(whole.to_arrow()), empty.spec) == whole
    assert empty.can_read(empty.spec) and not empty.can_read({"statistic": "of another kind"})
    if isinstance(empty, Divisible):
        alone = [whole.only([family]) for family in whole.families]
        assert empty.joined(alone) == whole and empty.can_read(alone[0].spec)
        for family, part in zip(whole.families, alone, strict=True):
            assert part.families == (family,)
            assert empty.can_derive(family, whole.spec) and empty.can_derive(family, part.spec)
    assert whole.is_sufficient, "nothing was subtracted yet"
    whole.check()


def recoding_is_counting_by_the_other_schema(empty, parts, schema, recode):
    """`recode` gives the chunks by the other schema, whose domains are larger."""
    if not isinstance(empty, CodeStatistic):
        return
    maps = schema_code_maps(empty.schema, schema)
    counted = updated(empty.under(schema), [recode(part, maps) for part in parts])
    assert updated(empty, parts).recoded(schema, maps) == counted
    assert empty.under(schema).spec == empty.spec


def a_weight_counts_a_row_as_if_it_were_repeated(empty, parts, weights_of):
    """`weights_of` gives (n_rows,) whole numbers for a part."""
    weighted, repeated = empty.empty(), empty.empty()
    for part in parts:
        weights = weights_of(part)
        add_weighted_rows(weighted, part, weights)
        index = np.repeat(np.arange(weights.size), weights)
        repeated.update(part.take(pa.array(index)) if isinstance(part, pa.RecordBatch) else part.rows(index))
    assert weighted == repeated


def every_law(empty, parts, join=None, is_forgetful=False):
    """All laws of one statistic; `join` makes one part of several, and what is forgetful cannot be subtracted."""
    merging_commutes_and_associates(empty, parts)
    the_empty_statistic_is_neutral(empty, parts)
    merging_leaves_the_other_as_it_was(empty, parts)
    if not is_forgetful:
        what_was_added_can_be_subtracted(empty, parts)
    if join is not None:
        order_and_partition_do_not_matter(empty, parts, join)
    different_rows_are_different(empty, parts)
    it_says_what_it_can(empty, parts)
    arrow_gives_it_back(empty, parts)


def through_a_stream(table):
    """As another process would receive it."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
