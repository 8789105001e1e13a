"""A tiny language whose probabilities are anything at all, as a decoder."""

import zlib
from dataclasses import dataclass

import torch

from jumok.data.tokenizer import Tokenizer
from jumok.decoding import Specials
from jumok.models.encoder_decoder import Decoder, Hidden, State

SPECIALS = Specials(pad=0, bos=1, eos=2)


@dataclass(frozen=True)
class Prefixes(State):
    """The state of a model that remembers every token: ids [sentence, beam, length] and the sentences' names."""

    ids: torch.Tensor
    names: torch.Tensor

    def reorder(self, parents):
        return Prefixes(self.ids.gather(1, parents[:, :, None].expand(-1, -1, self.ids.shape[-1])), self.names)

    def keep(self, sentences):
        return Prefixes(self.ids[sentences], self.names[sentences])


class AnyLanguage(Decoder):
    """Log-probabilities drawn at random for every sentence and prefix: no structure for a search to lean on."""

    def __init__(self, vocabulary: int, sharpness: float = 2.0) -> None:
        super().__init__()
        self.vocabulary, self.sharpness = vocabulary, sharpness

    def next_token(self, name: int, prefix: list[int]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(repr((name, prefix)).encode()))
        logits = torch.randn(self.vocabulary, generator=generator, dtype=torch.double) * self.sharpness
        logits[[SPECIALS.pad, SPECIALS.bos]] = -torch.inf
        return logits.log_softmax(-1)

    def hidden(self, encoding, target_in) -> Hidden:
        raise AssertionError("searching needs steps only")

    logits = hidden

    def start(self, encoding, *, capacity):
        names = encoding.summary[:, 0].long()
        return Prefixes(torch.zeros(len(names), 1, 0, dtype=torch.long), names)

    def step(self, state, tokens):
        ids = torch.cat([state.ids, tokens[:, :, None]], -1)
        rows = [
            [self.next_token(int(n), hyp) for hyp in beam] for n, beam in zip(state.names, ids.tolist(), strict=True)
        ]
        return torch.stack([torch.stack(row) for row in rows]), Prefixes(ids, state.names)


class SpeltTokens(Tokenizer):
    """A tokenizer of chosen pieces, which cuts a text into the longest of them from its beginning."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = self.spellings = ["", "", "", "⁇", *pieces]

    def encode(self, text: str) -> list[int]:
        ids, rest = [1], "▁" + text.strip().replace(" ", "▁")
        while rest and rest != "▁":
            fitting = [id for id in range(4, self.size) if rest.startswith(self.spellings[id])]
            ids.append(max(fitting, key=lambda id: len(self.spellings[id]), default=3))
            rest = rest[len(self.spellings[ids[-1]]) :]
        return [*ids, 2]

    def surface(self, ids: list[int]) -> str:
        return "".join(self.spellings[id] for id in ids)

    def decode(self, ids: list[int]) -> str:
        return self.surface(ids).replace("▁", " ").removeprefix(" ")
