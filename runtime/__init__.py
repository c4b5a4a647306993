"""Running models: sessions, data, streaming statistics and evaluation, with ONNX Runtime underneath."""

from .data import Data, load_data, random_data
from .evaluate import CandidateScore, Evaluation, Latency, OutputScore, evaluate
from .executor import OrtExecutor
from .inputs import InputInfo, model_inputs
from .observe import add_observers
from .parts import expose_tensors
from .session import open_session, run_session
from .statistics import TensorStatistics

__all__ = [
    "CandidateScore",
    "Data",
    "Evaluation",
    "InputInfo",
    "Latency",
    "OrtExecutor",
    "OutputScore",
    "TensorStatistics",
    "add_observers",
    "evaluate",
    "expose_tensors",
    "load_data",
    "model_inputs",
    "open_session",
    "random_data",
    "run_session",
]
