"""The training step as CUDA graphs: recorded once for each shape of batch, then replayed with a single launch.

A step of a recurrent model launches thousands of small kernels, and the host takes longer to launch them than the GPU
to run them. A CUDA graph holds the whole step: forward and backward pass, clipping, and the update of the weights. What
changes from step to step is in tensors the graph reads: the batch, its number of tokens, the learning rate, and the
seed of dropout. In a run of several processes it holds the two passes; gradients are summed before the update.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW

from jumok.models.encoder_decoder import Decoder, Encoder
from jumok.training.config import TrainingConfig
from jumok.training.objective import AnyObjective
from jumok.training.optimiser import update
from jumok.training.parallel import Alone, Replicas
from jumok.training.step import StepOutcome, add_gradient, draw_from, seed_of

REPEATS = 2
"""A shape is recorded when it occurs for this time; until then, its steps run without a graph."""
MOST_GRAPHS = 192
"""Maximum number of recorded shapes; steps of other shapes run without a graph."""

Shapes = tuple[Any, ...]


class StepGraph(NamedTuple):
    """A recorded step, and the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor | None, ...]
    """The parts of a batch."""
    tokens: Float[Tensor, ""]
    outcome: Float[Tensor, " number"]
    """Cross-entropy, length of the gradient, 1 if the step was skipped; the first alone in one of several processes."""

    def replay(self, batch: tuple[Tensor | None, ...], tokens: int) -> Float[Tensor, " number"]:
        """Run the step on another batch of the same shape."""
        for buffer, part in zip(self.inputs, batch, strict=True):
            if buffer is not None:
                buffer.copy_(part, non_blocking=True)  # type: ignore[arg-type]
        self.tokens.fill_(max(tokens, 1))
        self.graph.replay()
        return self.outcome.clone()  # the next replay writes into it


class StepGraphs:
    """The recorded steps of a run. All share their memory, because only one runs at a time."""

    def __init__(
        self,
        model: nn.Module,
        optimiser: AdamW,
        config: TrainingConfig,
        task: AnyObjective,
        say: Callable[[str], None],
        parallel: Alone | None = None,
    ) -> None:
        self.model, self.optimiser, self.config, self.task, self.say = model, optimiser, config, task, say
        self.device = next(model.parameters()).device
        self.graphs: dict[Shapes, StepGraph] = {}
        self._occurrences: Counter[Shapes] = Counter()
        self.parallel = parallel or Alone(model, task)
        wanted = config.fast and config.accumulate == 1
        self._usable = self.device.type == "cuda" and wanted and self.parallel.records
        if self._usable:
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def step(self, batches: Sequence[Any], *, step: int, tokens: int | None = None) -> StepOutcome | None:
        """What `train_step` does; None, with nothing done, if this step is to run without a graph.

        `tokens` counts those of all processes, of which some may replay the step while others run it without a graph.
        """
        if not self._usable or len(batches) != 1 or (shapes := shapes_of(batches[0])) is None:
            return None
        (batch,) = batches
        graph = self.graphs.get(shapes)
        if graph is None:
            self._occurrences[shapes] += 1
            if self._occurrences[shapes] < REPEATS or len(self.graphs) >= MOST_GRAPHS:
                return None
            graph = self._try_to_record(batch)
            if graph is None:
                return None
            self.graphs[shapes] = graph
        tokens = self.task.items(batch) if tokens is None else tokens
        draw_from(seed_of(self.config.seed, step, next(self.parallel.numbers())), self.device)
        outcome = graph.replay(batch, tokens)
        if isinstance(self.parallel, Replicas):
            cross_entropy = self.parallel.combine_laid_out(outcome[0])
            norm, skipped = update(self.optimiser, clip=self.config.clip)
        else:
            cross_entropy, norm, skipped = outcome.unbind()
        return StepOutcome(cross_entropy, max(tokens, 1), norm, skipped, 0)

    def _try_to_record(self, batch: Any) -> StepGraph | None:
        generator = torch.cuda.default_generators[self.device.index or 0]
        try:
            return self._record(batch)
        except Exception as error:  # whatever a model does that cannot be recorded, it can be run
            self._usable = False
            self.graphs.clear()
            with suppress(Exception):  # leave the state of a recording that was broken off
                generator.graphsafe_set_state(generator.clone_state())
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            self.say(f"training runs without CUDA graphs, which is slower: {reason}")
            return None
        finally:
            self.optimiser.zero_grad(set_to_none=True)

    def _record(self, batch: Any) -> StepGraph | None:
        inputs = each_tensor(batch, lambda part: part.to(self.device, non_blocking=True))
        tokens = torch.ones((), device=self.device)
        if not self.graphs and not self._rehearse(inputs, tokens):
            return None
        self.optimiser.zero_grad(set_to_none=True)
        buckets = self.parallel.lay_out() if isinstance(self.parallel, Replicas) else []
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self._stream), capturable(self.optimiser):
            # Another thread may reserve memory meanwhile: the one that reads the next batches.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                if buckets:
                    torch._foreach_zero_(buckets)
                cross_entropy = add_gradient(inputs, tokens, self.config, self.parallel)
                if buckets:
                    outcome = cross_entropy[None]
                else:
                    norm, skipped = update(self.optimiser, clip=self.config.clip)
                    outcome = torch.stack([cross_entropy, norm, skipped])
            finally:
                graph.capture_end()
        return StepGraph(graph, tuple(inputs), tokens, outcome)

    def _rehearse(self, inputs: Any, tokens: Tensor) -> bool:
        """Run both passes once, with an error where the host would wait; whether the optimiser has every weight."""
        self.optimiser.zero_grad(set_to_none=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a prototype, which may miss some waits
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("error")
            try:
                add_gradient(inputs, tokens, self.config, self.parallel)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        weights = [weight for group in self.optimiser.param_groups for weight in group["params"]]
        return all(weight in self.optimiser.state for weight in weights if weight.grad is not None)


@runtime_checkable
class PaddedBatch(Protocol):
    """A batch of sequences, which can be padded to one of a few shapes."""

    def rounded(self, limit: int | None = None) -> Any:
        """The same batch with more padding, where sequences stay within `limit`."""
        ...


def ready_for(model: nn.Module) -> Callable[[Any], Any] | None:
    """What to do with batches for this model before they are copied to its GPU; None if it is not on one.

    They are padded to one of a few shapes, as far as the model can take them, and tuples of tensors are put into
    page-locked memory, from which copies run in the background.
    """
    if next(model.parameters()).device.type != "cuda":
        return None
    limit = longest_of(model)

    def ready(batch: Any) -> Any:
        return pinned(batch.rounded(limit) if isinstance(batch, PaddedBatch) else batch)

    return ready


def pinned(batch: Any) -> Any:
    """A tuple of tensors in page-locked memory; any other batch as it is."""
    return batch if shapes_of(batch) is None else each_tensor(batch, Tensor.pin_memory)


def each_tensor(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A tuple of tensors, named or not, with `change` applied to every tensor."""
    parts = [None if part is None else change(part) for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)


def longest_of(model: nn.Module) -> int | None:
    """The longest sequence that every part of a model can take; None for no limit."""
    parts = list(model.modules())
    limits = [part.limit for part in parts if isinstance(part, Encoder | Decoder)]
    limits += [part.source_limit for part in parts if isinstance(part, Decoder)]
    return min((limit for limit in limits if limit is not None), default=None)


def shapes_of(batch: Any) -> Shapes | None:
    """The shapes and dtypes of a batch; None if it is not made of tensors alone."""
    if not isinstance(batch, tuple) or not all(part is None or isinstance(part, Tensor) for part in batch):
        return None
    return (type(batch), *(None if part is None else (part.shape, part.dtype) for part in batch))


@contextmanager
def capturable(optimiser: AdamW) -> Iterator[None]:
    """Mark the optimiser as capturable: PyTorch records no other, and warns of one outside a recording."""
    for group in optimiser.param_groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in optimiser.param_groups:
            group["capturable"] = False
