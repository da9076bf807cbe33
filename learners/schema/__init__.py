"""Schemas: from raw columns to integer codes."""

from learners.schema.overrides import Overrides
from learners.schema.schema import Attribute, Chunk, Kept, LeftOut, Schema

__all__ = ["Attribute", "Chunk", "Kept", "LeftOut", "Overrides", "Schema"]
