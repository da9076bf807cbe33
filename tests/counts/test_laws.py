"""The laws of `tests/laws.py` for every Statistic."""

import importlib
import inspect
import pkgutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import learners
from learners import Source, collect
from learners.circuits.em.em import ExpectedCounts
from learners.circuits.mixtures.component_search import ExpectedMoments
from learners.circuits.mixtures.mixture_learning import DrawnNumbers
from learners.classifiers.estimates.context_tree import iterate_tree_levels
from learners.classifiers.selection import PrefixLosses, selection_loss_tables
from learners.classifiers.structure import Structure
from learners.counts.distinct_rows import DistinctRows
from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.moments import Moments
from learners.counts.multi_view_counts import Viewed, ViewedFamilies
from learners.counts.pairwise import PairwiseCounts, SparsePairs
from learners.counts.row_samples import DrawnRows, HoldOut
from learners.monitoring.label_counts import LabelCounts
from learners.monitoring.served_counts import ServedCounts
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.statistic import Together
from learners.registry.later_rows import FewerSummaries, OrderedRows
from learners.schema import Attribute, Schema
from learners.schema.encoding.column_views import Views
from tests import laws, strategies

FEW = settings(max_examples=20)


def families_of(schema):
    """A family with up to three parents for every attribute."""
    n = schema.n_attributes
    return [Family(a, tuple((a + d) % n for d in range(1, 1 + min(a, n - 1, 3)))) for a in range(n)]


def prefix_losses(schema, parts):
    """Losses of the rows that were counted."""
    n = schema.n_attributes
    structure = Structure(tuple(range(n)), tuple(tuple(range(min(a, 2))) for a in range(n)))
    families = laws.updated(FamilyCounts(schema, structure.families()), parts)
    if not families.n_rows:
        families.update(strategies.chunk_of(0, schema, 5))
    of = selection_loss_tables(schema, structure, iterate_tree_levels(families), families.class_counts)
    return PrefixLosses(schema, of, families.class_counts)


OF_CHUNKS = {
    "pairwise counts": lambda schema, parts: PairwiseCounts(schema),
    "sparse pairs": lambda schema, parts: SparsePairs(schema),
    "family counts": lambda schema, parts: FamilyCounts(schema, families_of(schema)),
    "hold-out": lambda schema, parts: HoldOut(schema),
    "a small hold-out": lambda schema, parts: HoldOut(schema, 20, 0),
    "together": lambda schema, parts: Together(PairwiseCounts(schema), HoldOut(schema)),
    "prefix losses": prefix_losses,
    "distinct rows": lambda schema, parts: DistinctRows(schema),
    "drawn rows": lambda schema, parts: DrawnRows(schema, 50_000),
    "older and later rows": lambda schema, parts: OrderedRows(schema, 50_000),
    "a few drawn rows": lambda schema, parts: DrawnRows(schema, 15),
    "drawn rows of each class": lambda schema, parts: DrawnRows(schema, 50_000, 50_000),
    "a few drawn rows of each class": lambda schema, parts: DrawnRows(schema, 15, 4),
    "drawn rows of numbers": lambda schema, parts: DrawnNumbers(schema),
    "viewed pairs": lambda schema, parts: Viewed(Views(schema), lambda views: PairwiseCounts(views.schema)),
    "viewed families": lambda schema, parts: ViewedFamilies(Views(schema), families_of(schema)),
}


def domains(batches):
    """Domains of all columns, as a refresh counts them."""
    names = [name for name in batches[0].schema.names if name != "class"]
    kept = Schema(tuple(Attribute(name, "nominal") for name in names), "class", ("a", "b"))
    return ColumnSummaries("class", kept=kept)


def label_counts(batches):
    """Classes of the type that the batches hold; some are unknown."""
    kind = batches[0].schema.field("class").type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    class_type = "bool" if pa.types.is_boolean(kind) else "int64" if pa.types.is_integer(kind) else "string"
    names = {"bool": ("False", "True"), "int64": ("0", "1"), "string": ("a", "b")}[class_type]
    return LabelCounts(Schema((), "class", names, class_type))


SUMMARIES = {
    "column summaries": lambda batches: ColumnSummaries("class"),
    "column summaries without a target": lambda batches: ColumnSummaries(None),
    "domains": domains,
    "label counts": label_counts,
}
STATISTICS = [*OF_CHUNKS, *SUMMARIES]
OF_VIEWS = ("viewed pairs", "viewed families")
SMALL = (
    "a small hold-out",
    "a few drawn rows",
    "a few drawn rows of each class",
)  # what was crowded out is forgotten: tests/counts/test_row_samples.py


def cases(name):
    """Strategy of (empty statistic, parts)."""
    if name in OF_CHUNKS:
        return chunk_lists(name).map(lambda drawn: (OF_CHUNKS[name](*drawn), drawn[1]))
    return strategies.batch_lists().map(lambda batches: (SUMMARIES[name](batches), batches))


def chunk_lists(name):
    """Of any schema; for counts by views also of one with groupings."""
    grouped = strategies.chunk_lists(max_size=3, of=strategies.grouped_schemas())
    return strategies.chunk_lists() | grouped if name in OF_VIEWS else strategies.chunk_lists()


@pytest.mark.parametrize("name", STATISTICS)
@given(data=st.data())
@FEW
def test_every_law(name, data):
    empty, parts = data.draw(cases(name))
    laws.every_law(empty, parts, strategies.joined, is_forgetful=name in SMALL)


@pytest.mark.parametrize("name", STATISTICS)
@given(data=st.data(), most=st.sampled_from((1, 2, 5, 9)), seed=st.integers(0, 9))
@FEW
def test_a_weight_counts_a_row_as_if_it_were_repeated(name, data, most, seed):
    empty, parts = data.draw(cases(name))
    rng = np.random.default_rng(seed)

    def weights_of(part):
        return rng.integers(0, most + 1, part.num_rows if isinstance(part, pa.RecordBatch) else part.n_rows)

    laws.a_weight_counts_a_row_as_if_it_were_repeated(empty, parts, weights_of)


@pytest.mark.parametrize("name", OF_CHUNKS)
@given(data=st.data())
@FEW
def test_recoding_is_counting_by_the_other_schema(name, data):
    schema, parts = data.draw(chunk_lists(name))
    empty = OF_CHUNKS[name](schema, parts)
    laws.recoding_is_counting_by_the_other_schema(empty, parts, strategies.extended(schema), strategies.recoded)


def test_every_statistic_of_the_library_is_under_these_laws():
    """A class that merges and is stored is one; `Together`'s laws are here, those of expected counts with EM's tests."""
    schema = strategies.schema_of([3, 4], 2)
    tested = {type(OF_CHUNKS[name](schema, [strategies.chunk_of(0, schema, 9)])) for name in OF_CHUNKS}
    tested |= {
        ColumnSummaries,
        LabelCounts,
        FewerSummaries,  # which a schema is built of, and no row is added to
        ExpectedCounts,
        ExpectedMoments,
        Moments,
        ServedCounts,
    }  # of the last three with their own tests
    modules = [importlib.import_module(info.name) for info in pkgutil.walk_packages(learners.__path__, "learners.")]
    classes = {member for module in modules for member in vars(module).values() if inspect.isclass(member)}
    operations = ("update", "merge", "subtract", "to_arrow", "from_arrow")
    statistics = {c for c in classes if all(hasattr(c, name) for name in operations)}
    found = {c for c in statistics if not inspect.isabstract(c) and not getattr(c, "_is_protocol", False)}
    assert found == tested


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("sizes", [(3, 4, 2, 5), (300, 300, 300, 2)])
def test_any_number_of_threads_collects_the_same(name, sizes, monkeypatch):
    monkeypatch.setattr("learners.passes.sources.source.BATCH_ROWS", 64)
    schema = strategies.schema_of(sizes, 3, {1})
    chunk = strategies.chunk_of(1, schema, 1500)
    table = strategies.table_of(schema, [chunk])
    made = OF_CHUNKS[name](schema, [chunk]) if name in OF_CHUNKS else SUMMARIES[name](table.to_batches())
    empty = made if "without" not in name else ColumnSummaries("class")
    source = Source.of_table(table)
    assert len(source.fragments) > 20
    one = collect(empty, source, threads=1)
    assert one == laws.updated(empty, [chunk] if name in OF_CHUNKS else table.combine_chunks().to_batches())
    for threads in (2, 3, 7):
        many = collect(empty, source, threads=threads)
        assert many == one
        assert (
            many.to_arrow().equals(one.to_arrow())
            if name in (*OF_CHUNKS, "label counts")
            else (many.build_schema().to_json() == one.build_schema().to_json())
        )


def strangers():
    schema, other = strategies.schema_of([3, 4], 2), strategies.schema_of([3, 5], 2)
    return {
        "pairwise: schema": (PairwiseCounts(schema), PairwiseCounts(other)),
        "family: schema": (FamilyCounts(schema, [Family(0)]), FamilyCounts(other, [Family(0)])),
        "family: families": (FamilyCounts(schema, [Family(0)]), FamilyCounts(schema, [Family(0, (1,))])),
        "distinct rows: schema": (DistinctRows(schema), DistinctRows(other)),
        "hold-out: schema": (HoldOut(schema), HoldOut(other)),
        "hold-out: capacity": (HoldOut(schema, 10), HoldOut(schema, 11)),
        "together: first": tuple(Together(PairwiseCounts(own), HoldOut(own)) for own in (schema, other)),
        "together: second": tuple(Together(PairwiseCounts(schema), HoldOut(schema, n)) for n in (10, 20)),
    }


@pytest.mark.parametrize("which", strangers())
def test_statistics_of_other_specifications_are_refused(which):
    empty, stranger = strangers()[which]
    stranger.update(strategies.chunk_of(0, stranger.schema, 70))
    laws.others_are_refused(empty, stranger, [strategies.chunk_of(0, empty.schema, 50)])


OTHERS = {
    "target": ("other",),
    "no target": (None,),
    "kind": ("class", {"x": "nominal"}),
    "dropped": ("class", {"x": "drop"}),
}


@pytest.mark.parametrize("stranger", [ColumnSummaries(*of) for of in OTHERS.values()], ids=OTHERS)
def test_summaries_of_other_specifications_are_refused(stranger):
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 2], "class": ["a", "b", "b"], "other": ["u", "v", "v"]})
    stranger.update(batch)
    empty = ColumnSummaries("class")
    assert stranger.spec != empty.spec
    laws.others_are_refused(empty, stranger, [batch])


def test_stored_counts_of_another_schema_are_refused():
    schema, other = strategies.schema_of([3, 4], 2), strategies.schema_of([3, 5], 2)
    stored = laws.updated(PairwiseCounts(other), [strategies.chunk_of(0, other, 9)]).to_arrow()
    with pytest.raises(laws.StatisticMismatch, match="another schema"):
        PairwiseCounts(schema).from_arrow(stored)


def test_specifications_tell_statistics_apart():
    """Equal specifications mean equal statistics: they are the identity under which results are stored."""
    schema = strategies.schema_of([3, 4], 2)
    specs = [OF_CHUNKS[name](schema, [strategies.chunk_of(0, schema, 9)]).spec for name in OF_CHUNKS]
    specs += [FamilyCounts(schema, [Family(0)]).spec, FamilyCounts(schema, [Family(0, (1,))]).spec]
    specs += [HoldOut(schema, 7).spec, ColumnSummaries("class").spec, ColumnSummaries(None).spec]
    specs += [ColumnSummaries("class", {"x": how}).spec for how in ("nominal", "numeric", "drop")]
    texts = [repr(spec) for spec in specs]
    assert len(set(texts)) == len(texts)
    assert np.all([isinstance(spec["statistic"], str) for spec in specs])
