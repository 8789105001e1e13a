"""Makes the small models of JoeyNMT and OpenNMT-py in tests/exchange/models, with what the original code writes.

The toolkits need old versions of other packages, so that they are installed by themselves, without these:

    pip install --no-deps --target toolkits joeynmt==2.3.0 OpenNMT-py==3.5.1 configargparse pyonmttok
    PYTHONPATH=toolkits python tests/support/foreign_models.py tests/exchange/models

Weights are random. Tables of positions, which are larger than the rest and not learned, are left out of the files.
"""

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import sentencepiece
import torch

LINES = [
    "the cat sat on the mat .", "a dog runs in the park", "two men are talking", "she reads a long book about history",
    "die Katze saß auf der Matte .", "ein Hund läuft im Park", "zwei Männer reden", "sie liest ein langes Buch",
]  # fmt: skip
TEXTS = ["the cat runs in the park", "two men read a book", "a unicorn is talking"]
STEPS = 12


def main(folder: Path) -> None:
    """Write all of them."""
    for name in (
        "importlib_metadata",
        "spacy",
        "spacy.language",
        "fasttext",
        "ahocorasick",
        "subword_nmt",
        "sacremoses",
    ):
        sys.modules.setdefault(name, MagicMock())
    sys.modules["importlib_metadata"].version = lambda name: "0"  # type: ignore[attr-defined]
    joeynmt(folder / "joeynmt-pre", transformer("pre", "relu"), pieces=True, tied=True, scale=True)
    joeynmt(folder / "joeynmt-post", transformer("post", "gelu"), pieces=False, tied=False, scale=False)
    gru = recurrent("gru", num_layers=2), recurrent("gru", attention="bahdanau", init_hidden="bridge", num_layers=2)
    lstm = recurrent("lstm"), recurrent("lstm", attention="luong", init_hidden="zero", input_feeding=False)
    joeynmt(folder / "joeynmt-gru", gru, pieces=True, tied=True, scale=True)
    joeynmt(folder / "joeynmt-lstm", lstm, pieces=False, tied=False, scale=False)
    opennmt(folder / "opennmt-plain", ["-share_vocab", "-share_embeddings", "-share_decoder_embeddings"])
    opennmt(
        folder / "opennmt-gated",
        [
            "-pos_ffn_activation_fn",
            "silu",
            "-position_encoding_type",
            "SinusoidalConcat",
            "-num_kv",
            "2",
            "-add_qkvbias",
        ],
    )


def write(path: Path, expected: dict[str, Any]) -> None:
    (path / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")


def train_sentencepiece(path: Path) -> list[str]:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 10),
        model_writer=model,
        vocab_size=80,
        minloglevel=5,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
    )
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(id) for id in range(3, processor.get_piece_size())]


@torch.no_grad()
def shake(model: torch.nn.Module) -> None:
    """Random weights: toolkits leave some to whatever memory held."""
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        scale = "norm" in name and name.endswith("weight")
        weight.copy_(torch.randn_like(weight) * (0.3 if weight.dim() > 1 else 0.1) + scale)


def learn(model: torch.nn.Module, loss: Callable[[int], torch.Tensor]) -> None:
    """A few steps towards the pairs, so that outputs differ from text to text and end."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(160):
        optimiser.zero_grad()
        loss(step % (len(LINES) // 2)).backward()
        optimiser.step()


def without_positions(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.items() if not name.endswith("pe.pe")}


Sides = tuple[dict[str, Any], dict[str, Any]]
"""The sections encoder and decoder of a config of JoeyNMT."""


def transformer(norm: str, activation: str) -> Sides:
    side = {
        "type": "transformer", "num_layers": 2, "num_heads": 2, "hidden_size": 16, "ff_size": 24, "dropout": 0.0,
        "layer_norm": norm, "activation": activation,
    }  # fmt: skip
    return side, side


def recurrent(cell: str, **more: Any) -> dict[str, Any]:
    return {"type": "recurrent", "rnn_type": cell, "hidden_size": 16, "num_layers": 1, "dropout": 0.0, **more}


def joeynmt(path: Path, sides: Sides, *, pieces: bool, tied: bool, scale: bool) -> None:
    import yaml
    from joeynmt.model import build_model
    from joeynmt.search import greedy
    from joeynmt.vocabulary import Vocabulary

    path.mkdir(parents=True, exist_ok=True)
    found = (
        train_sentencepiece(path / "joint.model")
        if pieces
        else sorted({word for line in LINES for word in line.split()})
    )
    names = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    symbols = {f"{name}_token": token for name, token in names.items()} | {
        f"{name}_id": at for at, name in enumerate(names)
    }
    vocabulary = Vocabulary(found, SimpleNamespace(**symbols, sep_token=None, sep_id=None, lang_tags=[]))
    encoder, decoder = ({**side, "embeddings": {"embedding_dim": 16, "scale": scale}} for side in sides)
    config = {
        "encoder": encoder,
        "decoder": decoder,
        "tied_embeddings": tied,
        "tied_softmax": tied,
        "initializer": "xavier_uniform",
    }
    model = build_model(config, vocabulary, vocabulary)
    shake(model)
    processor = sentencepiece.SentencePieceProcessor(str(path / "joint.model")) if pieces else None

    def cut(text: str) -> list[str]:
        return processor.encode(text, out_type=str) if processor else text.split()

    def loss(number: int) -> torch.Tensor:
        source, target = (
            torch.tensor(vocabulary.sentences_to_ids([cut(LINES[at])], bos=bos, eos=True)[0])
            for at, bos in ((number, False), (number + len(LINES) // 2, True))
        )
        states, hidden, _, _ = model(
            return_type="encode",
            src=source,
            src_length=torch.tensor([source.shape[1]]),
            src_mask=torch.ones_like(source).bool()[:, None],
        )
        logits, _, _, _ = model(
            return_type="decode", trg_input=target[:, :-1], encoder_output=states, encoder_hidden=hidden,
            src_mask=torch.ones_like(source).bool()[:, None], unroll_steps=target.shape[1] - 1, decoder_hidden=None,
            trg_mask=torch.ones_like(target[:, :-1]).bool()[:, None],
        )  # fmt: skip
        return torch.nn.functional.cross_entropy(logits[0], target[0, 1:])

    learn(model, loss)
    model.eval()
    texts = {"level": "bpe" if pieces else "word"}
    if pieces:
        texts |= {"tokenizer_type": "sentencepiece", "tokenizer_cfg": {"model_file": "data/joint.model"}}  # type: ignore[dict-item]
    data = {"src": {"lang": "en", **texts}, "trg": {"lang": "de", **texts}, "special_symbols": symbols}
    testing = {"beam_size": 4, "beam_alpha": 1.0, "max_output_length": 50}
    document = {"name": path.name, "model": config, "data": data, "testing": testing}
    (path / "config.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(document))))
    for name in ("src_vocab.txt", "trg_vocab.txt"):
        vocabulary.to_file(path / name)
    torch.save({"model_state": without_positions(model.state_dict()), "steps": 1}, path / "best.ckpt")
    outputs, scores = [], []
    for text in TEXTS:
        ids, lengths, _ = vocabulary.sentences_to_ids([cut(text)], bos=False, eos=True)
        source = torch.tensor(ids)
        mask = (source != vocabulary.pad_index).unsqueeze(1)
        states, hidden, _, _ = model(return_type="encode", src=source, src_length=torch.tensor(lengths), src_mask=mask)
        written, found, _ = greedy(mask, STEPS, model, states, hidden, return_prob="hyp", return_attention=False)
        outputs.append(vocabulary.arrays_to_sentences(written)[0])
        scores.append([round(float(score), 5) for score in found[0][: len(outputs[-1])]])
    write(path, {"texts": TEXTS, "outputs": outputs, "scores": scores, "made by": "JoeyNMT 2.3.0"})


def opennmt(path: Path, arguments: list[str]) -> None:
    import onmt.opts
    import pyonmttok
    from onmt.inputters.inputter import vocabs_to_dict
    from onmt.model_builder import build_base_model
    from onmt.utils.parse import ArgumentParser

    path.mkdir(parents=True, exist_ok=True)
    parser = ArgumentParser()
    onmt.opts.model_opts(parser)
    sizes = "-encoder_type transformer -decoder_type transformer -enc_layers 2 -dec_layers 2 -hidden_size 16 -heads 4"
    more = "-word_vec_size 16 -transformer_ff 24 -position_encoding"
    options, _ = parser.parse_known_args([*sizes.split(), *more.split(), *arguments])
    ArgumentParser.update_model_opts(options)
    training = {
        "dropout": [0.0], "attention_dropout": [0.0], "optim": "adam", "freeze_word_vecs_enc": False, "use_ckpting": [],
        "freeze_word_vecs_dec": False, "parallel_mode": "data_parallel", "world_size": 1,
        "share_vocab": "-share_vocab" in arguments,
    }  # fmt: skip
    options = argparse.Namespace(**vars(options) | training)
    words = sorted({word for line in LINES for word in line.split()})
    make = pyonmttok.build_vocab_from_tokens
    vocabulary = make(words, special_tokens=["<unk>", "<blank>", "<s>", "</s>"])
    vocabulary.default_id = vocabulary["<unk>"]
    vocabs = {"src": vocabulary, "tgt": vocabulary, "data_task": "seq2seq", "decoder_start_token": "<s>"}
    model = build_base_model(options, vocabs)
    shake(model)

    def loss(number: int) -> torch.Tensor:
        source, target = LINES[number].split(), LINES[number + len(LINES) // 2].split()
        ids = torch.tensor(vocabulary(["<s>", *target, "</s>"]))
        hidden = opennmt_states(model, torch.tensor([vocabulary(source)])[..., None], ids[None, :-1, None])
        return torch.nn.functional.cross_entropy(model.generator(hidden[0]), ids[1:])

    learn(model, loss)
    model.eval()
    state = without_positions(model.state_dict())
    generator = {name.removeprefix("generator."): part for name, part in state.items() if name.startswith("generator.")}
    rest = {name: part for name, part in state.items() if not name.startswith("generator.")}
    checkpoint = {"model": rest, "generator": generator, "vocab": vocabs_to_dict(vocabs), "opt": options, "optim": {}}
    torch.save(checkpoint, path / "model_step_1.pt")
    outputs, scores = zip(*(opennmt_greedy(model, vocabulary, text.split()) for text in TEXTS), strict=True)
    write(path, {"texts": TEXTS, "outputs": outputs, "scores": scores, "made by": "OpenNMT-py 3.5.1"})


def opennmt_states(model: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    length = torch.tensor([source.shape[1]])
    states, final, _ = model.encoder(source, length)
    model.decoder.init_state(source, states, final)
    hidden, _ = model.decoder(target, states, src_len=length)
    return hidden  # type: ignore[no-any-return]


@torch.no_grad()
def opennmt_greedy(model: Any, vocabulary: Any, words: list[str]) -> tuple[list[str], list[float]]:
    source = torch.tensor([vocabulary(words)])[..., None]
    ids, found = [vocabulary["<s>"]], []
    for _ in range(STEPS):
        hidden = opennmt_states(model, source, torch.tensor([ids])[..., None])
        scores = model.generator(hidden[0, -1]).log_softmax(-1)
        scores[[vocabulary["<blank>"], vocabulary["<s>"]]] = -1e9
        ids.append(int(scores.argmax()))
        found.append(round(float(scores[ids[-1]]), 5))
        if ids[-1] == vocabulary["</s>"]:
            break
    return [vocabulary.ids_to_tokens[id] for id in ids[1:]], found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
