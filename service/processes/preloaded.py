"""Imports what serving processes would else import one by one: before they are forked, so that they share it."""

import anyio._backends._asyncio
import sqlalchemy.dialects.sqlite
import uvicorn.lifespan.on
import uvicorn.loops.uvloop
import uvicorn.protocols.http.httptools_impl

import service.http.app

__all__ = ["anyio", "service", "sqlalchemy", "uvicorn"]
