"""Several processes that train one model: their ranks, what they exchange, and which of them reports.

    torchrun --nproc-per-node 8 -m jumok train recipe.toml

starts eight. Process number 0 leads: it alone prepares data and writes files. An error in any process ends all of them,
and one of them reports it. A process that was started alone is a world of one, to which the same code applies.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from jumok.errors import ArgumentError, DataError, TrainingError
from jumok.torchrun import is_launched

T = TypeVar("T")
S = TypeVar("S")

PATIENCE = timedelta(days=7)
"""How long processes wait for the leader, which may have 10⁸ pairs to tokenise; a crash is noticed at once."""
SLOWEST_DISK = 60.0
"""Seconds after which a new folder is seen on every machine that shares a disk."""
CONNECTIONS = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "TCPStore")
"""Words in error messages that mean that another process is gone."""


@dataclass(frozen=True)
class Processes:
    """The processes of a run as one of them, number `rank` of `world`, sees them."""

    rank: int = 0
    world: int = 1
    _words: Any = None
    """Connects the main threads; tensors of gradients have their own connection."""
    _batches: Any = None
    """Connects the threads that read batches."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process's share of the items."""
        return items[self.rank :: self.world]

    def gather(self, work: Callable[[], T]) -> list[T]:
        """What `work` returns in each process, in the order of ranks; what it raises in one, all raise.

        Ctrl-C may break off the work of a process, but nothing that it does together with others.
        """
        global _works_alone
        if self.world == 1:
            return [work()]
        mine: tuple[T | None, type[BaseException] | None, str] = (None, None, "")
        try:
            _works_alone = True
            mine = work(), None, ""
            _works_alone = False
        except (Exception, KeyboardInterrupt) as error:
            _works_alone = False
            mine, raised = (None, type(error), str(error)), error
        answers: list[Any] = [None] * self.world
        dist.all_gather_object(answers, mine, group=self._words)
        for number, (_, kind, message) in enumerate(answers):
            if kind is not None:
                raise raised if number == self.rank else kind.__new__(kind, message)
        return [result for result, _, _ in answers]

    def first(self, work: Callable[[], T]) -> T:
        """What `work` returns in the process that leads, in all processes; the others wait for it."""
        return self.gather(lambda: work() if self.leads else None)[0]  # type: ignore[return-value]

    def map(self, work: Callable[[Sequence[T]], Sequence[S]], items: Sequence[T]) -> list[S]:
        """`work(items)`, done in shares: what it returns for each item, in the order of the items."""
        results: list[Any] = [None] * len(items)
        for number, share in enumerate(self.gather(lambda: list(work(self.share(items))))):
            results[number :: self.world] = share
        return results

    def total(self, work: Callable[[], Sequence[float]]) -> list[float]:
        """The sums over all processes of the numbers that `work` returns."""
        return [sum(column) for column in zip(*self.gather(work), strict=True)]

    def agree(self, numbers: Sequence[int]) -> list[int]:
        """The same for whole numbers, in the thread that reads batches."""
        if self.world == 1:
            return list(numbers)
        sums = torch.tensor(numbers)
        dist.all_reduce(sums, group=self._batches)
        return [int(number) for number in sums]


ALONE = Processes()
_current = ALONE
_works_alone = False
_joins = count()


def current_processes() -> Processes:
    """The processes of the current run; a world of one outside of `joined`."""
    return _current


def may_stop_alone() -> bool:
    """Whether this process, one of several, can stop what it does without leaving the others waiting."""
    return _works_alone


def is_restarted() -> bool:
    """Whether torchrun started this process in place of one that failed (--max-restarts)."""
    return is_launched() and _restarts() > 0


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def device_name(name: str) -> str:
    """The device of this process, where `name` is what the user asked for: every process has a GPU of its own."""
    if not is_launched() or not torch.cuda.is_available():
        return name
    if name.startswith("cuda:") and os.environ["WORLD_SIZE"] != "1":
        raise ArgumentError(f"device = {name!r} names one GPU for all processes; with cuda or auto, each takes its own")
    if name not in ("auto", "cuda"):
        return name
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Connect the processes that torchrun started, until the block ends; one that was started alone stays alone.

    Of the errors that end the block, one process raises the first; the others leave with exit code 1.
    """
    global _current
    if not is_launched() or _current is not ALONE:
        yield _current
        return
    from torch.distributed.rendezvous import rendezvous

    shared, rank, world = next(iter(rendezvous("env://")))
    # After a restart, and in a second run, the store may be the one before, with addresses that are gone.
    store = dist.PrefixStore(f"jumok-{_restarts()}-{next(_joins)}", shared)  # type: ignore[attr-defined]
    backend = "gloo" if device == "cpu" or not torch.cuda.is_available() else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    groups = (dist.new_group(backend="gloo", timeout=PATIENCE) for _ in range(2)) if world > 1 else (None, None)
    _current = Processes(rank, world, *groups)
    try:
        yield _current
    except (Exception, KeyboardInterrupt) as error:
        if not _reports(store):
            raise SystemExit(1) from None
        if _is_of_connection(error):
            raise TrainingError(
                "another process of this run has ended unexpectedly; continue with the same command and --resume (in "
                "Python resume=True), or let torchrun do so: --max-restarts 3"
            ) from None
        raise
    finally:
        _current = ALONE
        dist.destroy_process_group()


def _reports(store: Any) -> bool:
    """Whether this is the process that reports the error: the first that has one."""
    try:
        return bool(store.add("jumok/errors", 1) == 1)
    except (RuntimeError, ValueError):  # whoever kept the store is gone
        return True


def _is_of_connection(error: BaseException) -> bool:
    words = str(error)
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(word in words for word in CONNECTIONS)
    )


def check_seen(folder: Path) -> None:
    """Raise a DataError if a folder that the leading process has made is not there for this one."""
    until = time.monotonic() + SLOWEST_DISK
    while not folder.is_dir():
        if time.monotonic() > until:
            raise DataError(
                f"process {current_processes().rank} on {platform.node()} does not see the folder {folder.absolute()}, "
                "which process 0 made; name one on a file system that all machines share: --out /shared/runs/NAME"
            )
        time.sleep(0.2)


def check_shares(batches: int) -> None:
    """Raise an ArgumentError if there are fewer batches in an update than processes."""
    processes = current_processes().world
    if batches < processes:
        raise ArgumentError(
            f"each update of this run takes {batches} batches, which {processes} processes cannot share; continue "
            f"with {batches} processes or fewer"
        )
