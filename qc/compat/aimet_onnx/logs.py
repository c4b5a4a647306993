"""``AimetLogger``: the loggers that scripts for AIMET ask for and set the level of."""

from __future__ import annotations

import enum
import logging


class AimetLogger:
    """Loggers by area; qc itself tells what it has to tell as warnings."""

    class LogAreas(enum.Enum):
        """The areas, and the names of their loggers."""

        Quant = "Quant"
        Svd = "Svd"
        Test = "Test"
        Utils = "Utils"
        CompRatioSelect = "CompRatioSelect"
        ConnectedGraph = "ConnectedGraph"
        CrosslayerEqualization = "CrossLayerEqualization"
        MixedPrecision = "MixedPrecision"
        AutoQuant = "AutoQuant"
        Winnow = "Winnow"
        Nas = "Nas"
        NasPipeline = "NasPipeline"
        DeviceFramework = "DeviceFramework"
        BatchNormFoldiing = "BatchNormFolding"
        LayerOutputs = "LayerOutputs"
        SeqMse = "SeqMse"

    @staticmethod
    def get_area_logger(area: AimetLogger.LogAreas) -> logging.Logger:
        """The logger of an area."""
        return logging.getLogger(area.value)

    @staticmethod
    def set_area_logger_level(area: AimetLogger.LogAreas, level: int | str) -> None:
        """Sets the level of the logger of an area."""
        AimetLogger.get_area_logger(area).setLevel(level)

    @staticmethod
    def set_level_for_all_areas(level: int | str) -> None:
        """Sets the level of all loggers."""
        for area in AimetLogger.LogAreas:
            AimetLogger.set_area_logger_level(area, level)
