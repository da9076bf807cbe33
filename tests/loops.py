"""Event loops of tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def apart(run: Callable[[], Coroutine[object, object, Any]]) -> Any:
    """What a coroutine returns in a loop on a thread of its own: tests in a browser leave a loop in theirs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(run())).result()
