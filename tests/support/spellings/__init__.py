"""The spellings of the supergroups, by exporter: the graphs that the patterns have to find.

What TorchScript and dynamo write was seen in exports of PyTorch 2.13; what TensorFlow, Keras, Paddle and JAX
write, in models that were made with them and in what their exporters say that they do.
"""

from .activations import SPELLINGS as ACTIVATIONS
from .attention import SPELLINGS as ATTENTION
from .group_norms import SPELLINGS as GROUP_NORMS
from .linear import SPELLINGS as LINEAR
from .networks import SPELLINGS as NETWORKS
from .norms import SPELLINGS as NORMS
from .spelling import Spelling

SPELLINGS = (*NORMS, *GROUP_NORMS, *ACTIVATIONS, *LINEAR, *ATTENTION, *NETWORKS)

__all__ = ["NORMS", "SPELLINGS", "Spelling"]
