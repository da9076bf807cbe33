"""Entry point: `python -m service.cli` runs `fewpass`."""

from service.cli import app

if __name__ == "__main__":  # serving processes are spawned, and import this module again
    app()
