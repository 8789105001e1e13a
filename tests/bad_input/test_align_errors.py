"""Wrong input to `jumok align` and guided alignment: one line, the place, and what to do."""

import shutil

import pytest

import jumok
from jumok.data.sources import DataConfig
from jumok.errors import ArgumentError
from support.commands import RECIPE, well, write
from support.refusals import names, refused


@pytest.fixture
def text(tmp_path):
    write(tmp_path / "one", "1 2\n3\n")
    write(tmp_path / "two", "2 1\n3\n")
    return tmp_path


def files(text):
    return [f"--source={text}/one", f"--target={text}/two"]


def test_files_that_do_not_belong_together_are_named(reverser, text):
    names(refused("align", reverser, f"--source={text}/won", f"--target={text}/two"), text / "won")
    write(text / "two", "2 1\n")
    names(refused("align", reverser, *files(text)), text / "one", "2 lines", text / "two", "1")


@pytest.mark.parametrize("line", ["0-", "a-b", "0-1,1-0", "-1-0"])
def test_gold_that_is_not_links(reverser, text, line):
    write(text / "gold", f"0-0\n{line}\n")
    names(refused("align", reverser, *files(text), f"--gold={text}/gold"), "gold, line 2")


def test_unknown_names_are_answered_with_the_known_ones(reverser, text):
    both = [*files(text), "--reverse=other"]
    names(refused("align", reverser, *both, "--symmetrise=gdfa"), "gdfa", "grow-diag-final-and")
    names(refused("align", reverser, *files(text), "--links=best"), "best", "argmax", "mutual", "threshold")


def test_options_that_would_do_nothing(reverser, text):
    for option in ("--links=mutual", "--symmetrise=union", "--no-shift", f"--dev-source={text}/one"):
        names(refused("align", *files(text), option), option.partition("=")[0].replace("no-", ""), "MODEL")
    names(refused("align", reverser, *files(text), "--symmetrise=union"), "--symmetrise", "--reverse")
    names(refused("align", reverser, *files(text), "--threshold=0.5"), "--threshold", "--links threshold")
    product = ["--reverse=other", "--symmetrise=product", "--links=mutual"]
    names(refused("align", reverser, *files(text), *product), "--symmetrise product", "--links")
    half = refused("align", reverser, *files(text), f"--dev-source={text}/one")
    names(half, "--dev-source", "--dev-gold")


@pytest.mark.slow
def test_a_line_of_a_megabyte_has_no_links_and_the_others_have(reverser, text):
    for name in ("one", "two"):
        write(text / name, "1 2\n" + 1_000_000 * "7" + "\n3\n")
    done = well("align", reverser, *files(text))
    first, long, last = done.out.splitlines()
    assert first
    assert long == ""
    assert last == "0-0"
    names(done.err, "line 2", "too long")


@pytest.mark.slow
def test_a_layer_that_is_not_there(transformer, text):
    for option in ("layer", "head"):
        for command in (["align", transformer, *files(text)], ["look", transformer, "12"]):
            names(refused(*command, f"--{option}=5"), f"{option} = 5", "2")


@pytest.mark.slow
def test_a_model_without_attention(forgetful, text):
    back = shutil.copytree(forgetful, text / "back")
    for reverse in ([], ["--reverse", back]):
        names(refused("align", forgetful, *files(text), *reverse), "no attention")


def test_a_model_is_not_its_own_reverse_under_whatever_path(reverser, text):
    (text / "link").symlink_to(reverser)
    for path in (reverser, text / "link", reverser.parent / "." / reverser.name / ".." / reverser.name):
        assert refused("align", reverser, *files(text), "--reverse", path) == (
            f"--reverse {path} is the model itself, of the same direction; name one that was trained on the "
            "same text with source and target exchanged, or leave --reverse out"
        )


def training(text, **changes):
    recipe = RECIPE.replace('corpus = "reverse"\nsize = 2000', f'source = "{text}/one"\ntarget = "{text}/two"')
    recipe = recipe.replace("longest = 6\n", "").replace('kind = "char"', 'kind = "char"\nsize = 20')
    path = write(text / "guided.toml", recipe)
    settings = {"data.valid_source": text / "one", "data.valid_target": text / "two", **changes}
    changed = [f"--set={key}={settings[key]}" for key in settings]
    return ["train", path, "--out", text / "run", "--device=cpu", *changed]


def test_guidance_and_links_belong_together(text):
    both = "training.guided_alignment … data.alignments"
    names(refused(*training(text, **{"training.guided_alignment": 0.1})), both)
    names(refused(*training(text, **{"data.alignments": text / "links"})), both)
    names(refused(*training(text, **{"training.guided_alignment": -1})), "training.guided_alignment = -1.0", "0")


@pytest.mark.parametrize(
    ("links", "facts"), [("0-1 1-0\n", "pair 2"), ("0-1\n0-0\n0-0\n", "line 3"), ("0-1\n0:0\n", "line 2 … '0:0'")]
)
def test_links_that_do_not_fit_the_training_text(text, links, facts):
    write(text / "links", links)
    changes = {"data.alignments": text / "links", "training.guided_alignment": 0.1}
    names(refused(*training(text, **changes)), text / "links", facts)


@pytest.mark.parametrize(
    ("setting", "value", "facts"),
    [
        ("training.guided_layer", 3, "0 to 0"),
        ("training.guided_layer", -2, "0 to 0"),
        ("training.guided_head", 2, ""),
        ("decoder.attention", "none", "attention"),
        ("training.guided_context", "full", 'decoder.kind = "transformer"'),
        ("training.guided_context", "whole", "'causal', 'full'"),
    ],
)
def test_guidance_of_what_is_not_there(text, setting, value, facts):
    write(text / "links", "0-1 1-0\n0-0\n")
    changes = {"data.alignments": text / "links", "training.guided_alignment": 0.1, setting: value}
    names(refused(*training(text, **changes)), "training.guided", facts)


def test_links_past_the_end_of_their_pair_are_left_out_and_counted_in_one_line(text):
    write(text / "links", "0-1 1-0 0-99\n7-0 0-0\n")
    changes = {"data.alignments": text / "links", "training.guided_alignment": 0.1, "training.steps": 1}
    err = well(*training(text, **changes)).err
    (message,) = [line for line in err.splitlines() if line.startswith(f"{text}/links")]
    names(message, "2 links", "line 1: 0-99")


def test_a_link_past_the_end_of_its_pair_does_not_become_one_of_the_next_it_is_joined_with(text):
    write(text / "links", "0-2\n0-0\n")
    valid = {"valid_source": f"{text}/one", "valid_target": f"{text}/two"}
    files = {"source": f"{text}/one", "target": f"{text}/two", "alignments": f"{text}/links", **valid}
    assert [links for _, links in DataConfig(**files, joined=(2,)).training_with_links()] == [[(2, 2)]]


@pytest.mark.parametrize("pairs", ["test.en", ["1 2 3"], [("1", "2", "3")], [("1", None)]])
def test_what_is_aligned_are_pairs_of_texts(pairs):
    with pytest.raises(ArgumentError, match=r"pair 1 is .* each pair must be a text and its translation"):
        jumok.align(pairs)
