"""Other toolkits as workers of benchmarks.decoding, each run by the Python of an environment that has it.

    path/to/python benchmarks/decoding_peers.py '{"toolkit": "opennmt", "shape": "base", "folder": "work", …}'

`folder` has the words of a vocabulary, one a line, in `vocabulary`, and tokenised sentences in `sentences`. Models have
random weights: OpenNMT-py and Eole, which decode only from a checkpoint, train one step at a learning rate of 10⁻⁶
before their start is timed.
"""

import contextlib
import io
import json
import logging
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

Translate = Callable[[Sequence[str], int], Sequence[int]]
"""Sentences of words and the beam size to the lengths of the outputs."""
TRANSFORMERS = {"base": (6, 512), "small": (3, 256)}
WIDTH, EMBEDDING = 512, 256
"""Of RNNsearch."""


class PeerTask(NamedTuple):
    """What a worker of another toolkit does."""

    toolkit: str
    shape: str
    threads: int
    folder: str
    sentences: int
    length: int
    """Tokens of every output."""
    batch: int


def corpus(task: PeerTask, *, source: str, target: str) -> dict[str, Any]:
    """The settings of data that OpenNMT-py and Eole share; they read the vocabulary from a file of words and counts."""
    folder = Path(task.folder)
    words = folder.joinpath("vocabulary").read_text(encoding="utf-8").splitlines()
    counts = folder / "counts"
    counts.write_text("".join(f"{word}\t1\n" for word in words), encoding="utf-8")
    sentences = {source: str(folder / "sentences"), target: str(folder / "sentences")}
    return {
        "data": {"corpus_1": sentences, "valid": sentences},
        "src_vocab": str(counts),
        "tgt_vocab": str(counts),
        "share_vocab": True,
        "src_vocab_size": len(words) + 8,
        "tgt_vocab_size": len(words) + 8,
        "overwrite": True,
    }


ONE_STEP = {"train_steps": 1, "valid_steps": 10**6, "save_checkpoint_steps": 1, "batch_type": "sents", "batch_size": 4}
ONE_STEP |= {"bucket_size": 256, "num_workers": 0, "optim": "adam", "learning_rate": 1e-6, "dropout": [0.1]}


def made(folder: Path, command: list[str], config: dict[str, Any]) -> None:
    """Train one step; JSON is read as YAML."""
    path = folder / "config.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        sys.exit(f"the model was not made: {(done.stdout + done.stderr)[-800:]}")


def make_opennmt(task: PeerTask) -> None:
    folder = Path(task.folder)
    if task.shape in TRANSFORMERS:
        layers, width = TRANSFORMERS[task.shape]
        model: dict[str, Any] = {"encoder_type": "transformer", "decoder_type": "transformer", "layers": layers}
        model |= {"heads": width // 64, "hidden_size": width, "word_vec_size": width, "transformer_ff": 4 * width}
        model |= {"position_encoding": True, "share_embeddings": True, "share_decoder_embeddings": True}
    else:
        model = {"encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "GRU", "layers": 1, "bridge": True}
        model |= {"hidden_size": WIDTH, "word_vec_size": EMBEDDING, "global_attention": "mlp", "input_feed": 1}
    start = {"save_model": str(folder / "model"), "param_init": 0.0, "param_init_glorot": True}
    train = [sys.executable, "-W", "ignore", "-m", "onmt.bin.train", "-config"]
    made(folder, train, corpus(task, source="path_src", target="path_tgt") | model | start | ONE_STEP)


def opennmt(task: PeerTask) -> Translate:
    from onmt.bin.translate import _get_parser
    from onmt.inference_engine import InferenceEnginePY
    from onmt.utils.parse import ArgumentParser

    folder = Path(task.folder)

    @cache
    def engine(beam: int) -> Any:
        options = ["-model", str(folder / "model_step_1.pt"), "-src", str(folder / "sentences"), "-output", "/dev/null"]
        for name, value in {"beam_size": beam, "batch_size": task.batch, "max_length_ratio": 0}.items():
            options += [f"-{name}", str(value)]
        options += ["-min_length", str(task.length), "-max_length", str(task.length)]
        parsed = _get_parser().parse_args(options)
        ArgumentParser.validate_translate_opts(parsed)
        ArgumentParser._get_all_transform_translate(parsed)
        ArgumentParser._validate_transforms_opts(parsed)
        ArgumentParser.validate_translate_opts_dynamic(parsed)
        return InferenceEnginePY(parsed)

    return lambda texts, beam: [len(best[0].split()) for best in engine(beam).infer_list(list(texts))[1]]


def make_eole(task: PeerTask) -> None:
    folder = Path(task.folder)
    if task.shape in TRANSFORMERS:
        layers, width = TRANSFORMERS[task.shape]
        embeddings = {"word_vec_size": width, "position_encoding_type": "SinusoidalInterleaved"}
        model: dict[str, Any] = {"architecture": "transformer", "layers": layers, "heads": width // 64}
        model |= {"hidden_size": width, "transformer_ff": 4 * width, "embeddings": embeddings}
        model |= {"share_embeddings": True, "share_decoder_embeddings": True}
    else:
        model = {"architecture": "rnn", "hidden_size": WIDTH, "layers": 1, "rnn_type": "GRU", "bridge": True}
        model |= {"embeddings": {"word_vec_size": EMBEDDING}, "encoder": {"encoder_type": "brnn"}}
        model |= {"decoder": {"decoder_type": "rnn", "global_attention": "mlp"}}
    training = ONE_STEP | {"model_path": str(folder / "eole"), "world_size": 1, "gpu_ranks": []}
    config = corpus(task, source="path_src", target="path_tgt") | {"model": model, "training": training}
    made(folder, [str(Path(sys.executable).with_name("eole")), "train", "-c"], config)


def eole(task: PeerTask) -> Translate:
    from eole.config.run import PredictConfig
    from eole.inference_engine import InferenceEnginePY

    folder = Path(task.folder)

    @cache
    def engine(beam: int) -> Any:
        lengths = {"min_length": task.length, "max_length": task.length, "max_length_ratio": 0}
        files = {"model_path": [str(folder / "eole")], "src": str(folder / "sentences"), "output": "/dev/null"}
        search = {"beam_size": beam, "batch_size": task.batch, "batch_type": "sents"}
        return InferenceEnginePY(PredictConfig(**files, **search, **lengths, gpu_ranks=[], world_size=1))

    return lambda texts, beam: [len(best[0].split()) for best in engine(beam).infer_list(list(texts))[2]]


def joeynmt(task: PeerTask) -> Translate:
    """JoeyNMT, whose Transformer computes all earlier tokens again at every step."""
    import torch
    from joeynmt.batch import Batch
    from joeynmt.model import build_model
    from joeynmt.search import search
    from joeynmt.vocabulary import Vocabulary

    listed = Path(task.folder, "vocabulary").read_text(encoding="utf-8").splitlines()
    symbols: dict[str, Any] = {"sep_id": None, "sep_token": None, "lang_tags": []}
    for id, name in enumerate(["unk", "pad", "bos", "eos"]):
        symbols |= {f"{name}_id": id, f"{name}_token": f"<{name}>"}
    words = Vocabulary(listed, SimpleNamespace(**symbols))
    if task.shape in TRANSFORMERS:
        layers, width = TRANSFORMERS[task.shape]
        encoder = {"type": "transformer", "num_layers": layers, "num_heads": width // 64, "hidden_size": width}
        encoder |= {"ff_size": 4 * width, "embeddings": {"embedding_dim": width, "scale": True}}
        decoder, ties = encoder, {"tied_embeddings": True, "tied_softmax": True}
    else:
        recurrent = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1}
        recurrent |= {"embeddings": {"embedding_dim": EMBEDDING, "scale": False}}
        encoder = recurrent | {"hidden_size": WIDTH // 2, "bidirectional": True}
        decoder = recurrent | {"hidden_size": WIDTH, "init_hidden": "bridge", "attention": "bahdanau"}
        ties = {"tied_embeddings": True}
    model = build_model(ties | {"encoder": encoder, "decoder": decoder}, src_vocab=words, trg_vocab=words).eval()
    numbers = {word: number for number, word in enumerate(words._itos)}

    def translate(texts: Sequence[str], beam: int) -> list[int]:
        lengths = []
        for start in range(0, len(texts), task.batch):
            rows = [
                [*(numbers[word] for word in text.split()), words.eos_index] for text in texts[start:][: task.batch]
            ]
            rows.sort(key=len, reverse=True)  # its recurrent encoder wants the longest first
            longest = len(rows[0])
            ids = torch.tensor([row + [words.pad_index] * (longest - len(row)) for row in rows])
            sizes, order = torch.tensor([len(row) for row in rows]), torch.arange(len(rows))
            batch = Batch(ids, sizes, None, None, None, order, ids.device, words.pad_index, words.eos_index, False)
            outputs, *_ = search(model, batch, task.length, beam, beam_alpha=1.0, min_output_length=task.length)
            lengths += [outputs.shape[1]] * len(rows)
        return lengths

    return translate


MAKERS: dict[str, Callable[[PeerTask], None]] = {"opennmt": make_opennmt, "eole": make_eole}
"""Those that write the checkpoint of a toolkit that needs one."""
TOOLKITS: dict[str, Callable[[PeerTask], Translate]] = {"opennmt": opennmt, "eole": eole, "joeynmt": joeynmt}


def work(task: PeerTask) -> None:
    """Answer each line of standard input, "many 5" or "one 5", with the seconds that it took with this beam."""
    if task.toolkit in MAKERS:
        MAKERS[task.toolkit](task)
    started = time.time()
    import torch

    torch.set_num_threads(task.threads)
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent):
        translate = TOOLKITS[task.toolkit](task)
        logging.disable(logging.CRITICAL)
        texts = Path(task.folder, "sentences").read_text(encoding="utf-8").splitlines()[: task.sentences]
        translate(texts[:1], 2)
    print(json.dumps({"ready": time.time() - started}), flush=True)
    for line in sys.stdin:
        what, beam = line.split()
        times = []
        with contextlib.redirect_stdout(silent), torch.inference_mode():
            translate(texts[:1], int(beam))
            for group in [texts] if what == "many" else [[text] for text in texts[:4]]:
                start, busy = time.perf_counter(), time.process_time()
                lengths = translate(group, int(beam))
                times.append((time.perf_counter() - start, time.process_time() - busy))
                assert all(task.length - 1 <= length <= task.length + 1 for length in lengths), lengths
        seconds, busy = sorted(times)[len(times) // 2]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "busy": busy, "memory": memory}), flush=True)


if __name__ == "__main__":
    work(PeerTask(**json.loads(sys.argv[1])))
