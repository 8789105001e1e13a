"""What `jumok align` and guided alignment say of wrong input: one line, the place, and what to do."""

import shutil

import pytest

from jumok.data.sources import DataConfig
from support.commands import BRIEFLY, RECIPE, jumok, well, write

pytestmark = pytest.mark.slow


@pytest.fixture
def text(tmp_path):
    write(tmp_path / "one", "1 2\n3\n")
    write(tmp_path / "two", "2 1\n3\n")
    return tmp_path


def said(*arguments):
    done = jumok(*arguments)
    assert done.code == 1, done
    assert done.out == ""
    assert "Traceback" not in done.err
    return done.err


def files(text):
    return [f"--source={text}/one", f"--target={text}/two"]


def test_files_of_different_length(reverser, text):
    write(text / "two", "2 1\n")
    assert "has 2 lines but" in said("align", reverser, *files(text))


def test_a_gold_file_of_another_length(reverser, text):
    write(text / "gold", "0-0\n")
    assert "has links for 1 pairs, but there are 2" in said("align", reverser, *files(text), f"--gold={text}/gold")


@pytest.mark.parametrize("line", ["0-", "a-b", "0-1,1-0", "0 1", "-1-0"])
def test_gold_that_is_not_links(reverser, text, line):
    write(text / "gold", f"0-0\n{line}\n")
    assert "gold, line 2" in said("align", reverser, *files(text), f"--gold={text}/gold")


def test_no_such_file(reverser, text):
    assert "there is no file" in said("align", reverser, f"--source={text}/won", f"--target={text}/two")


def test_unknown_names_are_answered_with_the_known_ones(reverser, text):
    both = [*files(text), "--reverse=other"]
    assert "grow-diag-final-and" in said("align", reverser, *both, "--symmetrise=gdfa")
    assert "argmax, mutual, threshold" in said("align", reverser, *files(text), "--links=best")


def test_options_that_would_do_nothing(reverser, text):
    for option in ("--links=mutual", "--symmetrise=union", "--no-shift", f"--dev-source={text}/one"):
        assert "needs a model" in said("align", *files(text), option)
    assert "--reverse FOLDER" in said("align", reverser, *files(text), "--symmetrise=union")
    assert "--links threshold" in said("align", reverser, *files(text), "--threshold=0.5")
    product = ["--reverse=other", "--symmetrise=product", "--links=mutual"]
    assert "--symmetrise product joins both" in said("align", reverser, *files(text), *product)


@pytest.mark.slow
def test_a_line_of_a_megabyte_has_no_links_and_the_others_have(reverser, text):
    for name in ("one", "two"):
        write(text / name, "1 2\n" + 1_000_000 * "7" + "\n3\n")
    done = well("align", reverser, *files(text))
    first, long, last = done.out.splitlines()
    assert first
    assert long == ""
    assert last == "0-0"
    assert "line 2 has no links: it is too long for the model" in done.err


@pytest.mark.slow
def test_a_layer_that_is_not_there(transformer, text):
    for option in ("layer", "head"):
        asked = f"{option} = 5 does not exist; there are 2, counted from 0"
        assert asked in said("align", transformer, *files(text), f"--{option}=5")
        assert asked in said("look", transformer, "12", f"--{option}=5")


def test_half_a_development_set(reverser, text):
    assert "give both --dev-source and --dev-gold" in said("align", reverser, *files(text), f"--dev-source={text}/one")


@pytest.mark.slow
def test_a_model_without_attention(text):
    recipe = RECIPE.replace('[decoder]\nkind = "rnn"', '[decoder]\nkind = "rnn"\nattention = "none"')
    well("train", write(text / "fixed.toml", recipe), "--out", text / "fixed", "--device", "cpu", *BRIEFLY)
    assert "this model has no attention" in said("align", text / "fixed", *files(text))
    back = shutil.copytree(text / "fixed", text / "back")
    assert "this model has no attention" in said("align", text / "fixed", *files(text), "--reverse", back)


def test_a_model_is_not_its_own_reverse_under_whatever_path(reverser, text):
    (text / "link").symlink_to(reverser)
    for path in (reverser, text / "link", reverser.parent / "." / reverser.name / ".." / reverser.name):
        assert said("align", reverser, *files(text), "--reverse", path) == (
            f"jumok: --reverse {path} is the model itself, of the same direction; name one that was trained on the "
            "same text with source and target exchanged, or leave --reverse out\n"
        )


def recipe_of(text, **changes):
    recipe = RECIPE.replace('corpus = "reverse"\nsize = 2000', f'source = "{text}/one"\ntarget = "{text}/two"')
    recipe = recipe.replace("longest = 6\n", "").replace('kind = "char"', 'kind = "char"\nsize = 20')
    path = write(text / "guided.toml", recipe)
    settings = {"data.valid_source": text / "one", "data.valid_target": text / "two", **changes}
    return ["train", path, "--out", text / "run", "--device=cpu", *(f"--set={key}={settings[key]}" for key in settings)]


def test_guidance_and_links_belong_together(text):
    assert "needs word links" in said(*recipe_of(text, **{"training.guided_alignment": 0.1}))
    assert "makes no use of it" in said(*recipe_of(text, **{"data.alignments": text / "links"}))
    assert "wanted at least 0" in said(*recipe_of(text, **{"training.guided_alignment": -1}))


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0-1 1-0\n", "pair 2 has no line"),
        ("0-1\n0-0\n0-0\n", "line 3 has no pair"),
        ("0-1\n0:0\n", "links, line 2: '0:0' is not a link"),
    ],
)
def test_links_that_do_not_fit_the_training_text(text, links, message):
    write(text / "links", links)
    changes = {"data.alignments": text / "links", "training.guided_alignment": 0.1}
    assert message in said(*recipe_of(text, **changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training.guided_layer": 3}, "training.guided_layer = 3, but the decoder's layers are 0 to 0"),
        ({"training.guided_layer": -2}, "training.guided_layer = -2, but the decoder's layers are 0 to 0"),
        ({"training.guided_head": 2}, "training.guided_head = 2"),
        ({"decoder.attention": "none"}, "needs a decoder with attention"),
        ({"training.guided_context": "full"}, 'needs decoder.kind = "transformer"'),
        ({"training.guided_context": "whole"}, "training.guided_context = 'whole' is not one of 'causal', 'full'"),
    ],
)
def test_guidance_of_what_is_not_there(text, change, message):
    write(text / "links", "0-1 1-0\n0-0\n")
    changes = {"data.alignments": text / "links", "training.guided_alignment": 0.1, **change}
    assert message in said(*recipe_of(text, **changes))


def test_links_past_the_end_of_their_pair_are_left_out_and_counted_in_one_line(text):
    write(text / "links", "0-1 1-0 0-99\n7-0 0-0\n")
    changes = {"data.alignments": text / "links", "training.guided_alignment": 0.1, "training.steps": 1}
    said = [line for line in well(*recipe_of(text, **changes)).err.splitlines() if line.startswith(f"{text}/links")]
    (message,) = said
    assert "2 links" in message
    assert "line 1: 0-99" in message


def test_a_link_past_the_end_of_its_pair_does_not_become_one_of_the_next_it_is_joined_with(text):
    write(text / "links", "0-2\n0-0\n")
    valid = {"valid_source": f"{text}/one", "valid_target": f"{text}/two"}
    files = {"source": f"{text}/one", "target": f"{text}/two", "alignments": f"{text}/links", **valid}
    assert [links for _, links in DataConfig(**files, joined=(2,)).training_with_links()] == [[(2, 2)]]
