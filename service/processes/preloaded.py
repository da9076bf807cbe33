"""Imports of the serving processes, done before they are forked so that they share them."""

import anyio._backends._asyncio
import sqlalchemy.dialects.sqlite
import uvicorn.lifespan.on
import uvicorn.loops.uvloop
import uvicorn.protocols.http.httptools_impl

import service.http.app

__all__ = ["anyio", "service", "sqlalchemy", "uvicorn"]
