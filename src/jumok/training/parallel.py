"""How processes share one model: each has a copy of it (DDP), or each keeps a part of its weights (FSDP2).

In both, a process computes the gradient of its share of a step's batches, divided by the number of tokens of *all*
batches of the step. The sum over the processes is then the gradient that one process would have found alone:

    ∇ = Σ over ranks r of ∇ (Σ over batches b of r of loss(b)) / Σ over all batches of tokens(b)
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from jumok.models.weights import PLAIN, load_weights, weights_of, whole
from jumok.training.config import Parallel, TrainingConfig
from jumok.training.loss import Loss
from jumok.training.objective import AnyObjective
from jumok.training.optimiser import trained
from jumok.training.processes import current_processes

BUCKET = 2**23
"""Numbers of gradients that are summed over the processes at a time: 32 MiB."""


class Alone:
    """One process with the whole model."""

    def __init__(self, model: nn.Module, task: AnyObjective) -> None:
        self.model, self.task = model, task

    @property
    def splits(self) -> bool:
        """Whether a batch that does not fit into memory may be split."""
        return True

    @property
    def records(self) -> bool:
        """Whether a CUDA graph can hold the passes of a step."""
        return True

    def numbers(self) -> Iterator[int]:
        """The numbers of this process's batches among all of a step, from which the seeds of dropout are made."""
        return islice(count(), current_processes().rank, None, current_processes().world)

    def begin_piece(self, *, last: bool) -> None:
        """Called before the forward pass of a piece; after the `last` one, gradients are summed."""

    def loss(self, batch: Any, device: torch.device, config: TrainingConfig) -> Loss:
        """The task's loss of a batch."""
        return self.task.loss(self.model, batch, device, config)

    def combine(self, cross_entropy: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Sum the gradients over all processes, and the cross-entropy, which is returned."""
        return cross_entropy

    @contextmanager
    def whole(self) -> Iterator[None]:
        """In this block the model has all of its weights, and can be used as if there were one process."""
        yield


class Replicas(Alone):
    """A copy of the model in every process; all make the same updates (Li et al. 2020).

    Gradients are summed in buckets. Those of the last piece's backward pass travel while it goes on: a bucket is sent
    when all of its gradients are there and the bucket before it is sent, in the same order in all processes.

    A CUDA graph holds the passes alone: NCCL wants all processes to record what they send, or none, and the batches of
    each have other shapes. A graph adds gradients to buckets that stay where they are, which are sent after it.
    """

    def __init__(self, model: nn.Module, task: AnyObjective) -> None:
        super().__init__(model, task)
        self._weights = list(reversed(trained(model).values()))  # about the order in which gradients arrive
        self._buckets: list[list[Tensor]] | None = None
        self._sending: _Sending | None = None
        self._flat: list[Tensor] = []
        with torch.no_grad():
            for weight in model.state_dict().values():
                dist.broadcast(weight, 0)
        for weight in self._weights:
            weight.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]

    @property
    def splits(self) -> bool:
        """Whether nothing has been sent yet, so that a batch can be computed once more in two halves."""
        return self._sending is None or not self._sending.sent

    def begin_piece(self, *, last: bool) -> None:
        """The gradients of the last piece are sent as they arrive, once it is known which there are."""
        self._sending = _Sending(self._buckets) if last and self._buckets is not None else None

    def _arrived(self, weight: Tensor) -> None:
        if self._sending is not None:
            self._sending.arrived(weight)

    @torch.no_grad()
    def combine(self, cross_entropy: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Send what has not been sent, and wait for the sums."""
        self._buckets = self._buckets or list(buckets(self._used()))
        sending, self._sending = self._sending or _Sending(self._buckets), None
        sending.send_rest()
        total = _total(cross_entropy, self.model)
        sending.wait()
        return total

    def lay_out(self) -> list[Tensor]:
        """Make every gradient a part of its bucket; the buckets."""
        assert self._buckets is not None, "the first step runs as it is written"
        if not self._flat:
            self._flat = [_flat_like(bucket) for bucket in self._buckets]
        for bucket, flat in zip(self._buckets, self._flat, strict=True):
            parts = torch.split(flat, [weight.numel() for weight in bucket])
            for weight, part in zip(bucket, parts, strict=True):
                weight.grad = part.view_as(weight)
        return self._flat

    @torch.no_grad()
    def combine_laid_out(self, cross_entropy: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """`combine` for gradients that are parts of their buckets; it sends the same, in the same order."""
        working = [dist.all_reduce(flat, async_op=True) for flat in self.lay_out()]
        total = _total(cross_entropy, self.model)
        for sending in working:
            sending.wait()
        return total

    def _used(self) -> list[Tensor]:
        """The weights that have a gradient in any process."""
        mine = [number for number, weight in enumerate(self._weights) if weight.grad is not None]
        numbers = {number for used in current_processes().gather(lambda: mine) for number in used}
        return [self._weights[number] for number in sorted(numbers)]


class _Sending:
    """Gradients of one step on their way: buckets are sent in their order, each once all of its gradients are there."""

    def __init__(self, buckets: list[list[Tensor]]) -> None:
        self.buckets = buckets
        self.missing = [{id(weight) for weight in bucket} for bucket in buckets]
        self.sent: list[tuple[Tensor, Any]] = []

    def arrived(self, weight: Tensor) -> None:
        """Send the buckets that were waiting for the gradient of this weight alone."""
        for missing in self.missing:
            missing.discard(id(weight))
        while len(self.sent) < len(self.buckets) and not self.missing[len(self.sent)]:
            self._send_next()

    def send_rest(self) -> None:
        """Send the other buckets, with zeros where this process has no gradient."""
        while len(self.sent) < len(self.buckets):
            self._send_next()

    @torch.no_grad()
    def _send_next(self) -> None:
        flat = torch.cat([_gradient(weight).flatten() for weight in self.buckets[len(self.sent)]])
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))

    def wait(self) -> None:
        """Make the sums the gradients."""
        for bucket, (flat, sending) in zip(self.buckets, self.sent, strict=True):
            sending.wait()
            parts = torch.split(flat, [weight.numel() for weight in bucket])
            gradients = [_gradient(weight) for weight in bucket]
            torch._foreach_copy_(gradients, [part.view_as(own) for part, own in zip(parts, gradients, strict=True)])


def _flat_like(bucket: list[Tensor]) -> Tensor:
    return torch.zeros(sum(weight.numel() for weight in bucket), dtype=bucket[0].dtype, device=bucket[0].device)


def _gradient(weight: Tensor) -> Tensor:
    """The gradient of a weight; zeros where this process has not used it."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


def buckets(weights: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours together up to BUCKET numbers; one that is larger has a bucket of its own."""
    bucket: list[Tensor] = []
    for weight in weights:
        if bucket and sum(part.numel() for part in bucket) + weight.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(weight)
    if bucket:
        yield bucket


@torch.no_grad()
def _total(cross_entropy: Float[Tensor, ""], model: nn.Module) -> Float[Tensor, ""]:
    """The cross-entropy of all processes; and the running moments of batch normalisation become the mean over them."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    running = [moment for norm in norms if norm.training for moment in norm.buffers() if moment.is_floating_point()]
    parts = [cross_entropy, *running]
    numbers = torch.cat([part.flatten().float() for part in parts])
    dist.all_reduce(numbers)
    total, *sums = torch.split(numbers, [part.numel() for part in parts])
    for buffer, summed in zip(running, sums, strict=True):
        buffer.copy_(summed.view_as(buffer) / current_processes().world)
    return total[0]


class Shards(Alone):
    """Between steps, every process keeps a part of each weight, its moments and its moving average (FSDP2).

    For a step and for validation the weights are gathered; gradients are summed and scattered after the last backward
    pass. `set_force_sum_reduction_for_comms` has gloo, which knows no means, sum as NCCL does.
    """

    def __init__(self, model: nn.Module, task: AnyObjective) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().__init__(model, task)
        mesh = init_device_mesh(next(model.parameters()).device.type, (current_processes().world,))
        self.root: Any = fully_shard(_Gathered(model), mesh=mesh)
        self.root.set_gradient_divide_factor(1.0)
        self.root.set_force_sum_reduction_for_comms(True)

    @property
    def splits(self) -> bool:
        """Never: FSDP cannot repeat a backward pass."""
        return False

    @property
    def records(self) -> bool:
        """FSDP decides on the host what to gather."""
        return False

    def begin_piece(self, *, last: bool) -> None:
        """Weights are gathered once a step, and gradients summed once."""
        self.root.set_requires_gradient_sync(last)
        self.root.set_reshard_after_backward(last)

    def loss(self, batch: Any, device: torch.device, config: TrainingConfig) -> Loss:
        """The task's loss, computed within a forward pass of the module that gathers the weights."""
        loss: Loss = self.root(partial(super().loss, batch, device, config))
        return loss

    def combine(self, cross_entropy: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The last backward pass has summed the gradients."""
        return _total(cross_entropy, self.model)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Gather the weights, until the block ends."""
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()


class _Gathered(nn.Module):
    """A module whose forward pass does whatever it is given: FSDP gathers the weights before one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()  # its batch is out of FSDP's sight, which would move it to the GPU at once


def with_whole_weights(model: nn.Module, build: Callable[[], nn.Module]) -> nn.Module:
    """The model, or if processes keep it in parts one that is built anew and has its weights."""
    weights = weights_of(model)
    if all(type(weight) in PLAIN for weight in weights.values()):
        return model
    device, plain = next(model.parameters()).device, build()
    load_weights(plain, dict(whole(weights)), "the trained model")
    return plain.to(device).eval()


def parallel_of(model: nn.Module, task: AnyObjective, kind: Parallel) -> Alone:
    """How this process shares the model with the others, if there are any."""
    if kind == "fsdp" and dist.is_available() and dist.is_initialized():
        return Shards(model, task)
    return Replicas(model, task) if current_processes().world > 1 else Alone(model, task)
