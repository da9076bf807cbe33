"""`python -m service.cli` is `fewpass`."""

from service.cli import app

app()
