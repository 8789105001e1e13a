"""Corpora mixed by weight: what an epoch has of each, the same batches after a kill, tags and word links."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jumok.data import BatchConfig, Batches, prepare
from jumok.data.dataset import Dataset, write_dataset
from jumok.data.mixture import Mixture, repeats
from jumok.data.sources import DataConfig
from jumok.data.tokenizer import TokenizerConfig
from jumok.errors import ConfigError
from jumok.settings import read_section

SIZES = (300, 40)


def dataset(path: Path, rows: int, first: int) -> Dataset:
    """Rows whose first token says which row it is; lengths vary."""
    texts = ([[first + row] * (3 + row % 5), [first + row] * (3 + row % 3)] for row in range(rows))
    return write_dataset(path, texts, size=2000)


@pytest.fixture
def mixture(tmp_path: Path) -> Mixture:
    old, new = dataset(tmp_path / "a", SIZES[0], 10), dataset(tmp_path / "b", SIZES[1], 1000)
    return Mixture([old, new], [1, 3], seed=5)


def seen(batches: Batches, epoch: int) -> Counter[int]:
    """How often an epoch has each row."""
    tokens: Counter[int] = Counter()
    for step in range(batches.steps(epoch)):
        batch = batches.batch(epoch, step)
        assert (batch.source[:, 0] == batch.target_in[:, 0]).all()  # both sides are of one row
        tokens.update(batch.source[:, 0].tolist())
    return tokens


def test_an_epoch_has_as_many_pairs_as_all_corpora_divided_by_weight(mixture: Mixture) -> None:
    batches = Batches(mixture, BatchConfig(tokens=64), seed=1)
    tokens = seen(batches, 0)
    new = sum(count for token, count in tokens.items() if token >= 1000)
    assert tokens.total() == pytest.approx(340, abs=len(mixture.length_counts.counts))
    assert new / tokens.total() == pytest.approx(0.75, abs=0.03)


def test_every_pair_of_a_corpus_comes_equally_often(mixture: Mixture) -> None:
    batches = Batches(mixture, BatchConfig(tokens=64), seed=1)
    total = sum((seen(batches, epoch) for epoch in range(12)), Counter[int]())
    old, new = repeats(SIZES, [1, 3])
    assert {total[10 + row] for row in range(SIZES[0])} <= {int(12 * old), int(12 * old) + 1, int(12 * old) + 2}
    often = {total[1000 + row] for row in range(SIZES[1])}
    assert max(often) - min(often) <= 2
    assert np.mean(list(often)) == pytest.approx(12 * new, abs=2)


def test_epochs_differ_and_a_new_process_reads_the_same_batches(mixture: Mixture, tmp_path: Path) -> None:
    first = Batches(mixture, BatchConfig(tokens=64), seed=1)
    again = Batches(
        Mixture([Dataset(tmp_path / "a"), Dataset(tmp_path / "b")], [1, 3], seed=5), BatchConfig(tokens=64), seed=1
    )
    for step in range(first.steps(3)):
        assert (first.batch(3, step).source == again.batch(3, step).source).all()
    assert seen(first, 0) != seen(first, 1)


def test_a_mixture_of_one_corpus_has_every_row_once(tmp_path: Path) -> None:
    alone = Mixture([dataset(tmp_path / "a", 100, 10)], [2.5])
    assert set(seen(Batches(alone, BatchConfig(tokens=64)), 4).values()) == {1}


def corpora(tmp_path: Path) -> list[dict[str, Any]]:
    """Two small corpora with words of their own, links and validation files."""
    made = []
    for name, words in (("old", "a b c d e"), ("new", "u v w x y z")):
        lines = [" ".join(words.split()[at % 3 : at % 3 + 2 + at % 2]) + f" {at}" for at in range(40)]
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        links = [" ".join(f"{word}-{word}" for word in range(len(line.split()))) for line in lines]
        (tmp_path / f"{name}.links").write_text("\n".join(links) + "\n", encoding="utf-8")
        files = {side: str(tmp_path / f"{name}.{end}") for side, end in (("source", "en"), ("target", "de"))}
        valid = {f"valid_{side}": path for side, path in files.items()}
        made.append(files | valid | {"alignments": str(tmp_path / f"{name}.links")})
    return made


def mixed(tmp_path: Path, **tagged: str) -> DataConfig:
    old, new = corpora(tmp_path)
    return read_section(DataConfig, {"mix": [old | {"weight": 3.0}, new | tagged]}, "data")


def test_links_of_a_tagged_source_still_link_the_same_words(tmp_path: Path) -> None:
    data = mixed(tmp_path, tag="<new>")
    prepared = prepare(tmp_path / "data", data, TokenizerConfig(kind="char"))
    batches = Batches(prepared.train, BatchConfig(sentences=1), tokenizers=prepared.tokenizers)
    source, target = prepared.tokenizers
    tagged = 0
    for step in range(batches.steps(0)):
        batch = batches.batch(0, step)
        assert batch.word_links is not None
        text = source.decode(batch.source[0].tolist())
        words, outputs = source.word_numbers(batch.source.numpy())[0], target.word_numbers(batch.target_out.numpy())[0]
        shift = int(text.startswith("<new> "))
        tagged += shift
        for row, column in batch.word_links[0].nonzero().tolist():
            assert words[column] - shift == outputs[row] >= 0
        assert not batch.word_links[0, :, :shift].any()
        assert batch.word_links[0].any()
    assert 0 < tagged < batches.steps(0)


def test_prepared_corpora_are_reused_until_one_changes_but_not_for_a_new_name(tmp_path: Path) -> None:
    data, said = mixed(tmp_path, tag="<new>"), list[str]()
    first = prepare(tmp_path / "data", data, TokenizerConfig(kind="char"))
    again = prepare(tmp_path / "data", data, TokenizerConfig(kind="char"), say=said.append)
    assert not said
    assert first.identity == again.identity
    assert list(first.held_out) == ["old", "new"]
    assert all(pair.source.startswith("<new> ") for pair in first.held_out["new"].pairs)
    with open(tmp_path / "new.en", "a", encoding="utf-8") as source, open(tmp_path / "new.de", "a") as target:
        source.write("u u u\n")
        target.write("u u u\n")
    (tmp_path / "new.links").write_text((tmp_path / "new.links").read_text() + "0-0\n")
    changed = prepare(tmp_path / "data", data, TokenizerConfig(kind="char"), say=said.append)
    assert "tokenising the training text of new" in said
    assert changed.identity != first.identity


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tag": "medical"}, "one word in angle brackets"),
        ({"weight": 0.0}, "must be above 0"),
        ({"wieght": 1.0}, r"data\.mix\[1\]\.wieght is not a setting; did you mean weight"),
        ({"alignments": ""}, "only some corpora of data.mix have alignments"),
        ({"name": "old"}, "two corpora of data.mix are called 'old'"),
        ({"target": ""}, "data.source and data.target belong together"),
        ({"validate": False}, r"data\.mix\.validate = false, but .* is given to validate on"),
    ],
)
def test_a_mixture_that_cannot_be_read_is_refused_with_one_line(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    old, new = corpora(tmp_path)
    with pytest.raises(ConfigError, match=said):
        read_section(DataConfig, {"mix": [old, new | change]}, "data").corpora  # noqa: B018


def test_a_corpus_that_is_not_validated_on_is_trained_on_whole(tmp_path: Path) -> None:
    old, new = corpora(tmp_path)
    new = {key: value for key, value in new.items() if not key.startswith("valid_")} | {"validate": False}
    data = read_section(DataConfig, {"mix": [old, new]}, "data")
    prepared = prepare(tmp_path / "data", data, TokenizerConfig(kind="char"))
    assert list(prepared.held_out) == ["old"]
    assert isinstance(prepared.train, Mixture)
    assert list(map(len, prepared.train.datasets)) == [40, 40]
    with pytest.raises(ConfigError, match=r"no corpus of data\.mix is validated on"):
        read_section(DataConfig, {"mix": [new | {"name": "a"}, new | {"name": "b"}]}, "data")


def test_settings_of_one_corpus_beside_a_mixture_are_refused(tmp_path: Path) -> None:
    old, new = corpora(tmp_path)
    with pytest.raises(ConfigError, match=r"set it in each \[\[data.mix\]\]"):
        read_section(DataConfig, {"mix": [old, new], "tag": "<x>"}, "data")
