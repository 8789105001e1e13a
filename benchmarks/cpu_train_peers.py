"""Other toolkits in benchmarks.cpu_train: their settings, and the commands that train with them.

Each is run by its own command line with the Python of its environment. `text` has train.en, train.de, val.en and
val.de, the words of the vocabulary after four special tokens in `vocabulary`, and words with counts in `counts`. JSON
is read as YAML.
"""

import json
from pathlib import Path
from typing import Any

SMOOTHING, DROPOUT, RATE = 0.1, 0.1, 5e-4
NEVER = 10**6


def command(toolkit: str, python: str, model: str, steps: int, text: Path, out: Path) -> tuple[list[str], str]:
    """The program, and the pattern of a line of its log with the step and the target tokens per second."""
    return {"opennmt": opennmt, "eole": eole, "joeynmt": joeynmt}[toolkit](python, model, steps, text, out)


def written(out: Path, settings: dict[str, Any]) -> str:
    path = out / "settings.yaml"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return str(path)


def corpus(text: Path) -> dict[str, Any]:
    """The settings of data that OpenNMT-py and Eole share."""
    counts = str(text / "counts")
    files = {
        name: {"path_src": str(text / f"{split}.en"), "path_tgt": str(text / f"{split}.de")}
        for name, split in {"corpus_1": "train", "valid": "val"}.items()
    }
    sizes = {"share_vocab": True, "src_vocab_size": 8000, "tgt_vocab_size": 8000}
    return {"data": files, "src_vocab": counts, "tgt_vocab": counts, "overwrite": True, "report_every": 10} | sizes


def loop(steps: int) -> dict[str, Any]:
    """The settings of training that OpenNMT-py and Eole share."""
    return {
        **{"batch_type": "sents", "batch_size": 64, "bucket_size": 29_000, "num_workers": 0, "dropout": [DROPOUT]},
        **{"train_steps": steps, "valid_steps": NEVER, "save_checkpoint_steps": NEVER},
        **{"optim": "adam", "learning_rate": RATE, "label_smoothing": SMOOTHING},
    }


def opennmt(python: str, model: str, steps: int, text: Path, out: Path) -> tuple[list[str], str]:
    if model == "transformer":
        sizes: dict[str, Any] = {"encoder_type": "transformer", "decoder_type": "transformer", "layers": 3, "heads": 4}
        sizes |= {"hidden_size": 256, "word_vec_size": 256, "transformer_ff": 1024, "position_encoding": True}
        sizes |= {"share_embeddings": True, "share_decoder_embeddings": True, "attention_dropout": [DROPOUT]}
    else:
        sizes = {"encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "GRU", "layers": 1, "bridge": True}
        sizes |= {"hidden_size": 512, "word_vec_size": 256, "input_feed": 1}
        sizes |= {"global_attention": "mlp" if model == "rnn-mlp" else "general"}
    settings = written(out, corpus(text) | loop(steps) | sizes | {"save_model": str(out / "model")})
    return [python, "-W", "ignore", "-m", "onmt.bin.train", "-config", settings], LOG


def eole(python: str, model: str, steps: int, text: Path, out: Path) -> tuple[list[str], str]:
    if model == "transformer":
        embeddings = {"word_vec_size": 256, "position_encoding_type": "SinusoidalInterleaved"}
        sizes: dict[str, Any] = {"architecture": "transformer", "layers": 3, "heads": 4, "hidden_size": 256}
        sizes |= {"transformer_ff": 1024, "embeddings": embeddings}
        sizes |= {"share_embeddings": True, "share_decoder_embeddings": True}
    else:
        attention = "mlp" if model == "rnn-mlp" else "general"
        sizes = {"architecture": "rnn", "layers": 1, "rnn_type": "GRU", "hidden_size": 512, "bridge": True}
        sizes |= {"embeddings": {"word_vec_size": 256}, "encoder": {"encoder_type": "brnn"}}
        sizes |= {"decoder": {"decoder_type": "rnn", "global_attention": attention}}
    training = loop(steps) | {"model_path": str(out / "model"), "world_size": 1, "gpu_ranks": []}
    settings = written(out, corpus(text) | {"model": sizes, "training": training})
    return [str(Path(python).with_name("eole")), "train", "-c", settings], LOG


LOG = r"Step (\d+)/.*?[\d.]+/\s*([\d.]+) tok/s"
"""Of OpenNMT-py and Eole: tokens per second of the source and of the target."""


def joeynmt(python: str, model: str, steps: int, text: Path, out: Path) -> tuple[list[str], str]:
    data: dict[str, Any] = {"train": str(text / "train"), "dev": str(text / "val"), "dataset_type": "plain"}
    for side, language in {"src": "en", "trg": "de"}.items():
        data[side] = {"lang": language, "level": "word", "lowercase": False, "normalize": False, "max_length": 1000}
        data[side] |= {"voc_file": str(text / "vocabulary")}
    training = {
        **{"optimizer": "adam", "learning_rate": RATE, "label_smoothing": SMOOTHING, "normalization": "tokens"},
        **{"scheduling": "warmupinversesquareroot", "learning_rate_warmup": 200},  # it demands a schedule
        **{"batch_size": 64, "batch_type": "sentence", "epochs": 1000, "max_updates": steps, "shuffle": True},
        **{"validation_freq": NEVER, "logging_freq": 10, "overwrite": True, "early_stopping_metric": "ppl"},
    }
    settings = {
        **{"name": "speed", "model_dir": str(out / "model"), "use_cuda": False, "random_seed": 1, "data": data},
        **{"model": joeynmt_model(model), "training": training},
        "testing": {"beam_size": 1, "batch_size": 64, "batch_type": "sentence", "eval_metrics": []},
    }
    train = [python, "-W", "ignore", "-m", "joeynmt", "train", written(out, settings), "--skip-test"]
    return train, r"Step:\s+(\d+),.*Tokens per Sec:\s+([\d.]+)"


def joeynmt_model(model: str) -> dict[str, Any]:
    if model == "transformer":
        side: dict[str, Any] = {"type": "transformer", "num_layers": 3, "num_heads": 4, "hidden_size": 256}
        side |= {"ff_size": 1024, "dropout": DROPOUT, "layer_norm": "pre"}
        side |= {"embeddings": {"embedding_dim": 256, "scale": True, "dropout": DROPOUT}}
        return {"tied_embeddings": True, "tied_softmax": True, "encoder": side, "decoder": side}
    side = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1, "dropout": DROPOUT}
    side |= {"embeddings": {"embedding_dim": 256, "scale": False}}
    decoder = side | {"hidden_size": 512, "input_feeding": True, "init_hidden": "bridge", "hidden_dropout": DROPOUT}
    decoder |= {"attention": "bahdanau" if model == "rnn-mlp" else "luong"}
    encoder = side | {"hidden_size": 256, "bidirectional": True}
    return {"tied_embeddings": True, "encoder": encoder, "decoder": decoder}
