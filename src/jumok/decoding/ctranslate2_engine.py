"""Beam search by CTranslate2 (Klein et al. 2020), which runs Transformers several times faster on a CPU than PyTorch.

In float32 it finds the outputs of our own search. Our search ends when no better output can come, CTranslate2 after
`patience · beam` outputs, so its patience is set high; where the last of these are nearly as good as the best, a better
one may come, and our search runs as well. Searches that it cannot do in the same way are left to ours.
In int8 its patience is lower, and with a shortlist it considers only the likely words of a batch, unless a sentence
has a token that the shortlist does not know.
"""

import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jumok.data import BOS, EOS, PAD, TokenizerPair
from jumok.decoding.config import DecodingConfig, Precision
from jumok.decoding.ctranslate2_model import POSITIONS
from jumok.decoding.hypotheses import Hypothesis
from jumok.decoding.shortlist import Shortlist
from jumok.errors import ModelError

SHORTLIST = "vmap.txt"
"""The file of an exported model with the likely target words of each source word."""
PATIENCE: dict[Precision, int] = {"float32": 4, "int8": 2}
"""Among this many times `beam` finished outputs is nearly always the best one, unless the model is unsure of all."""
NEARLY = 1.25
"""Where the outputs that end last score below this many times the best score, none that ends later is the best."""
BATCH = 32
"""Sentences that one thread translates at once; more take no less time each."""
PROBE = """
import sys, ctranslate2
engine = ctranslate2.Translator(sys.argv[1], device="cpu", compute_type=sys.argv[2], intra_threads=1)
engine.translate_batch([[sys.argv[3]] * 9] * 3, beam_size=2, max_decoding_length=3)
"""
PROBE_SECONDS = 120


def is_installed() -> bool:
    """Whether CTranslate2 can be imported."""
    return find_spec("ctranslate2") is not None


def why_it_fails(folder: Path, precision: Precision, piece: str) -> str | None:
    """Run an exported model in another process: on some machines it crashes, which must not end this program."""
    command = [sys.executable, "-c", PROBE, str(folder), precision, piece]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"CTranslate2 could not be tried: {error}"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"CTranslate2 ends with signal {-done.returncode} on this machine"
    return f"CTranslate2 fails: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"


def can_search(config: DecodingConfig, n_best: int) -> bool:
    """Whether the engine finds the outputs that ours would find; in int8 it need not."""
    if config.precision == "int8":
        return True
    return n_best == 1 and config.length_penalty >= 0 and not config.min_length and not config.no_repeat


class CTranslate2Engine:
    """An exported model, ready to translate."""

    def __init__(
        self,
        folder: Path,
        precision: Precision,
        tokenizers: TokenizerPair,
        threads: int,
        shortlist: Shortlist | None = None,
        *,
        sees_end: bool = True,
    ) -> None:
        """`shortlist` is that of the file in the folder; `sees_end` says whether the encoder reads the end of texts."""
        import ctranslate2

        self.precision, self.shortlist, self.sees_end = precision, shortlist, sees_end
        # A thread for each of several batches: on two cores a third faster than two threads for one batch.
        self.threads = threads
        try:
            self.engine = ctranslate2.Translator(
                str(folder), device="cpu", compute_type=precision, inter_threads=threads, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"CTranslate2 cannot read {folder}: {error}") from None
        self.source_pieces = tokenizers.source.pieces
        target = tokenizers.target
        self.first = [target.pieces[id] for id in target.language_ids[:1]]  # as `Specials.first`, at no cost in score
        self.target_ids = {piece: number for number, piece in enumerate(target.pieces)}

    def search(
        self, sources: Sequence[Sequence[int]], config: DecodingConfig, n_best: int, limit: int | None = None
    ) -> list[list[Hypothesis] | None]:
        """The best hypotheses for every source; None where our own search must decide.

        Sources end in EOS; `limit` is the number of positions of the decoder. In float32 three kinds of outputs are
        left to our search: those of the greatest length, which it ends in another way; those than which a longer one
        may be better, while the engine has stopped; and those than which nothing after their language would be better,
        which the engine does not consider.
        """
        limits = [self._longest(len(source), config, limit) for source in sources]
        results = self.generate(sources, limits, config, n_best)
        if self.first and self.precision == "float32" and config.beam > 1:
            rows = [row for row, hypotheses in enumerate(results) if hypotheses]
            for row, score in zip(rows, self._scores_of_nothing([sources[row] for row in rows], config), strict=True):
                if score > results[row][0].score:
                    results[row] = []
        best = [hypotheses[: config.beam] for hypotheses in results]
        return [
            few if few and self._is_sound(few, longest) and not self._may_be_beaten(hypotheses, config) else None
            for few, hypotheses, longest in zip(best, results, limits, strict=True)
        ]

    def generate(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], config: DecodingConfig, n_best: int = 1
    ) -> list[list[Hypothesis]]:
        """The engine's hypotheses of at most `limits` tokens, best first; none for sources that are too long."""
        results: list[list[Hypothesis]] = [[] for _ in sources]
        readable = [row for row, source in enumerate(sources) if len(source) <= POSITIONS and limits[row] < POSITIONS]
        longest = max((limits[row] for row in readable), default=0)
        again: dict[int, list[int]] = defaultdict(list)
        for row, hypotheses in self._run(readable, sources, longest, config, n_best):
            results[row] = hypotheses
            if any(len(hypothesis.ids) > limits[row] for hypothesis in hypotheses):
                again[limits[row]].append(row)  # the limit is one for a whole batch
        for most, rows in again.items():
            for row, hypotheses in self._run(rows, sources, most, config, n_best):
                results[row] = hypotheses
        return results

    def _run(
        self, rows: Sequence[int], sources: Sequence[Sequence[int]], longest: int, config: DecodingConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of some rows: those that the shortlist covers, then the others."""
        covered = {row for row in rows if self.shortlist is not None and self.shortlist.covers(sources[row])}
        for use_shortlist in (True, False):
            part = [row for row in rows if (row in covered) == use_shortlist]
            yield from zip(
                part,
                self._translate([sources[row] for row in part], longest, config, n_best, use_shortlist),
                strict=True,
            )

    def _translate(
        self, sources: list[Sequence[int]], longest: int, config: DecodingConfig, n_best: int, use_shortlist: bool
    ) -> list[list[Hypothesis]]:
        if not sources:
            return []
        results = self.engine.translate_batch(
            [self._pieces(source) for source in sources],
            target_prefix=[self.first] * len(sources) if self.first else None,
            max_batch_size=self._batch_size(sources),
            max_input_length=0,
            return_scores=True,
            max_decoding_length=longest,
            use_vmap=use_shortlist,
            **self._options(config, n_best),
        )
        return [self._hypotheses(result) for result in results]

    def _scores_of_nothing(self, sources: list[Sequence[int]], config: DecodingConfig) -> list[float]:
        """The score, for every source, of an output that ends right after its language."""
        results = self.engine.score_batch(
            [self._pieces(source) for source in sources],
            [self.first] * len(sources),
            max_batch_size=self._batch_size(sources),
            max_input_length=0,
        )
        return [result.log_probs[-1] / 2**config.length_penalty for result in results]

    def _pieces(self, source: Sequence[int]) -> list[str]:
        return [self.source_pieces[id] for id in (source if self.sees_end else source[:-1])]

    def _batch_size(self, sources: Sequence[Sequence[int]]) -> int:
        return max(1, min(BATCH, math.ceil(len(sources) / self.threads)))

    def _options(self, config: DecodingConfig, n_best: int) -> dict[str, Any]:
        normalised = _prefers_longer(config)
        patience = PATIENCE[self.precision] if normalised else 1
        # Of several outputs some may be the same words in other pieces, and one that reaches the limit is ours.
        asked = config.beam if normalised or n_best > 1 else 1
        return {
            "beam_size": config.beam,
            "patience": patience,
            "num_hypotheses": config.beam * patience if self.precision == "float32" and normalised else asked,
            "length_penalty": config.length_penalty,
            "min_decoding_length": config.min_length,
            "no_repeat_ngram_size": config.no_repeat,
        }

    def _hypotheses(self, result: Any) -> list[Hypothesis]:
        ids = self.target_ids
        return [
            Hypothesis([ids[piece] for piece in pieces], score)
            for pieces, score in zip(result.hypotheses, result.scores, strict=True)
        ]

    def _is_sound(self, hypotheses: list[Hypothesis], longest: int) -> bool:
        if not math.isfinite(hypotheses[0].score) or any(id in (PAD, BOS, EOS) for id in hypotheses[0].ids):
            return False
        return self.precision == "int8" or all(len(hypothesis.ids) < longest for hypothesis in hypotheses)

    def _may_be_beaten(self, hypotheses: list[Hypothesis], config: DecodingConfig) -> bool:
        """Whether the outputs that ended last are so good that a better one might have ended later."""
        if self.precision == "int8" or not _prefers_longer(config):
            return False
        last = sorted(hypotheses, key=lambda hypothesis: len(hypothesis.ids))[-config.beam :]
        return max(hypothesis.score for hypothesis in last) > NEARLY * hypotheses[0].score

    def _longest(self, source: int, config: DecodingConfig, limit: int | None) -> int:
        longest = config.longest(source)
        return longest if limit is None else min(longest, limit - 1)


def _prefers_longer(config: DecodingConfig) -> bool:
    """Whether a longer output may have the higher score, although its probability is lower."""
    return config.beam > 1 and config.length_penalty > 0
