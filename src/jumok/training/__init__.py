"""From a model and batches to a trained model: loss, schedule, step, checkpoint, loop."""

from jumok.training.checkpoint import average_files, average_tensors
from jumok.training.config import TrainingConfig
from jumok.training.loop import TrainingResult, Validator, train
from jumok.training.loss import Loss, batch_loss, perplexity, smoothed_cross_entropy
from jumok.training.metrics import read_metrics
from jumok.training.objective import BatchSource, Objective
from jumok.training.optimiser import learning_rate
from jumok.training.progress import BarReport, LineReport, Report, report_to_stderr
from jumok.training.state import TrainingState
from jumok.training.validation import held_out_loss

__all__ = [
    "BarReport",
    "BatchSource",
    "LineReport",
    "Loss",
    "Objective",
    "Report",
    "TrainingConfig",
    "TrainingResult",
    "TrainingState",
    "Validator",
    "average_files",
    "average_tensors",
    "batch_loss",
    "held_out_loss",
    "learning_rate",
    "perplexity",
    "read_metrics",
    "report_to_stderr",
    "smoothed_cross_entropy",
    "train",
]
