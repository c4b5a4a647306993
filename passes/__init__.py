"""The pass framework, and one module per pass below it."""

from .framework.base import Pass, Stage, option
from .framework.check import check_needs, check_pipeline, check_stages
from .framework.context import Artifact, NullProgress, PassContext, Progress, Task
from .framework.describe import OptionDescription, PassDescription, describe
from .framework.instruments import DumpModel, Instrument, PrintModel
from .framework.pipeline import Combinator, Fixpoint, Pipeline, Repeat
from .framework.pipeline_text import parse_pipeline, with_options
from .framework.registry import Registry, registry
from .framework.runner import PipelineReport, StepReport, run_pipeline
from .pipeline_toml import PipelineFile, dumps, load_pipeline_file, loads

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
    "with_options",
]
