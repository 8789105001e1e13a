"""Checks of the kernels that choose hypotheses and attend for one step; run by `test_gpu_search.py`."""

import pytest
import torch

from jumok.decoding import DecodingConfig, Specials
from jumok.decoding.beam import _step_by_step, begin
from jumok.decoding.beam_tensors import Beams, Rules
from jumok.decoding.extend import _extend
from jumok.decoding.gpu import extend as gpu
from jumok.decoding.static_search import static_search
from jumok.layers import steps
from jumok.models import TransformerDecoderConfig, TransformerEncoderConfig, build_model

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SPECIALS = Specials(pad=0, bos=1, eos=2)
CAPACITY = 8


def beams_for(sentences, rules, longest):
    beams = Beams.empty(sentences, rules, capacity=CAPACITY, device=DEVICE, dtype=torch.float32)
    beams.longest.copy_(longest)
    beams.begin(SPECIALS.bos)
    return beams


@pytest.mark.parametrize(
    ("sentences", "beam", "vocabulary", "n_best", "penalty", "shortest"),
    [
        (3, 5, 11, 5, 1.0, 0),
        (2, 1, 64, 1, 1.0, 2),
        (3, 4, 700, 1, 0.0, 0),
        (2, 16, 1500, 3, 0.6, 1),
        (1, 3, 129, 2, -1.0, 0),
    ],
)
def test_the_kernels_keep_the_hypotheses_that_plain_pytorch_keeps(
    sentences, beam, vocabulary, n_best, penalty, shortest
):
    torch.manual_seed(vocabulary)
    config = DecodingConfig(beam=beam, length_penalty=penalty, min_length=shortest)
    rules = Rules.of(config, SPECIALS, n_best)
    longest = torch.randint(shortest, CAPACITY - 1, (sentences,))
    mine, plain = (beams_for(sentences, rules, longest) for _ in range(2))
    for step in range(int(longest.max()) + 1):
        logits = torch.randn(sentences, beam, vocabulary) * 3
        logits[:, :, SPECIALS.eos] += 2
        logits[0, 0, 3:5] = -torch.inf
        searched = plain.steps == 0
        _extend(plain, logits.to(DEVICE), rules)
        gpu.extend(mine, logits.to(DEVICE), rules)
        assert mine.lengths.tolist() == plain.lengths.tolist()
        assert mine.steps.tolist() == plain.steps.tolist()
        assert not mine.broken.any()
        torch.testing.assert_close(mine.pool[searched], plain.pool[searched])
        kept = (plain.past_totals[step] > -torch.inf) & searched[:, None]
        torch.testing.assert_close(mine.past_totals[step][searched], plain.past_totals[step][searched])
        assert mine.past_tokens[step][kept].tolist() == plain.past_tokens[step][kept].tolist()
        assert mine.past_parents[step][kept].tolist() == plain.past_parents[step][kept].tolist()


@pytest.mark.parametrize("beam", [1, 4])
def test_sentences_may_have_taken_different_numbers_of_steps_up_to_the_capacity(beam):
    torch.manual_seed(beam)
    rules = Rules.of(DecodingConfig(beam=beam, min_length=1), SPECIALS, 1)
    mine, plain = (beams_for(4, rules, torch.tensor([6, 6, 3, 6])) for _ in range(2))
    for _ in range(CAPACITY + 3):
        logits = torch.randn(4, beam, 50) * 3
        begun = beams_for(2, rules, torch.tensor([5, 6]))
        for beams, extend in ((mine, gpu.extend), (plain, _extend)):
            if int(plain.lengths[1]) in (3, 5):
                beams.put(begun, torch.tensor([1, 0], device=DEVICE))
            extend(beams, logits.to(DEVICE), rules)
        assert mine.lengths.tolist() == plain.lengths.tolist()
        assert mine.steps.tolist() == plain.steps.tolist()
        kept = plain.past_totals > -torch.inf
        assert torch.equal(mine.past_totals > -torch.inf, kept)
        for name in ("past_parents", "past_tokens", "past_totals"):
            torch.testing.assert_close(getattr(mine, name)[kept], getattr(plain, name)[kept])
    assert max(mine.lengths.tolist()) == CAPACITY - 1


def test_a_sentence_whose_logits_are_not_finite_is_broken_and_others_are_not():
    rules = Rules.of(DecodingConfig(beam=3), SPECIALS, 1)
    beams = beams_for(3, rules, torch.tensor([5, 5, 5]))
    logits = torch.randn(3, 3, 40)
    logits[1, 0, 7], logits[2, 1] = torch.nan, torch.nan  # sentence 2 has no hypothesis 1 before its first token
    gpu.extend(beams, logits.to(DEVICE), rules)
    assert beams.broken.tolist() == [False, True, False]


def inputs(sentences, beam, heads, shared, dim, capacity, now, source):
    torch.manual_seed(dim)
    rows = sentences * beam
    own = [torch.randn(rows, count, dim) for count in (heads, shared, shared)]
    caches = [torch.randn(sentences, capacity, beam, shared, dim) for _ in range(2)]
    for cache in caches:
        cache[:, now:] = torch.nan  # never written
    ancestry = torch.randint(beam, (sentences, beam, capacity), dtype=torch.int32)
    ancestry[:, :, now] = torch.arange(beam)
    memory = [torch.randn(sentences, source, shared, dim) for _ in range(2)]
    visible = torch.rand(sentences, source) < 0.7
    visible[0] = False
    for part in memory:
        part[~visible] = torch.nan
    lengths = (visible * torch.arange(1, source + 1)).amax(1)
    return own, caches, ancestry, torch.full((sentences,), now), memory, visible, lengths


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    "sizes", [(2, 5, 2, 2, 64, 40, 35, 33), (2, 1, 4, 2, 20, 9, 0, 1), (2, 17, 2, 1, 8, 20, 17, 65)], ids=str
)
def test_one_query_attention_equals_the_equations_in_double_precision(monkeypatch, sizes, dtype):
    own, caches, ancestry, positions, memory, visible, lengths = inputs(*sizes)
    rest = (ancestry.to(DEVICE), positions.to(DEVICE))

    def there(parts, kind):
        return [part.to(DEVICE, kind) for part in parts]

    found = steps.self_attention_step(*there(own, dtype), *(written := there(caches, dtype)), *rest)
    crossed = steps.cross_attention_step(*there(own[:1] + memory, dtype), visible.to(DEVICE), lengths.to(DEVICE))
    monkeypatch.setattr(steps, "why_no_triton", lambda *_: "the equations are wanted")
    rounded = [[part.to(dtype).double() for part in parts] for parts in (own, caches, memory)]
    expected = steps.self_attention_step(*there(rounded[0], torch.double), *there(rounded[1], torch.double), *rest)
    cross = steps.cross_attention_step(
        *there(rounded[0][:1] + rounded[2], torch.double), visible.to(DEVICE), lengths.to(DEVICE)
    )
    tolerance = 3 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(crossed.double(), cross, rtol=tolerance, atol=tolerance)
    assert not crossed[: sizes[1]].any()  # of a sentence that sees nothing
    now, beam = sizes[6], sizes[1]
    torch.testing.assert_close(written[0][:, now], own[1].to(DEVICE, dtype).view(-1, beam, *own[1].shape[1:]))


def test_sentences_at_different_steps_attend_to_their_own_past(monkeypatch):
    own, caches, ancestry, _, *_ = inputs(3, 2, 2, 1, 16, 40, 35, 5)
    positions, caches = torch.tensor([35, 0, 17]), [cache.nan_to_num(1.0) for cache in caches]
    for sentence, now in enumerate(positions):
        ancestry[sentence, :, now] = torch.arange(2)
    arguments = [part.to(DEVICE) for part in own]
    written, expected = ([cache.to(DEVICE, copy=True) for cache in caches] for _ in range(2))
    rest = ancestry.to(DEVICE), positions.to(DEVICE)
    found = steps.self_attention_step(*arguments, *written, *rest)
    monkeypatch.setattr(steps, "why_no_triton", lambda *_: "the equations are wanted")
    torch.testing.assert_close(found, steps.self_attention_step(*arguments, *expected, *rest), rtol=1e-5, atol=1e-5)
    for mine, plain in zip(written, expected, strict=True):
        assert torch.equal(mine, plain)
    alone = steps.self_attention_step(
        *(part[4:] for part in arguments), *(cache[2:].to(DEVICE) for cache in caches), *(part[2:] for part in rest)
    )
    torch.testing.assert_close(found[4:], alone, rtol=1e-5, atol=1e-5)


def test_ancestors_are_those_of_the_parent_and_a_hypothesis_is_its_own(monkeypatch):
    ancestry = torch.randint(5, (3, 5, 150), dtype=torch.int32, device=DEVICE)
    parents = torch.randint(5, (3, 5), device=DEVICE)
    positions, expected = torch.full((3,), 130, device=DEVICE), ancestry.clone()
    positions[1] = 20
    steps.update_ancestry(ancestry, parents, positions)
    monkeypatch.setattr(steps, "why_no_triton", lambda *_: "the equations are wanted")
    steps.update_ancestry(expected, parents, positions)
    for sentence, now in enumerate(positions.tolist()):
        assert torch.equal(ancestry[sentence, :, : now + 1], expected[sentence, :, : now + 1])


def test_a_search_whose_rows_are_refilled_finds_what_step_by_step_search_finds():
    torch.manual_seed(2)
    sizes = {"width": 16, "heads": 2, "hidden": 24, "layers": 1}
    configs = TransformerEncoderConfig(**sizes), TransformerDecoderConfig(**sizes, tied="none")
    model = build_model(*configs, source_vocabulary=20, target_vocabulary=20, shared_vocabulary=False).eval().to(DEVICE)
    with torch.no_grad():
        model.decoder.output.weight.mul_(8)
        source = torch.randint(3, 20, (5, 4), device=DEVICE)
        encoding = model.encoder(source, torch.ones_like(source, dtype=torch.bool))
    config, longest = DecodingConfig(beam=2, max_length=8, max_ratio=1.0), torch.tensor([2, 7, 3, 1, 5])
    found = static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=2, rows=2)
    plain = begin(model.decoder, encoding, SPECIALS, config, longest)
    expected = _step_by_step(model.decoder, plain, SPECIALS, config, None, 2, None)
    assert [[each.ids for each in hypotheses] for hypotheses in found] == [
        [each.ids for each in hypotheses] for hypotheses in expected
    ]
