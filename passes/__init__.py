"""The pass framework, and one module per pass below it."""

from .base import Pass, Stage, option
from .check import check_needs, check_pipeline, check_stages
from .context import Artifact, NullProgress, PassContext, Progress, Task
from .describe import OptionDescription, PassDescription, describe
from .instruments import DumpModel, Instrument, PrintModel
from .pipeline import Combinator, Fixpoint, Pipeline, Repeat
from .pipeline_text import parse_pipeline
from .pipeline_toml import PipelineFile, dumps, load_pipeline_file, loads
from .registry import Registry, registry
from .runner import PipelineReport, StepReport, run_pipeline

__all__ = [
    "Artifact",
    "Combinator",
    "DumpModel",
    "Fixpoint",
    "Instrument",
    "NullProgress",
    "OptionDescription",
    "Pass",
    "PassContext",
    "PassDescription",
    "Pipeline",
    "PipelineFile",
    "PipelineReport",
    "PrintModel",
    "Progress",
    "Registry",
    "Repeat",
    "Stage",
    "StepReport",
    "Task",
    "check_needs",
    "check_pipeline",
    "check_stages",
    "describe",
    "dumps",
    "load_pipeline_file",
    "loads",
    "option",
    "parse_pipeline",
    "registry",
    "run_pipeline",
]
