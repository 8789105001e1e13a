"""A model, data and a validator small enough to train in a test, with everything that real ones have."""

import torch
from torch import Tensor, nn

from jumok.data import Batch
from jumok.data.batches import pad
from jumok.models.encoder_decoder import Decoder, Encoder, EncoderDecoder, Encoding, Hidden
from jumok.training import held_out_loss

VOCABULARY = 9


class TinyEncoder(Encoder):
    width = 8
    vocabulary = VOCABULARY

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, self.width)
        self.mix = nn.GRU(self.width, self.width, batch_first=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, visible: Tensor) -> Encoding:
        states, _ = self.mix(self.dropout(self.table(source)))
        summary = (states * visible[..., None]).sum(1) / visible.sum(1, keepdim=True)
        return Encoding(states, visible, summary)


class TinyDecoder(Decoder):
    vocabulary = VOCABULARY

    def __init__(self, width: int, dropout: float, *, penalised: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.hidden_layer = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, VOCABULARY)
        self.output.weight = self.table.weight
        self.dropout, self.penalised = nn.Dropout(dropout), penalised

    def hidden(self, encoding: Encoding, target_in: Tensor) -> Hidden:
        words = self.table(target_in)
        both = torch.cat([words, encoding.summary[:, None].expand_as(words)], -1)
        states = self.norm(torch.tanh(self.hidden_layer(self.dropout(both))))
        return Hidden(states, penalty=states.square().mean(-1) if self.penalised else None)

    def logits(self, hidden: Hidden) -> Tensor:
        return self.output(hidden.states)


class TinyModel(EncoderDecoder):
    def __init__(self, *, dropout: float = 0.1, seed: int = 0, width: int = 8, penalised: bool = False) -> None:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            super().__init__(TinyEncoder(dropout), TinyDecoder(width, dropout, penalised=penalised))


class TinyBatches:
    """Digits to be reversed; the batch at (epoch, step) is a pure function."""

    def __init__(self, *, sentences: int = 6, steps: int = 5, seed: int = 0) -> None:
        self.sentences, self.seed, self._steps = sentences, seed, steps

    def steps(self, epoch: int) -> int:
        return self._steps

    def batch(self, epoch: int, step: int) -> Batch:
        draws = torch.Generator().manual_seed(1000 * self.seed + 100 * epoch + step)
        lengths = torch.randint(1, 6, (self.sentences,), generator=draws).tolist()
        rows = [torch.randint(4, VOCABULARY, (length,), generator=draws).tolist() for length in lengths]
        source, source_visible = pad([[*row, 2] for row in rows])
        target_in, target_visible = pad([[1, *reversed(row)] for row in rows])
        target_out, _ = pad([[*reversed(row), 2] for row in rows])
        return Batch(source, source_visible, target_in, target_out, target_visible)


def validate(model: nn.Module) -> dict[str, float]:
    assert not model.training
    torch.manual_seed(0)
    torch.rand(3)  # a validator may draw: no step after it depends on that
    return held_out_loss(model, TinyBatches(seed=7, steps=2))
