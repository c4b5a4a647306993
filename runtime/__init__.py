"""Running models: sessions, data, streaming statistics and evaluation, with ONNX Runtime underneath."""

from .data.arrays import load_labels
from .data.data_files import DataFiles
from .data.inputs import InputInfo, model_inputs
from .data.load import Data, load_data, random_data
from .data.spread import Spread
from .evaluation.evaluate import CandidateScore, Evaluation, MetricScore, evaluate
from .evaluation.harm import Harm, harm
from .evaluation.simulation import SimulatedQuantizer, Simulation
from .executors.in_process import OrtExecutor
from .executors.recorded import RecordedExecutor
from .executors.recorder import Recorder
from .executors.segments import SegmentRunner
from .executors.sharded import ShardedExecutor, process_executor, process_pool
from .metrics.metric import Metric, OutputMetric
from .metrics.parse import parse_metric
from .metrics.sums import OutputScore
from .native.library import library_path
from .observers.insert import add_observers
from .protos.parts import expose_tensors
from .sessions.custom_ops import use_custom_ops
from .sessions.open import open_session, run_session
from .sessions.providers import choose_provider
from .sessions.runnable import OpenModel, Runnable
from .speed.bench import Benchmark, ModelCost, bench
from .speed.latency import Latency
from .statistics.model import ModelStatistics, Recording
from .statistics.tensor import TensorStatistics

__all__ = [
    "Benchmark",
    "CandidateScore",
    "Data",
    "DataFiles",
    "Evaluation",
    "Harm",
    "InputInfo",
    "Latency",
    "Metric",
    "MetricScore",
    "ModelCost",
    "ModelStatistics",
    "OpenModel",
    "OrtExecutor",
    "OutputMetric",
    "OutputScore",
    "RecordedExecutor",
    "Recorder",
    "Recording",
    "Runnable",
    "SegmentRunner",
    "ShardedExecutor",
    "SimulatedQuantizer",
    "Simulation",
    "Spread",
    "TensorStatistics",
    "add_observers",
    "bench",
    "choose_provider",
    "evaluate",
    "expose_tensors",
    "harm",
    "library_path",
    "load_data",
    "load_labels",
    "model_inputs",
    "open_session",
    "parse_metric",
    "process_executor",
    "process_pool",
    "random_data",
    "run_session",
    "use_custom_ops",
]
