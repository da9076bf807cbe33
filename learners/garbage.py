"""What Python looks at for garbage."""

import gc
import threading

_somebody_freezes = threading.Event()  # known once: to ask takes 25 ms where there is much, as in a server


def make_old() -> None:
    """Make all objects old, as the next collection would look at every young one. What others have frozen stays so."""
    if not _somebody_freezes.is_set():
        if gc.get_freeze_count():
            _somebody_freezes.set()
        else:
            gc.freeze()
            gc.unfreeze()
