"""From raw columns to small integer codes."""

from learners.schema.chunk import Chunk
from learners.schema.schema import Attribute, LeftOut, Schema

__all__ = ["Attribute", "Chunk", "LeftOut", "Schema"]
