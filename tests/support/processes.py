"""Several processes on this machine, connected as torchrun connects them, and what they do in tests."""

import multiprocessing
import os
import signal
import socket
import sys
from pathlib import Path

import torch

import jumok
from jumok.errors import DataError
from jumok.training import TrainingConfig, loop, parallel, train
from jumok.training.objective import SEQUENCES
from jumok.training.processes import current_processes, joined
from support.commands import RECIPE
from support.runs import Remarks
from support.tiny import TinyBatches, TinyModel, validate

SETTINGS = {"steps": 12, "validate_every": 4, "save_every": 6, "log_every": 3, "warmup": 4, "learning_rate": 0.01}
GRAPH = {
    "graph": {"built_in": "planted", "size": 200},
    "network": {"layers": 2},
    "sampling": {"fanout": [3, 3], "batch": 20},
    "training": {"steps": 6, "validate_every": 3, "metric": "accuracy"},
}


def together(world, work, *arguments, device="cpu"):
    """`work(*arguments)` in `world` processes at once; their exit codes."""
    context = multiprocessing.get_context("spawn")
    port = free_port()
    started = [
        context.Process(target=_joined, args=(rank, world, port, sys.path, device, work, arguments))
        for rank in range(world)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
        process.kill()
    return [process.exitcode for process in started]


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def _joined(rank, world, port, path, device, work, arguments):
    sys.path[:] = path
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with joined(device):
        work(*arguments)


def tiny_run(folder, *, steps=12, resume=False, report=None, validator=validate, **settings):
    """Train the tiny model, with dropout."""
    config = TrainingConfig(**{**SETTINGS, "steps": steps, **settings})
    report = report or Remarks()
    train(TinyModel(), TinyBatches(), config, folder=folder, validate=validator, resume=resume, report=report)
    return report


def interrupted_second(model):
    """A validation whose second time is broken off in the second process."""
    _validated.append(model)
    if len(_validated) == 2 and current_processes().rank == 1:
        current_processes().gather(lambda: os.kill(os.getpid(), signal.SIGTERM))
    elif len(_validated) == 2:
        current_processes().gather(lambda: None)
    return validate(model)


_validated = []


def tiny_runs(folder: Path):
    """Runs of two processes, each to be compared with one of a single process."""
    parallel.BUCKET = 100  # so that there are several
    tiny_run(folder / "ddp")
    tiny_run(folder / "fsdp", parallel="fsdp")
    tiny_run(folder / "ddp-ema", ema=0.9)
    tiny_run(folder / "fsdp-ema", ema=0.9, parallel="fsdp")
    for name, kind in (("resumed", "ddp"), ("resumed-fsdp", "fsdp")):
        tiny_run(folder / name, steps=8, parallel=kind)
        tiny_run(folder / name, resume=True, parallel=kind)
    tiny_run(folder / "half", steps=8, parallel="fsdp")
    tiny_run(folder / "begun-by-one", resume=True, accumulate=3)
    tiny_run(folder / "begun-by-one-fsdp", resume=True, accumulate=3, parallel="fsdp")
    tiny_run(folder / "broken-off", validator=interrupted_second)
    tiny_run(folder / "broken-off", resume=True)
    torch.save(summed_in_two_ways(), folder / f"sums-{current_processes().rank}")
    asked = {5: lambda: os.kill(os.getpid(), signal.SIGTERM)} if current_processes().rank == 1 else {}
    tiny_run(folder / "stopped", steps=400, report=Remarks(asked))
    if current_processes().leads:
        (folder / "told").write_text("\n".join(tiny_run_of_one_error(folder)))
    else:
        tiny_run_of_one_error(folder)


def summed_in_two_ways():
    """The gradients of a step, summed as they are written, and as parts of buckets as after a CUDA graph."""
    model, found = TinyModel(dropout=0.0), []
    shared = parallel.Replicas(model, SEQUENCES)
    batch, device = TinyBatches().batch(0, current_processes().rank), torch.device("cpu")
    for way in (shared.combine, shared.combine_laid_out):
        if found:
            torch._foreach_zero_(shared.lay_out())
        loss = SEQUENCES.loss(model, batch, device, TrainingConfig())
        loss.total.backward()
        total = way(loss.cross_entropy)
        found.append([total, *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)])
        model.zero_grad(set_to_none=True)
    return found


def tiny_run_of_one_error(folder):
    """What both processes hear of an error in the second."""

    def fail():
        if current_processes().rank == 1:
            raise DataError("the second cannot read")
        return 1

    try:
        current_processes().gather(fail)
    except DataError as error:
        return [type(error).__name__, str(error)]
    return []


def gpu_runs(folder: Path):
    """Runs of one process on a GPU that sends nothing, that sends its gradients, and that keeps the model in parts."""
    for name, kind in (("alone", parallel.Alone), ("ddp", parallel.Replicas), ("fsdp", parallel.Shards)):
        loop.parallel_of = lambda model, task, _, kind=kind: kind(model, task)
        config = TrainingConfig(**SETTINGS)
        train(TinyModel(dropout=0.0).cuda(), SameShapes(), config, folder=folder / name, validate=validate)


class SameShapes(TinyBatches):
    """Batches of one shape, so that steps become CUDA graphs."""

    def batch(self, epoch, step):
        return super().batch(0, 0)


def recipe_runs(folder: Path, accumulate: int):
    """Runs of recipes of every task."""
    import tomllib

    tables = tomllib.loads(RECIPE)
    brief = {"training.steps": 6, "training.validate_every": 3, "training.accumulate": accumulate}
    translation = brief | {"data.size": 200, "data.valid_size": 9, "decoding.beam": 2, "training.metric": "chrf"}
    jumok.train(tables, out=folder / "translation", overrides=translation, draw=False, report=Remarks())
    fsdp = translation | {"training.parallel": "fsdp"}
    run = jumok.train(tables, out=folder / "translation-fsdp", overrides=fsdp, draw=False, report=Remarks())
    if current_processes().leads:
        (folder / "text").write_text(run.model.translate(["1 2 3"])[0].text)
    jumok.train(GRAPH, out=folder / "graph", overrides=brief, draw=False, report=Remarks())
    captions = {
        "images": {"scenes": "en", "count": 40, "valid_count": 5, "size": 32},
        "tokenizer": {"kind": "word", "size": 100},
        "encoder": {"kind": "patches", "layers": 1, "heads": 2, "width": 16, "hidden": 16},
        "decoder": {"kind": "transformer", "width": 16, "layers": 1, "heads": 2},
        "batch": {"sentences": 8},
        "decoding": {"beam": 2, "max_length": 12},
    }
    grid = {"kind": "grid", "blocks": [1], "channels": 8, "width": 16}
    jumok.train({**captions, "encoder": grid}, out=folder / "grid", overrides=brief, draw=False, report=Remarks())
    jumok.train(captions, out=folder / "captions", overrides=brief, draw=False, report=Remarks())


def whole_graph_run(folder: Path):
    """A run that several processes cannot share."""
    jumok.train({**GRAPH, "sampling": {}}, out=folder / "whole", draw=False, report=Remarks())
