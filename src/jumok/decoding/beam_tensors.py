"""The hypotheses of a beam search in preallocated tensors, and the rules by which it chooses among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.decoding.config import SearchConfig
from jumok.decoding.hypotheses import Specials

PRESENT = ("tokens", "parents", "totals", "pool", "longest", "lengths", "steps", "broken")
PAST = ("past_parents", "past_tokens", "past_totals")
"""The tensors of `Beams` with a row for each sentence, and those with one for each step and sentence."""


class Rules(NamedTuple):
    """The rules for which hypotheses a step keeps, and when the search ends."""

    specials: Specials
    beam: int
    n_best: int
    length_penalty: float
    min_length: int
    no_repeat: int

    @classmethod
    def of(cls, config: SearchConfig, specials: Specials, n_best: int) -> "Rules":
        """The rules for these settings of a search."""
        return cls(specials, config.beam, n_best, config.length_penalty, config.min_length, config.no_repeat)


@dataclass(frozen=True, eq=False)
class Beams:
    """The hypotheses of every sentence and their history; updated in place."""

    tokens: Int[Tensor, "sentence beam"]
    """The newest token of each growing hypothesis, best first."""
    parents: Int[Tensor, "sentence beam"]
    """The hypothesis of the step before that each continues."""
    totals: Float[Tensor, "sentence beam"]
    """Log-probability of each; -inf where there is none."""
    pool: Float[Tensor, "sentence beam"]
    """Scores of the finished ones, best first; -inf where there is none."""
    longest: Int[Tensor, " sentence"]
    """The most tokens an output may have; less than 0 for a row without a sentence."""
    lengths: Int[Tensor, " sentence"]
    """Number of steps taken; less than the capacity, at which finished sentences stay."""
    steps: Int[Tensor, " sentence"]
    """Number of steps that the search of each took; 0 while it goes on."""
    broken: Bool[Tensor, " sentence"]
    """Whether some probability was not a finite number."""
    divisors: Float[Tensor, " length"]
    """(n + 1) ^ length_penalty, for every n."""
    past_parents: Int[Tensor, "step sentence kept"]
    past_tokens: Int[Tensor, "step sentence kept"]
    past_totals: Float[Tensor, "step sentence kept"]
    """Those that every step kept, as in `Survivors`: `beam` that continue, then `beam` that end."""

    @classmethod
    def empty(cls, sentences: int, rules: Rules, *, capacity: int, device: torch.device, dtype: torch.dtype) -> "Beams":
        """Room for at most `capacity` steps."""
        each, kept = (sentences, rules.beam), (capacity, sentences, 2 * rules.beam)
        penalty = [(n + 1.0) ** rules.length_penalty for n in range(capacity + 1)]
        zeros = partial(torch.zeros, device=device)
        return cls(
            tokens=zeros(each, dtype=torch.long),
            parents=zeros(each, dtype=torch.long),
            totals=zeros(each, dtype=dtype),
            pool=zeros(each, dtype=dtype),
            longest=zeros(sentences, dtype=torch.long),
            lengths=zeros(sentences, dtype=torch.long),
            steps=zeros(sentences, dtype=torch.long),
            broken=zeros(sentences, dtype=torch.bool),
            divisors=torch.tensor(penalty, dtype=dtype, device=device),
            past_parents=zeros(kept, dtype=torch.int32),
            past_tokens=zeros(kept, dtype=torch.int32),
            past_totals=zeros(kept, dtype=dtype),
        )

    def begin(self, bos: int) -> None:
        """One hypothesis of each sentence, without a token; `longest` is that of the new search."""
        self.tokens.fill_(bos)
        self.parents.zero_()
        self.totals.fill_(-torch.inf)
        self.totals[:, 0] = 0
        self.pool.fill_(-torch.inf)
        self.lengths.zero_()
        self.steps.copy_(self.longest < 0)
        self.broken.zero_()

    def append(self, token: int) -> None:
        """Take the first step of a new search, with a token that every output begins with, at no cost in score."""
        self.tokens.fill_(token)
        self.past_parents[0].zero_()
        self.past_tokens[0].fill_(token)
        self.past_totals[0].fill_(-torch.inf)
        self.past_totals[0, :, 0] = 0
        self.lengths.add_(1)
        self.steps.logical_or_(self.longest < 1)

    def take(self, other: "Beams", sentences: Int[Tensor, " sentence"]) -> None:
        """Continue some sentences of another; a number repeats where there are fewer than rows."""
        for name in PRESENT:
            torch.index_select(getattr(other, name), 0, sentences, out=getattr(self, name))
        length = self.past_tokens.shape[0]
        for name in PAST:
            torch.index_select(getattr(other, name)[:length], 1, sentences, out=getattr(self, name))

    def put(self, other: "Beams", rows: Int[Tensor, " row"]) -> None:
        """Replace these sentences by the first ones of another search, which has taken one step at most."""
        count = len(rows)
        for name in PRESENT:
            getattr(self, name).index_copy_(0, rows, getattr(other, name)[:count])
        for name in PAST:
            getattr(self, name)[:1].index_copy_(1, rows, getattr(other, name)[:1, :count])

    def history(self, rows: Int[Tensor, " row"], *, steps: int) -> "History":
        """A copy of what the first steps of these sentences kept."""
        parents, tokens, totals = (getattr(self, name)[:steps].index_select(1, rows) for name in PAST)
        return History(parents, tokens, totals, self.steps[rows], self.broken[rows])


class History(NamedTuple):
    """What the steps of finished sentences kept, as in `Beams`."""

    parents: Int[Tensor, "step sentence kept"]
    tokens: Int[Tensor, "step sentence kept"]
    totals: Float[Tensor, "step sentence kept"]
    steps: Int[Tensor, " sentence"]
    broken: Bool[Tensor, " sentence"]

    @staticmethod
    def joined(histories: "Sequence[History]") -> "History":
        """Those of all sentences."""
        parents, tokens, totals, steps, broken = zip(*histories, strict=True)
        past = torch.cat(parents, 1), torch.cat(tokens, 1), torch.cat(totals, 1)
        return History(*past, torch.cat(steps), torch.cat(broken))
