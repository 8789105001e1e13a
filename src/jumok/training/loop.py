"""The training loop: step, validate and save, until done or interrupted; a resumed run continues from a checkpoint."""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from jumok.devices import keep_freed_memory
from jumok.errors import ConfigError, JumokError
from jumok.layers.gpu.stack import fused_layers
from jumok.models.weights import load_weights
from jumok.training.checkpoint import (
    MODEL,
    average_tensors,
    best_weights,
    checkpoint_path,
    checkpoints,
    has_weights,
    prune,
    publish_weights,
    save_snapshot,
    validated_file,
    write_final,
)
from jumok.training.config import TrainingConfig
from jumok.training.cpu_products import fast_products
from jumok.training.cuda_graph import StepGraphs, ready_for
from jumok.training.interrupt import StopRequest
from jumok.training.metrics import DivergedError, Recorder
from jumok.training.objective import SEQUENCES, AnyObjective, BatchSource
from jumok.training.optimiser import MovingAverage, learning_rate, make_optimiser, set_rate
from jumok.training.parallel import parallel_of
from jumok.training.processes import check_seen, check_shares, current_processes
from jumok.training.progress import Report
from jumok.training.read_ahead import Position, ReadAhead, StopReasons
from jumok.training.resume import begin, folder_lock, make_folder
from jumok.training.state import Origin, TrainingState
from jumok.training.step import autocast, train_step

Validator = Callable[[nn.Module], dict[str, float]]
Publisher = Callable[[Path, TrainingState], object]
Reason = Literal["steps", "minutes", "patience", "interrupted", "diverged"]


class TrainingResult(NamedTuple):
    """The outcome of training; the model now has the weights that were written to `path`."""

    path: Path
    """The final weights, model.safetensors."""
    stopped: Reason
    state: TrainingState


def train(
    model: nn.Module,
    batches: BatchSource,
    config: TrainingConfig,
    *,
    folder: str | Path,
    validate: Validator | None = None,
    report: Report | None = None,
    resume: bool = False,
    data_fingerprint: str = "",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    draw: Callable[[Path], object] | None = None,
    task: AnyObjective = SEQUENCES,
    publish: Publisher = publish_weights,
    is_published: Callable[[Path], bool] = has_weights,
) -> TrainingResult:
    """Train the model into `folder`: checkpoints/, metrics.jsonl, and from the first validation model.safetensors.

    `validate` scores the model as it is handed over, in evaluation mode; one of its scores must be `config.metric`.
    `resume` continues from the newest checkpoint, on a CPU bit for bit as if there had been no break.
    `data_fingerprint` names what the batches are made of, `settings` are sections of the recipe; a resume with others
    is refused. `draw` is called with metrics.jsonl after validations. `task` says how a batch becomes a loss. `publish`
    is handed a file with the weights of every best validation so far, and with the final ones, and makes it the
    model's; a resumed run does so at once where `is_published` says that the folder holds no whole model.

    Within `processes.joined` the processes do all this together, and one of them writes.
    """
    report, device = report or Report(), next(model.parameters()).device
    autocast(config, device)  # says at once if the precision cannot be had
    with ExitStack() as stack:
        if device.type == "cpu":
            keep_freed_memory()
            stack.enter_context(fast_products())
        leads = current_processes().leads
        if leads:
            make_folder(Path(folder), resume=resume)
            stack.enter_context(folder_lock(Path(folder)))
        current_processes().gather(lambda: check_seen(Path(folder)))
        origin = Origin(data_fingerprint, settings or {})
        trainer = Trainer(model, config, Path(folder), report, validate, origin, task, publish, resume=resume)
        stack.callback(trainer.recorder.close)
        if leads and trainer.best is not None and trainer.best.exists() and not is_published(Path(folder)):
            trainer.publish(trainer.best)  # the process before was killed meanwhile, or the model was damaged since
        state = trainer.state
        stop = stack.enter_context(StopRequest())
        reader = ReadAhead(
            batches,
            Position(state.epoch, state.index),
            state.batches,
            items=task.items,
            stop_reasons=lambda: StopReasons(stop.asked, trainer.is_late()),
            ready=ready_for(model),
        )
        stack.enter_context(closing(reader))
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        with trainer.parallel.whole():
            stack.enter_context(fused_layers(config.fast))
        stack.callback(report.end)
        report.unit = task.unit
        report.begin(step=state.step, steps=config.steps, minutes=config.minutes, seconds=state.seconds)
        stopped = trainer.run(reader, stop, draw)
        with stop.at_once():
            path = trainer.finish(stopped)
    return TrainingResult(path, stopped, state)


class Trainer:
    """A run in progress: the model and all that changes with it. `train` is the way in."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        folder: Path,
        report: Report,
        validate: Validator | None,
        origin: Origin,
        task: AnyObjective,
        publish: Publisher,
        *,
        resume: bool,
    ) -> None:
        self.model, self.config, self.folder, self.origin, self.task = model, config, folder, origin, task
        self.parallel = parallel_of(model, task, config.parallel)
        self.optimiser = make_optimiser(model, config)
        self.average = MovingAverage(model, config.ema) if config.ema else None
        self.state = begin(folder, model, self.optimiser, self.average, config, origin, resume=resume, say=report.say)
        self.recorder = Recorder(folder, self.state, report)
        self.graphs = StepGraphs(model, self.optimiser, config, task, report.say, self.parallel)
        self._validator, self._publish = validate, publish
        self._width = task.width(model)
        self._unsaved = False
        self.state.batches = self.state.batches or config.accumulate * current_processes().world
        check_shares(self.state.batches)
        self._agreed = StopReasons(late=self.is_late())

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / "checkpoints"

    @property
    def best(self) -> Path | None:
        """The checkpoint of the best validation, if there has been one."""
        step = self.state.best_step
        return None if step is None else checkpoint_path(self.checkpoints, step)

    def run(self, reader: ReadAhead, stop: StopRequest, draw: Callable[[Path], object] | None) -> Reason:
        """Train until a limit or a signal, and save; a model that diverged is not saved, so that the best remains."""
        try:
            return self._run(reader, stop, draw)
        except DivergedError as error:
            if self.state.best_step is None:
                raise
            self.recorder.report.say(
                f"step {self.state.step}: {error.what}; the best is step {self.state.best_step}, which is the final "
                f"model; for a better one, {error.advice}"
            )
            return "diverged"

    def _run(self, reader: ReadAhead, stop: StopRequest, draw: Callable[[Path], object] | None) -> Reason:
        self.model.train()
        while True:
            validated = not self.is_stopped(stop) and self.validation_due() and self.validate(stop)
            reason: Reason | None = "interrupted" if self.is_stopped(stop) else self.finished()
            if self._unsaved and (reason or self.save_due()):
                self.save()
            if validated and draw is not None and current_processes().leads:
                self.show(draw)
            if reason:
                return reason
            self.step(reader)

    def show(self, draw: Callable[[Path], object]) -> None:
        """Draw the metrics; training continues if the picture cannot be written."""
        try:
            draw(self.recorder.path)
        except (JumokError, OSError) as error:
            self.recorder.report.say(f"{error}; training continues without the picture")

    def step(self, reader: ReadAhead) -> None:
        """One update of the weights and of everything that follows them."""
        state, config = self.state, self.config
        number, (share, tokens, self._agreed) = state.step + 1, reader.next()
        rate = learning_rate(number, config, width=self._width)
        set_rate(self.optimiser, rate)
        outcome = self.graphs.step(share.batches, step=number, tokens=tokens)
        if outcome is None:
            outcome = train_step(
                self.model,
                self.optimiser,
                share.batches,
                config,
                step=number,
                say=self.recorder.report.say,
                tokens=tokens,
                parallel=self.parallel,
            )
        if self.average is not None:
            self.average.update(self.model, number)
        state.step, (state.epoch, state.index) = number, share.after
        state.tokens += outcome.tokens
        state.splits += outcome.splits
        self._unsaved = True
        self.recorder.step(state, outcome)
        if number % config.log_every == 0:
            self.recorder.line(state, rate=rate)

    def validation_due(self) -> bool:
        """Whether this step is to be validated and has not been."""
        if self._validator is None or self.state.step <= self.state.validated:
            return False
        return self.state.step % self.config.validate_every == 0 or self.finished() in ("steps", "minutes")

    def validate(self, stop: StopRequest) -> bool:
        """Validate this step; False if Ctrl-C interrupted it, in which case the resumed run repeats it."""
        try:
            with stop.at_once():
                scores = self.scores()
        except KeyboardInterrupt:
            if not stop.asked and current_processes().world == 1:
                raise
            self._agreed = self._agreed._replace(stop=True)  # all processes come here if one does
            return False
        loss, score = scores.get("loss", 0.0), scores[self.config.metric]
        broken = math.isnan(loss) or not (math.isfinite(loss) or math.isfinite(score))
        best = not broken and self.state.take_validation(scores, self.config)
        self._unsaved = True
        self.recorder.validation(self.state, scores, best=best)
        if broken:
            raise self.recorder.broken(self.state)
        return True

    def scores(self) -> dict[str, float]:
        """The scores of the model, or of the moving average of its weights."""
        assert self._validator is not None
        self.model.eval()
        try:
            averaged = self.average.in_place(self.model) if self.average else nullcontext()
            with torch.no_grad(), averaged, self.parallel.whole():
                scores = {name: float(value) for name, value in self._validator(self.model).items()}
        finally:
            self.model.train()
        if self.config.metric not in scores:
            raise ConfigError(
                f'training.metric = "{self.config.metric}", but validation gives {", ".join(scores) or "nothing"}'
            )
        return scores

    def save_due(self) -> bool:
        """Whether this step is followed by a checkpoint, as every `save_every` steps and after every validation."""
        step = self.state.step
        return step % (self.config.save_every or self.config.validate_every) == 0 or step == self.state.validated

    def save(self) -> None:
        """Write a checkpoint and remove those that are no longer wanted."""
        self.state.sums = self.recorder.sums()
        self.recorder.tick(self.state)
        save_snapshot(self.checkpoints, self.model, self.optimiser, self.average, self.state, self.config, self.origin)
        self._unsaved = False
        if not current_processes().leads:
            return
        prune(self.checkpoints, keep=self.config.keep, best=self.state.best_step)
        if self.best is not None and self.state.best_step == self.state.step:
            self.publish(self.best)

    def publish(self, checkpoint: Path) -> None:
        """Publish the weights of a checkpoint as the model, so that it can be used even if this process is killed."""
        self._publish(validated_file(self.folder, checkpoint), self.state)

    def is_stopped(self, stop: StopRequest) -> bool:
        """Whether training is to stop after this step; several processes stop when all know of it."""
        return stop.asked if current_processes().world == 1 else self._agreed.stop

    def is_late(self) -> bool:
        """Whether training.minutes are over."""
        return bool(self.config.minutes) and self.state.seconds >= 60 * self.config.minutes

    def finished(self) -> Reason | None:
        """What limit has been reached, if any."""
        state, config = self.state, self.config
        if state.step >= config.steps:
            return "steps"
        if config.patience and state.waited >= config.patience:
            return "patience"
        if self.is_late() if current_processes().world == 1 else self._agreed.late:
            return "minutes"
        return None

    def finish(self, stopped: Reason) -> Path:
        """Report why training ended, and write the final model."""
        self.recorder.report_skipped(self.state)
        if stopped != "diverged":  # which has been said
            self.recorder.report.say(self._why(stopped))
        current_processes().first(lambda: None)  # the leading process has written all of its checkpoints
        weights = best_weights(self.checkpoints, self.model, self.average, self.state)
        newest = checkpoints(self.checkpoints)[-self.config.average :] if self.config.average else []
        if len(newest) > 1 and stopped not in ("interrupted", "diverged"):
            weights = self._mean_unless_worse(newest, weights)
        written = write_final(self.folder, self.model.eval(), weights)
        if current_processes().leads:
            self._publish(written, self.state)
        return self.folder / MODEL

    def _mean_unless_worse(self, paths: list[Path], best: dict[str, Tensor]) -> dict[str, Tensor]:
        """The mean of these checkpoints, unless validation finds the best weights better."""
        mean = average_tensors([path / MODEL for path in paths])
        if self._validator is None or self.state.best is None:
            return mean
        load_weights(self.model, mean, self.folder)
        scores, metric = self.scores(), self.config.metric
        worse = not (scores[metric] == self.state.best or self.config.better(scores[metric], self.state.best))
        verdict = "worse than the best checkpoint, which is the final model" if worse else "it is the final model"
        self.recorder.report.say(
            f"the mean of the {len(paths)} newest checkpoints has {metric} {scores[metric]:.4g}: {verdict}"
        )
        if worse:
            return best
        self.state.best_scores = scores
        return mean

    def _why(self, stopped: Reason) -> str:
        step, config, again = (
            self.state.step,
            self.config,
            "; to continue, raise it and use --resume (in Python resume=True)",
        )
        if stopped == "interrupted":
            why, again = f"stopped after step {step}", f", all saved in {self.folder}"
        elif stopped == "patience":
            why = f"step {step}: no better {config.metric} in {self.state.waited} validations, so training is done"
            again = "; to continue, raise training.patience and use --resume (in Python resume=True)"
        else:
            limit = f"steps = {config.steps}" if stopped == "steps" else f"minutes = {config.minutes:g}"
            why = f"step {step}: training.{limit} reached"
            if stopped == "steps" and config.schedule == "cosine":
                again = config.train_further(self.folder)
        return why + again if self.recorder.report.resumes else why
