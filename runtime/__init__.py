"""Running models: sessions, data, streaming statistics and evaluation, with ONNX Runtime underneath."""

from .bench import Benchmark, ModelCost, bench
from .collected import ModelStatistics
from .data import Data, load_data, random_data
from .data_files import load_labels
from .evaluate import CandidateScore, Evaluation, MetricScore, evaluate
from .executor import OrtExecutor
from .inputs import InputInfo, model_inputs
from .latency import Latency
from .library import library_path
from .metrics import Metric, parse_metric
from .observe import add_observers
from .parts import expose_tensors
from .providers import choose_provider
from .recorded import RecordedExecutor, Recorder
from .scores import OutputScore
from .session import open_session, run_session
from .sharded import ShardedExecutor, process_executor
from .statistics import TensorStatistics

__all__ = [
    "Benchmark",
    "CandidateScore",
    "Data",
    "Evaluation",
    "InputInfo",
    "Latency",
    "Metric",
    "MetricScore",
    "ModelCost",
    "ModelStatistics",
    "OrtExecutor",
    "OutputScore",
    "RecordedExecutor",
    "Recorder",
    "ShardedExecutor",
    "TensorStatistics",
    "add_observers",
    "bench",
    "choose_provider",
    "evaluate",
    "expose_tensors",
    "library_path",
    "load_data",
    "load_labels",
    "model_inputs",
    "open_session",
    "parse_metric",
    "process_executor",
    "random_data",
    "run_session",
]
