"""Trained models written for CTranslate2, an engine for fast translation on CPUs and GPUs (Klein et al. 2020)."""

from pathlib import Path

from jumok.decoding import ctranslate2_model
from jumok.decoding.ctranslate2_model import Quantization
from jumok.tasks.translator import TrainedTranslator


def why_not(trained: TrainedTranslator) -> str | None:
    """Why a model cannot run on CTranslate2; None if it can."""
    return ctranslate2_model.why_not(trained.model)


def export_model(trained: TrainedTranslator, folder: str | Path, *, quantization: Quantization = "float32") -> None:
    """Write `folder` as a model of CTranslate2; a ModelError for a model that it cannot run."""
    ctranslate2_model.write_model(trained.model, trained.tokenizers, folder, quantization=quantization)
