"""The product's public functions, which REST, the command line and the worker call on an opened workspace.

Its verbs are listed in `__init__.pyi`, and each is imported when it is first used.

>>> with Workspace(Settings()) as workspace:
...     product.train_model_version(workspace, TrainRequest(uris=["sales/*.parquet"], target="bought", model="buyers"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
