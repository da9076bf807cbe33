"""Layout of the monitoring counts: the watched columns and families of a model, and the position of each count."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from learners.classifiers.lookup.lookup import LookupModel
from learners.kernels.arrays import Codes, Integers, freeze_arrays
from learners.models.model import Model
from learners.monitoring.kernels import CONFIDENCE_BINS, SURPRISE_BINS, Places
from learners.schema import Schema
from learners.schema.discretise_kernels import translate_view_codes
from learners.schema.encoding.batches import BatchEncoder
from learners.schema.encoding.encode import batch_encoder
from learners.schema.schema import Attribute

MAX_CELLS = 4096  # of one family: parents beyond it are left out, the last ones first
REPEAT_CELLS = 1 << 16
GROUPED = 8  # columns of a large file that are read together
RATES = 32  # a slice says how many rows were counted at one in 1, 2, 4, …
STATUSES = ("absent", "null", "unseen", "below_min", "above_max", "compared", "low_tail", "high_tail")
LAYOUT = 2  # of what this module lays out; counts of another layout are not read


@dataclass(frozen=True)
class Block:
    """A block of consecutive counts."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """Position after the last count of the block."""
        return self.start + math.prod(self.shape)

    def of(self, counts: Integers) -> Integers:
        """Return a view of the block's counts."""
        return counts[self.start : self.stop].reshape(self.shape)


@dataclass(frozen=True, eq=False)
class ColumnGroup:
    """Columns that are read together."""

    names: list[str]  # of those that there are
    places: Integers  # (m,) int64: of the attributes, those of absent columns included
    encoder: BatchEncoder  # of these attributes


class Watched:
    """The columns, families and predictions of a model that monitoring counts.

    Families are those of a network, or of an ensemble's joint member; columns of other models have no parents.

    `schema`: the schema that encodes served rows.
    `codes`: the schema that counts them: the joint member's, or the same.
    `member`: the network whose families are counted.
    `parents`: parents of each attribute, cut to `MAX_CELLS`.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.schema = model, model.schema
        self.member = monitored_network(model)
        self.codes: Schema = self.schema if self.member is None else self.member.schema
        self.sizes = [int(size) + 1 for size in self.codes.domain_sizes.tolist()]
        self.parents = self._parents()
        self.blocks = self._blocks()
        self._groups: dict[tuple[str, ...], list[ColumnGroup]] = {}

    @property
    def names(self) -> list[str]:
        """Names of the attributes."""
        return [attribute.name for attribute in self.codes.attributes]

    @property
    def n_classes(self) -> int:
        """Number of classes whose probabilities are counted; 0 if the model has no class."""
        return 0 if self.schema.target is None else self.schema.n_classes

    @property
    def n_counts(self) -> int:
        """Length of the vector of counts."""
        return max(block.stop for block in self.blocks.values())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the layout of the counts."""
        layout = [LAYOUT, self.codes.fingerprint, self.parents, {k: (b.start, b.shape) for k, b in self.blocks.items()}]
        return hashlib.sha256(json.dumps(layout).encode()).hexdigest()

    @cached_property
    def places(self) -> Places:
        """Positions of the family tables, for the kernel."""
        starts = [self.blocks[f"family {i}"].start for i in range(len(self.sizes))]
        strides: list[int] = []
        for parents in self.parents:
            own, place = [], 1
            for parent in reversed(parents):
                own.append(place)
                place *= self.sizes[parent]
            strides += own[::-1]
        places = Places(
            np.array(self.sizes, np.int64),
            np.array(starts, np.int64),
            np.cumsum([0, *map(len, self.parents)]).astype(np.int64),
            np.array([parent for parents in self.parents for parent in parents], np.int64),
            np.array(strides, np.int64),
        )
        freeze_arrays(*places)
        return places

    def family(self, counts: Integers, i: int) -> Integers:
        """Return the rows with each code of an attribute in each context, (n_contexts, n_values + 1) int64."""
        return self.blocks[f"family {i}"].of(counts)

    def recoded(self, x: Codes) -> Codes:
        """Translate codes of served rows to the codes that are counted, (n_attributes, n_rows)."""
        if self.codes is self.schema:
            return x
        attribute, starts, tables = self._maps
        own = np.empty(x.shape, self.codes.code_dtype)
        translate_view_codes(x, attribute, starts, tables, own)
        own.setflags(write=False)
        return own

    def column_groups(self, present: tuple[str, ...]) -> list[ColumnGroup]:
        """Divide the attributes into groups of a few present columns; absent columns are in the first group."""
        if present not in self._groups:
            place = {attribute.name: i for i, attribute in enumerate(self.schema.attributes)}
            absent = [i for name, i in place.items() if name not in present]
            parts = [list(present[start : start + GROUPED]) for start in range(0, len(present), GROUPED)] or [[]]
            groups = []
            for k, names in enumerate(parts):
                places = np.array([place[name] for name in names] + (absent if k == 0 else []), np.int64)
                own = tuple(self.schema.attributes[i] for i in places.tolist())
                groups.append(ColumnGroup(names, places, batch_encoder(own, self.schema.code_dtype)))
            self._groups[present] = groups
        return self._groups[present]

    @cached_property
    def _maps(self) -> tuple[Integers, Integers, Codes]:
        tables = [_map(of, to) for of, to in zip(self.schema.attributes, self.codes.attributes, strict=True)]
        starts = np.cumsum([0, *(table.size for table in tables)]).astype(np.int64)
        joined: Codes = np.concatenate([*tables, np.empty(0, np.int64)]).astype(self.codes.code_dtype)
        return np.arange(len(tables)), starts, joined

    @cached_property
    def _of_network(self) -> dict[int, tuple[int, ...]]:
        """All parents of each attribute in the network."""
        network = None if self.member is None else self.member.network
        return {} if network is None else dict(zip(network.order, network.parents, strict=True))

    def _parents(self) -> tuple[tuple[int, ...], ...]:
        parents = []
        for i, size in enumerate(self.sizes):
            own = self._of_network.get(i, ())
            while own and size * math.prod(self.sizes[parent] for parent in own) > MAX_CELLS:
                own = own[:-1]
            parents.append(own)
        return tuple(parents)

    def _blocks(self) -> dict[str, Block]:
        n, n_classes = len(self.sizes), self.n_classes
        shapes: dict[str, tuple[int, ...]] = {
            "rows": (3,),  # counted; served; requests
            "rates": (RATES,),
            "statuses": (n, len(STATUSES)),
            "repeats": (REPEAT_CELLS,),
            "predicted": (1,),
            "confidence": (n_classes, CONFIDENCE_BINS),
            "sums": (n_classes + 2,),
            "surprise": (SURPRISE_BINS,),
            "surprise sums": (3,),
        }
        for i, (size, parents) in enumerate(zip(self.sizes, self.parents, strict=True)):
            shapes[f"family {i}"] = (math.prod(self.sizes[parent] for parent in parents), size)
        blocks, start = {}, 0
        for name, shape in shapes.items():
            blocks[name] = Block(start, shape)
            start = blocks[name].stop
        return blocks

    def facts(self) -> Mapping[str, object]:
        """Description of the watched columns, parents and omitted parents."""
        names, cut = self.names, self._of_network
        return {
            "columns": names,
            "parents": {names[i]: [names[p] for p in parents] for i, parents in enumerate(self.parents)},
            "left_out_parents": {
                names[i]: [names[p] for p in cut[i][len(parents) :]]
                for i, parents in enumerate(self.parents)
                if len(cut.get(i, ())) > len(parents)
            },
            "member": self.model.answering_member,
        }


def monitored_network(model: Model) -> LookupModel | None:
    """Return the network whose families are monitored: an ensemble's joint member, or the model itself; else None."""
    own = model.joint
    return own if isinstance(own, LookupModel) else None


def _map(of: Attribute, to: Attribute) -> Integers:
    """Map each code of the first attribute to a code of the second, whose cut points are a subset of the first's."""
    if of.kind == "nominal" or of.cuts == to.cuts or of.part is not None:
        return np.arange(of.n_values + 1)
    first = of.first_code
    intervals = np.searchsorted(np.array(to.cuts), np.array([*of.cuts, np.inf]), side="left")
    return np.concatenate([np.zeros(first, np.int64), intervals + first, [to.n_values]])
