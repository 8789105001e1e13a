"""Shortlists: the target words a sentence is likely to need, from alignments of the training text."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import jumok
from jumok.analysis.alignment.shortlist import make_shortlist
from jumok.data import BOS, EOS, PAD, UNK
from jumok.data.dataset import write_dataset
from jumok.data.sources import MixedCorpus
from jumok.decoding.shortlist import Shortlist, read_shortlist
from jumok.model_folder import BUNDLED
from jumok.tasks.cpu_engine import CpuEngines
from jumok.tasks.translator import TrainedTranslator

TRANSLATIONS = {source: source + 100 for source in range(10, 40)}


def text(sentences: int) -> tuple[list[list[int]], list[list[int]]]:
    picks = random.Random(0)
    sources = [picks.sample(sorted(TRANSLATIONS), picks.randint(3, 8)) for _ in range(sentences)]
    return sources, [[TRANSLATIONS[word] for word in reversed(source)] for source in sources]


def test_the_likeliest_word_is_the_translation() -> None:
    found = make_shortlist(*text(300), shared=False)
    assert {source: ids[0] for source, ids in found.likely.items()} == TRANSLATIONS


def test_a_shared_piece_may_be_copied_and_the_special_tokens_are_always_there() -> None:
    sources, targets = text(300)
    found = make_shortlist(sources, targets, shared=True)
    assert all(piece in ids for piece, ids in found.likely.items())
    assert {PAD, BOS, EOS, UNK} <= found.always
    assert found.ids(sources[:2]).tolist()[:4] == [PAD, BOS, EOS, UNK]
    assert set(targets[0]) <= set(found.ids(sources[:1]).tolist())


def test_a_saved_shortlist_is_the_same_and_one_of_another_vocabulary_is_not_used(tmp_path: Path) -> None:
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    made = Shortlist(frozenset(range(9)), {10: (4, 12, 11), 11: (20,)})
    made.write(tmp_path / "shortlist.txt", tokenizers)
    read = read_shortlist(tmp_path / "shortlist.txt", tokenizers)
    assert read is not None
    assert (read.always, read.likely) == (made.always, made.likely)
    for damaged in (b"no such piece\tneither\n", b"\xff\xfe", b"", b"\t\xea\n"):
        (tmp_path / "shortlist.txt").write_bytes(damaged)
        assert read_shortlist(tmp_path / "shortlist.txt", tokenizers) is None
    assert read_shortlist(tmp_path / "missing.txt", tokenizers) is None


@pytest.mark.parametrize("ids", [range(4, 40), range(100_000, 100_040)])
def test_a_folder_makes_its_shortlist_from_its_training_text_once(tmp_path: Path, ids: range) -> None:
    trained = jumok.load(BUNDLED, device="cpu").trained
    (tmp_path / "data").mkdir()
    picks = random.Random(0)
    rows = [[[BOS, *picks.sample(ids, 5), EOS]] * 2 for _ in range(60)]
    write_dataset(tmp_path / "data/train.store", rows, size=200_000)
    found = engines_of(trained, tmp_path).shortlist()
    if ids.start > 100:
        assert found is None  # the text of another vocabulary
        return
    assert found is not None
    written = (tmp_path / "shortlist.txt").stat().st_ctime_ns
    assert engines_of(trained, tmp_path).shortlist() is not None
    assert (tmp_path / "shortlist.txt").stat().st_ctime_ns == written


def engines_of(trained: TrainedTranslator, folder: Path, start_from: str = "", **data: Any) -> CpuEngines:
    """The engines of a model in a folder, with other settings of its data and another model that it started from."""
    recipe = trained.recipe
    training = replace(recipe.training, start_from=start_from)
    recipe = replace(recipe, training=training, data=replace(recipe.data, **data))
    return CpuEngines(trained.model, trained.tokenizers, recipe, folder)


def test_the_shortlist_of_a_fine_tuned_model_is_joined_to_that_of_its_start_and_there_is_none_without_it(
    tmp_path: Path,
) -> None:
    trained = jumok.load(BUNDLED, device="cpu").trained
    start, tuned = tmp_path / "start", tmp_path / "tuned"
    for folder, ids in ((start, range(4, 40)), (tuned, range(30, 70))):
        (folder / "data").mkdir(parents=True)
        rows = [[[BOS, *random.Random(row).sample(ids, 5), EOS]] * 2 for row in range(60)]
        write_dataset(folder / "data/train.store", rows, size=200_000)
    assert engines_of(trained, tuned, str(start)).shortlist() is None
    assert engines_of(trained, tuned, str(tmp_path / "gone")).shortlist() is None
    first, alone = (engines_of(trained, folder).shortlist() for folder in (start, tuned))
    (tuned / "shortlist.txt").unlink()
    both = engines_of(trained, tuned, str(start)).shortlist()
    assert first is not None
    assert alone is not None
    assert both is not None
    assert both.always == first.always | alone.always
    for piece in range(4, 70):
        assert set(both.likely[piece]) == {*first.likely.get(piece, ()), *alone.likely.get(piece, ())}
    saved = engines_of(trained, tuned, str(tmp_path / "gone")).shortlist()
    assert saved is not None
    assert saved.likely == both.likely


def test_a_mixture_of_corpora_makes_one_shortlist_whatever_an_earlier_run_left_beside_it(tmp_path: Path) -> None:
    trained = jumok.load(BUNDLED, device="cpu").trained
    (tmp_path / "data").mkdir()
    for number, ids in enumerate((range(4, 40), range(60, 100))):
        rows = [[[BOS, *random.Random(row).sample(ids, 5), EOS]] * 2 for row in range(60)]
        write_dataset(tmp_path / f"data/mix-{number}.train.store", rows, size=200_000)
    for name in ("mix-0.valid", "train", "mix-2.train"):
        write_dataset(tmp_path / f"data/{name}.store", [[[BOS, 200, EOS]] * 2], size=200_000)
    mix = tuple(MixedCorpus(source=f"{name}.en", target=f"{name}.ko") for name in ("one", "other"))
    found = engines_of(trained, tmp_path, corpus="", size=50_000, mix=mix).shortlist()
    assert found is not None
    assert set(found.likely) == {*range(4, 40), *range(60, 100)}
    assert (tmp_path / "shortlist.txt").exists()
