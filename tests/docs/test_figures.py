"""The figures in the prose of the READMEs and of some pages of docs/ are the benchmarks' own numbers.

Each entry below is a page, a sentence of it with {} for every figure, and the figures, computed from
benchmarks/results/*.json. A new measurement that changes a figure fails here with the sentence to write.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache
from math import floor, log10
from pathlib import Path

import pytest

from benchmarks.results import FOLDER

ROOT = Path(__file__).resolve().parents[2]


@cache
def results(name: str) -> dict[tuple[str, str], float]:
    rows = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return {(row["id"], row["system"]): row["value"] for row in rows}


def value(name: str, id: str, system: str = "jumok") -> float:
    return results(name)[id, system]


def times(name: str, id: str, peer: str) -> str:
    """How many times as fast as a peer jumok is, in two digits; of times and of speeds."""
    ratio = value(name, id) / value(name, id, peer)
    return f"{max(ratio, 1 / ratio):.2g}"


def call_times(line: str, shape: str, compute: Callable[[float, float], float]) -> dict[str, float]:
    """By mask, a number from the times of jumok and of PyTorch, whose mask exists before the call."""
    measured, start = results("attend_cpu"), f"{line}/{shape}, "
    masks = [id.removeprefix(start) for id, system in measured if id.startswith(start) and system == "PyTorch"]
    return {mask: compute(measured[start + mask, "jumok"], measured[start + mask, "PyTorch"]) for mask in masks}


def ratio(ours: float, theirs: float) -> float:
    return ours / theirs


def under_masks(numbers: dict[str, float]) -> list[float]:
    return [number for mask, number in numbers.items() if mask != "no mask"]


def span(numbers: Iterable[float], form: str = ".0f") -> list[str]:
    """The smallest and the largest."""
    numbers = list(numbers)
    return [f"{min(numbers):{form}}", f"{max(numbers):{form}}"]


def two_digits(number: float) -> int:
    """The first two digits of a number: 890986 as 890000."""
    unit = 10 ** (floor(log10(number)) - 1)
    return round(number / unit) * unit


def memory_share() -> str:
    """1/30, rounded down to tens."""
    smaller = value("graph_attention", "gat-memory", "PyTorch Geometric") / value("graph_attention", "gat-memory")
    return f"1/{int(smaller / 10) * 10}"


def error_rates(id: str) -> list[str]:
    return [f"{value('alignment', id, system):.1f}%" for system in ("jumok", "eflomal", "fast_align")]


def chrf(*ids: str) -> list[str]:
    return [f"{value('l10n', id):.1f}" for id in ids]


TRAINING, RNN = (value("train_gpu", "transformer-train"), value("rnn_gpu", "rnnsearch-train"))
DECODING = value("decode_gpu", "gpu-decode")
OVER_TORCH = times("train_gpu", "transformer-train", "nn.Transformer compiled")
OVER_MARIAN = times("train_gpu", "transformer-train", "Marian compiled")
OVER_LOOP = times("rnn_gpu", "rnnsearch-train", "PyTorch loop in a CUDA graph")
DECODING_OVER_MARIAN = times("decode_gpu", "gpu-decode", "Hugging Face Marian")
OVER_CTRANSLATE2 = times("decoding", "cpu-decode", "CTranslate2 int8")
OVER_PYG = times("graph_attention", "gat-train", "PyTorch Geometric")
ADDITIVE = [
    f"{value('additive_gpu', 'additive-train'):.2f}",
    times("additive_gpu", "additive-train", "PyTorch"),
    times("additive_gpu", "additive-train", "torch.compile"),
]
GAT = [f"{value('graph_attention', 'gat-train'):.1f}", OVER_PYG, memory_share()]
LINEAR_MEMORY = f"{value('attention_cpu', 'attention-train-memory/B1 T4096 d256') / 1024:.1f}"
SMALL_CPU = [f"{value('small_cpu', 'small-cpu-minutes'):.0f}", f"{value('small_cpu', 'small-cpu-bleu'):.1f}"]
PREPARATION = [f"{value('scale', f'input/{part}'):.1f}" for part in ("preparing 10⁸ pairs", "preparing by 16")]
EPOCH, EPOCH_ON_8 = (f"{value('scale', 'per-gpu/one pass over 10⁸ pairs', gpus):.1f}" for gpus in ("1 GPU", "8 GPUs"))
PAIRS_PER_SECOND = round(value("scale_prepare", "scale-prepare/pairs a second"))
PAIRS_OF_FIRST = round(value("scale_prepare", "scale-prepare/pairs a second of the first process"))


def spread(system: str) -> list[str]:
    """The mean of the final losses of a system, the smallest and the largest."""
    rows = (f"training-spread/{which} final loss" for which in ("mean", "smallest", "largest"))
    return [f"{value('train_curves_control', row, system):.3g}" for row in rows]


SMALL_GRAPHS = [
    f"{value('graph_attention_cpu', f'graph-cpu/{layer}, 1,000 nodes, 10,000 edges, 4 × 8', system):.1f}"
    for layer in ("GAT", "GATv2")
    for system in ("jumok", "PyTorch Geometric")
]


def over_toolkits(model: str, system: str) -> str:
    """How many times as fast as the faster of OpenNMT-py and Eole jumok trains a model on a CPU."""
    faster = max(value("cpu_train", f"cpu-train-{model}", peer) for peer in ("OpenNMT-py", "Eole"))
    return f"{value('cpu_train', f'cpu-train-{model}', system) / faster:.3g}"


CPU_TRAINING = [
    over_toolkits(model, system) for system in ("jumok", "jumok, bf16") for model in ("rnn", "rnn-luong", "transformer")
]
SOFTWARE = chrf("enko-l10n", "enko-l10n-heldout", "koen-l10n", "koen-l10n-heldout")
SMALL_CALL, MEDIUM_CALL = "[2, 4, 16, 32]", "[8, 8, 32, 64]"
MORE = call_times("attend-cpu", SMALL_CALL, lambda ours, theirs: ours - theirs)
MORE_IN_TRAINING = call_times("attend-cpu-train", SMALL_CALL, lambda ours, theirs: ours - theirs)
MEDIUM, MEDIUM_TRAINING = (call_times(line, MEDIUM_CALL, ratio) for line in ("attend-cpu", "attend-cpu-train"))
CALLS = [
    span(call_times("attend-cpu", SMALL_CALL, compute).values())
    for compute in (lambda ours, theirs: ours, lambda ours, theirs: theirs)
]

FIGURES: list[tuple[str, str, list[str]]] = [
    (
        "README.md",
        "a Transformer trains {} times as fast as PyTorch's `nn.Transformer` with `torch.compile`",
        [OVER_TORCH],
    ),
    (
        "README.md",
        "{} times as fast as PyTorch Geometric's and uses {} of the memory",
        GAT[1:],
    ),
    ("README.md", "additive attention over 4,096 positions with 256 features takes {} GiB", [LINEAR_MEMORY]),
    ("README.md", "it trains in {} minutes on one core and reaches BLEU {}", SMALL_CPU),
    ("README.md", "| English-French | {} | {} | {} |", error_rates("aer-enfr")),
    ("README.md", "| Chinese-English | {} | {} | {} |", error_rates("aer-zhen")),
    (
        "README.md",
        "chrF is {} on programs that also occur in the training text and {} on unseen programs; "
        "from Korean to English it is {} and {}.",
        SOFTWARE,
    ),
    (
        "README.md",
        "| train a Transformer base | {} million tokens/s | {} times `nn.Transformer` with `torch.compile` |",
        [f"{TRAINING / 1e6:.2f}", OVER_TORCH],
    ),
    (
        "README.md",
        "| train RNNsearch | {} million tokens/s | {} times a PyTorch loop in a CUDA graph |",
        [f"{RNN / 1e6:.1f}", OVER_LOOP],
    ),
    (
        "README.md",
        "| translate with a Transformer base, beam size 5 | {} tokens/s | {} times Hugging Face's Marian |",
        [f"{two_digits(DECODING):,}", DECODING_OVER_MARIAN],
    ),
    ("README.md", "forward and backward | {} ms | {} times plain PyTorch, {} times `torch.compile` |", ADDITIVE),
    ("README.md", "forward and backward | {} ms | {} times PyTorch Geometric, with {} of the memory |", GAT),
    ("README.md", "{} times as fast as CTranslate2 in int8 with its defaults", [OVER_CTRANSLATE2]),
    ("README.ko.md", "PyTorch `nn.Transformer`보다 {}배 빠르게 학습합니다.", [OVER_TORCH]),
    ("README.ko.md", "PyTorch Geometric보다 {}배 빠르게 학습하고 메모리는 {}만 씁니다.", GAT[1:]),
    ("README.ko.md", "256차원 additive 어텐션을 {}GiB로 학습합니다.", [LINEAR_MEMORY]),
    ("README.ko.md", "코어 하나로 {}분 만에 학습해 BLEU {}을 얻습니다.", SMALL_CPU),
    ("README.ko.md", "| 영어-프랑스어 | {} | {} | {} |", error_rates("aer-enfr")),
    ("README.ko.md", "| 중국어-영어 | {} | {} | {} |", error_rates("aer-zhen")),
    ("README.ko.md", "문장에서 {}, 처음 보는 프로그램에서 {}이며, 한국어→영어는 각각 {}과 {}입니다.", SOFTWARE),
    (
        "README.ko.md",
        "| 트랜스포머 base 학습 | 초당 {}만 토큰 | `torch.compile`을 쓴 `nn.Transformer`의 {}배 |",
        [f"{TRAINING / 1e4:.0f}", OVER_TORCH],
    ),
    ("README.ko.md", "| RNNsearch 학습 | 초당 {}만 토큰 |", [f"{two_digits(RNN) // 10_000}"]),
    ("README.ko.md", "CUDA 그래프로 실행한 PyTorch 반복문의 {}배 |", [OVER_LOOP]),
    (
        "README.ko.md",
        "빔 크기 5 | 초당 {}만 토큰 | Hugging Face Marian의 {}배 |",
        [f"{DECODING / 1e4:.0f}", DECODING_OVER_MARIAN],
    ),
    ("README.ko.md", "순전파와 역전파 | {}ms | 일반 PyTorch의 {}배, `torch.compile`의 {}배 |", ADDITIVE),
    ("README.ko.md", "순전파와 역전파 | {}ms | PyTorch Geometric의 {}배, 메모리는 {} |", GAT),
    ("README.ko.md", "CTranslate2 int8 기본 설정보다 {}배 빠르게 디코딩하며", [OVER_CTRANSLATE2]),
    (
        "docs/speed.md",
        "| {} times as fast as PyTorch's `nn.Transformer` and {} times as fast as Hugging Face's Marian, both with",
        [OVER_TORCH, OVER_MARIAN],
    ),
    ("docs/speed.md", "| RNNsearch is {} times as fast as a PyTorch loop in a CUDA graph |", [OVER_LOOP]),
    (
        "docs/speed.md",
        "| {} times as fast as Hugging Face's Marian (Transformer base, beam size 5) |",
        [DECODING_OVER_MARIAN],
    ),
    (
        "docs/speed.md",
        "RNNsearch {} times, Luong {} times and a Transformer {} times. In bf16, {}, {} and {} times as fast",
        CPU_TRAINING,
    ),
    ("docs/speed.md", "| int8 is {} times as fast as CTranslate2 with its defaults", [OVER_CTRANSLATE2]),
    ("docs/speed.md", "| GAT is {} times as fast as PyTorch Geometric on a GPU, with {} of the memory", GAT[1:]),
    (
        "docs/speed.md",
        "| A million queries against a million points take {} s on a GPU, {} times as fast as `torch.cdist`",
        [
            f"{value('regression_gpu', 'kernel-regression-1m'):.3f}",
            str(two_digits(float(times("regression_gpu", "kernel-regression-1m", "torch.cdist, products")))),
        ],
    ),
    (
        "docs/speed.md",
        "| Opening a tokenised corpus of ten million pairs takes {} ms, building its first batch {} ms |",
        [f"{value('dataset', f'{part}/10,000,000 pairs'):.2g}" for part in ("ready", "first")],
    ),
    (
        "docs/speed.md",
        "for 1,000 nodes and 10,000 edges: GAT {} ms (PyTorch Geometric {} ms), GATv2 {} ms ({} ms)",
        SMALL_GRAPHS,
    ),
    (
        "docs/speed.md",
        "The final losses are {} on average with fused kernels, from {} to {}, and {} without them, from {} to {}",
        [*spread("jumok"), *spread("as written")],
    ),
    (
        "docs/scale.md",
        "One core prepares 10⁸ pairs in 10⁸ / {} s = {} s. Sixteen cores could tokenise 16 · {} = {} pairs per second, "
        "but the first process reads, filters and writes only {}, so they need 10⁸ / {} s = {} s",
        [
            *(f"{PAIRS_PER_SECOND:,}", f"{1e8 / PAIRS_PER_SECOND:,.0f}"),
            *(f"{PAIRS_PER_SECOND:,}", f"{16 * PAIRS_PER_SECOND:,}"),
            *(f"{PAIRS_OF_FIRST:,}", f"{PAIRS_OF_FIRST:,}", f"{1e8 / PAIRS_OF_FIRST:.0f}"),
        ],
    ),
    (
        "docs/scale.md",
        "On one core it takes {} minutes, slightly longer than one epoch on one GPU ({} minutes). On 16 cores it takes "
        "{} minutes, longer than one epoch on 8 GPUs ({} minutes in the first table).",
        [PREPARATION[0], EPOCH, PREPARATION[1], EPOCH_ON_8],
    ),
    ("README.md", "a forward call [takes {} to {} µs instead of {} to {} µs]", [*CALLS[0], *CALLS[1]]),
    ("README.ko.md", "[PyTorch는 {}~{}µs, `attend`는 {}~{}µs가 걸립니다]", [*CALLS[1], *CALLS[0]]),
    (
        "docs/speed.md",
        "{} µs more causal, {} with lengths, {} causal with lengths, {} in a window, {} with a boolean tensor. "
        "Reached without a mask, {} µs more. Forward and backward, {} to {} µs more",
        [
            *(
                f"{MORE[mask]:.0f}"
                for mask in ("causal", "lengths", "causal and lengths", "window", "boolean tensor", "no mask")
            ),
            *span(MORE_IN_TRAINING.values()),
        ],
    ),
    (
        "docs/speed.md",
        "one over the output, take {} µs alone",
        [f"{value('attend_cpu', f'attend-cpu-sums/{SMALL_CALL}'):.1f}"],
    ),
    (
        "docs/speed.md",
        "{} to {} times under masks without gradients, {} to {} times forward and backward",
        [*span(under_masks(MEDIUM), ".2f"), *span(under_masks(MEDIUM_TRAINING), ".2f")],
    ),
    (
        "docs/speed.md",
        "each a pass over memory, {} µs alone",
        [f"{value('attend_cpu', f'attend-cpu-sums/{MEDIUM_CALL}'):.0f}"],
    ),
]


def test_the_goal_of_medium_calls_is_reached_where_the_page_says_so() -> None:
    assert max(MEDIUM["no mask"], MEDIUM_TRAINING["no mask"]) <= 1.1
    for line in ("attend-cpu", "attend-cpu-train"):
        for shape in ("[8, 8, 128, 64]", "[8, 8, 512, 64]"):
            assert max(call_times(line, shape, ratio).values()) <= 1.1


@pytest.mark.parametrize(("page", "sentence", "figures"), FIGURES, ids=[page for page, _, _ in FIGURES])
def test_a_figure_in_prose_is_the_measured_one(page: str, sentence: str, figures: list[str]) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert sentence.format(*figures) in text


def test_nothing_failed_where_the_readmes_compare_graph_layers() -> None:
    assert value("graph_attention", "graph-checks-failed") == 0
