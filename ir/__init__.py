"""The graph IR: lift a model, look at it, change it with a Rewriter, and lower it again."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
