"""Twenty things that a reader looks for, and the file that defines each; every file should be the first guess."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src/jumok"

HOME = {
    "masks": ("attention/masks.py", "Visible"),
    "fused additive kernel": ("attention/additive/gpu/forward_kernels.py", "mix_kernel"),
    "multi-head attention": ("layers/multi_head.py", "MultiHeadAttention"),
    "Nadaraya-Watson estimator": ("regression/estimator.py", "KernelRegressor"),
    "GAT layer": ("graphs/layers.py", "GraphAttention"),
    "caption encoder": ("images/encoder.py", "ImageEncoder"),
    "tokenizer": ("data/tokenizer.py", "Tokenizer"),
    "BPE-dropout sampling": ("data/subwords.py", "BpeSampler"),
    "label-smoothed cross-entropy": ("training/loss.py", "smoothed_cross_entropy"),
    "checkpoint writing": ("training/checkpoint.py", "write_checkpoint"),
    "resume": ("training/resume.py", "will_resume"),
    "beam search": ("decoding/beam.py", "beam_search"),
    "minimum Bayes risk": ("decoding/consensus.py", "by_expected_chrf"),
    "CTranslate2 export": ("decoding/ctranslate2_model.py", "write_model"),
    "BLEU": ("analysis/scores/metrics.py", "make_metric"),
    "alignment error rate": ("analysis/alignment/error_rate.py", "alignment_scores"),
    "attention map drawing": ("analysis/draw/formats.py", "save"),
    "recipe parsing": ("recipe.py", "parse_recipe"),
    "OPUS-MT import": ("exchange/marian.py", "MarianFolder"),
    "REST routes": ("serve/routes.py", "translation_routes"),
}


@pytest.mark.parametrize("thing", HOME)
def test_a_thing_is_defined_where_a_reader_looks_first(thing):
    file, name = HOME[thing]
    statements = ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body
    defined = [part.name for part in statements if isinstance(part, ast.FunctionDef | ast.ClassDef)]
    assert name in defined
