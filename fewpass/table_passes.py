"""Tables: the sources of rows, the schema that encodes them, and the passes over them."""

from learners.errors import ColumnWarning, LearnerError
from learners.passes.engine import Progress, collect
from learners.passes.learner import drive, infer_schema
from learners.passes.sources.source import Source
from learners.schema import Chunk, Schema
from learners.schema.encoding.encode import encode

__all__ = [
    "Chunk",
    "ColumnWarning",
    "LearnerError",
    "Progress",
    "Schema",
    "Source",
    "collect",
    "drive",
    "encode",
    "infer_schema",
]
