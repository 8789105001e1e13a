"""The Python API: jumok.train, jumok.load, what a Run holds, jumok.evaluate and jumok.align."""

import pytest

import jumok
from jumok.errors import ArgumentError, ConfigError, ModelError
from jumok.tasks import TRANSLATION
from jumok.training import Report
from support.runs import Remarks

RECIPE = """
[data]
corpus = "reverse"
size = 60
valid_size = 6
longest = 4
[tokenizer]
kind = "char"
[encoder]
kind = "rnn"
width = 8
embedding = 6
[decoder]
kind = "rnn"
width = 8
embedding = 6
[training]
steps = 100
metric = "loss"
validate_every = 2
"""
GRAPH = {
    "graph": {"built_in": "planted", "size": 60},
    "network": {"width": 4, "heads": 2},
    "training": {"steps": 2, "validate_every": 1},
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    return "tiny.toml"


@pytest.mark.slow
def test_a_recipe_is_trained_with_overrides_and_loaded_again(recipe):
    run = jumok.train(recipe, overrides={"training.steps": 4}, device="cpu", report=Report())
    assert str(run.folder) == "runs/tiny"
    assert (run.stopped, run.state.step) == ("steps", 4)
    assert run.metrics.keys() >= {"loss", "perplexity"}
    assert isinstance(run.model, jumok.Translator)
    loaded = jumok.load("runs/tiny", device="cpu")
    assert loaded.translate(["12"])[0].text == run.model.translate(["12"])[0].text


@pytest.mark.slow
def test_a_run_is_resumed(recipe):
    settings = {"out": "here", "device": "cpu", "report": Report()}
    jumok.train(recipe, overrides=["training.steps=2"], **settings)
    assert jumok.train(recipe, overrides={"training.steps": 4}, resume=True, **settings).state.step == 4


def test_tables_are_a_recipe_and_their_sections_tell_the_task(tmp_path):
    run = jumok.train(GRAPH, out=tmp_path / "graph", device="cpu", report=Report())
    assert isinstance(run.model, jumok.NodeClassifier)
    assert run.metrics.keys() >= {"loss", "accuracy", "test accuracy"}
    loaded = jumok.load(tmp_path / "graph", device="cpu")
    assert loaded.accuracy().value == run.metrics["test accuracy"]
    assert loaded.attention(0).weights.sum() > 0
    with pytest.raises(ModelError, match="does not hold a model that translates text"):
        TRANSLATION.load(tmp_path / "graph", device="cpu")


def test_without_a_folder_the_bundled_model_is_loaded():
    assert isinstance(jumok.load(device="cpu"), jumok.Translator)


@pytest.mark.parametrize("overrides", [{"training.step": 4}, ["training.step=4"], {"steps": 4}])
def test_a_wrong_override_is_named(recipe, overrides):
    with pytest.raises(ConfigError) as raised:
        jumok.train(recipe, overrides=overrides, report=Report())
    assert "steps" in str(raised.value)
    assert ("--set" if isinstance(overrides, list) else "overrides[") in str(raised.value)


def test_a_recipe_without_a_file_needs_a_folder():
    with pytest.raises(ArgumentError, match="out is missing"):
        jumok.train(GRAPH, report=Report())


DIGITS, BACKWARDS = ["12", "345", "6789"], ["21", "543", "9876"]


@pytest.fixture
def digits(tmp_path):
    for name, lines in (("digits", DIGITS), ("backwards", BACKWARDS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {"source": tmp_path / "digits", "reference": tmp_path / "backwards"}


def test_a_model_is_evaluated(reverser, digits, tmp_path):
    outputs = [translation.text for translation in jumok.load(reverser, device="cpu").translate(DIGITS)]
    wanted = 100 * sum(map(str.__eq__, outputs, BACKWARDS)) / len(DIGITS)
    options = {"metrics": ["exact_match"], "save": tmp_path / "outputs", "device": "cpu"}
    result = jumok.evaluate(reverser, **digits, **options)
    assert result.values["sentences"] == 3
    assert result.values["scores"][0]["value"] == pytest.approx(wanted)
    assert (tmp_path / "outputs").read_text(encoding="utf-8").splitlines() == outputs
    result.write_report(tmp_path / "report.html")
    assert "exact match" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_outputs_of_any_program_are_evaluated_and_compared_by_name(digits):
    result = jumok.evaluate(
        output=digits["reference"],
        reference=digits["reference"],
        metrics=["chrf"],
        compare={"copied": digits["source"]},
    )
    assert result.values["scores"][0]["value"] == 100
    assert [system["name"] for system in result.values["compared"]] == ["copied"]


def test_what_to_evaluate_is_a_model_or_outputs(reverser, digits):
    for model, output in ((None, None), (reverser, digits["source"])):
        with pytest.raises(ArgumentError, match="either `model=`"):
            jumok.evaluate(model, output=output, **digits)


def test_outputs_never_overwrite_the_test_data(reverser, digits):
    with pytest.raises(ArgumentError, match="would be overwritten"):
        jumok.evaluate(reverser, **digits, save=digits["source"])


def test_pairs_are_aligned_by_a_model(reverser):
    first, empty = jumok.align([("12345", "54321"), ("", "")], reverser, device="cpu")
    assert (first.source, first.target, first.of_tokens) == (list("12345"), list("54321"), True)
    assert sum(source == 4 - target for source, target in first.links) >= 4
    assert empty.links == set()
    (words,) = jumok.align([("12345", "54321")], reverser, tokens=False, device="cpu")
    assert words == (["12345"], ["54321"], {(0, 0)}, False)


def test_pairs_are_aligned_without_a_model():
    alignments = list(jumok.align([("old house", "house old"), ("old tree", "tree old")] * 20))
    assert alignments[0] == (["old", "house"], ["house", "old"], {(0, 1), (1, 0)}, False)


def test_a_wrong_option_of_evaluation_is_refused(reverser):
    with pytest.raises(ArgumentError, match="referense is not an option of evaluate; did you mean reference"):
        jumok.evaluate(reverser, source="digits.txt", referense="digits.txt")
    with pytest.raises(ArgumentError, match="source must be the name of a file, not a list"):
        jumok.evaluate(reverser, source=["1 2"], reference="digits.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either `model=` to test or `output=`"),
        ({"output": "out.txt", "task": jumok.tasks.TRANSLATION}, "`task=` applies to a single model"),
        ({"output": "out.txt", "report": "notes.txt"}, "`report=notes.txt` must end in .html"),
        ({"output": "out.txt", "kind": "decoder"}, "`kind=decoder` applies only to the maps of a report"),
    ],
)
def test_errors_in_python_name_its_arguments_and_no_options(options, message):
    with pytest.raises(ArgumentError) as raised:
        jumok.evaluate(**options)
    assert message in str(raised.value)
    assert "--" not in str(raised.value)


def test_an_unknown_option_of_alignment_names_the_nearest():
    with pytest.raises(ArgumentError, match=r"symetrise is not an option of align.*symmetrise"):
        jumok.align([("1", "1")], symetrise="product")


def test_a_wrong_option_of_alignment_is_refused_before_the_pairs_are_read():
    def pairs():
        raise AssertionError
        yield

    with pytest.raises(ArgumentError, match="`links=` needs a model"):
        jumok.align(pairs(), links="mutual")
    with pytest.raises(ArgumentError, match="heads is not an option of align; did you mean head"):
        jumok.align(pairs(), "runs/x", heads=2)


@pytest.mark.slow
def test_ctrl_c_before_and_after_the_first_checkpoint_says_what_is_kept_and_how_to_go_on(recipe):
    def press():
        raise KeyboardInterrupt

    def broken_off(step):
        report = Remarks({step: press})
        with pytest.raises(KeyboardInterrupt):
            jumok.train(recipe, overrides={"training.steps": 4}, device="cpu", report=report)
        return report.said[-1]

    said = "no step of training is saved yet; the same command starts again and uses the data in runs/tiny/data"
    assert [broken_off(1), broken_off(1)] == [said, said]  # so it does
    assert broken_off(3) == (
        "runs/tiny/checkpoints/step-00000002 is kept; the same command with --resume (in Python resume=True) continues "
        "from there"
    )
    run = jumok.train(recipe, overrides={"training.steps": 4}, device="cpu", report=Report(), resume=True)
    assert (run.stopped, run.state.step) == ("steps", 4)
