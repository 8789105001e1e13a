"""What the command line says when something is wrong: one clear line, exit code 1, no traceback, nothing harmed."""

import errno
import json
import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from commands import BRIEFLY, RECIPE, jumok, well, write

MODEL_FILES = ["model.safetensors", "tokenizer.model", "recipe.toml", "checksums.json"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(reverser, tmp_path):
    """A copy of a trained model, to be damaged."""
    return shutil.copytree(reverser, tmp_path / "model")


def refused(*arguments, stdin=b""):
    """The one message of a command that must fail."""
    done = jumok(*arguments, stdin=stdin)
    assert done.code == 1, done
    *before, said = done.err.rstrip("\n").replace("\n       ", " ").split("\n")
    assert said.startswith("jumok: "), done.err
    assert not any(line.startswith("jumok: ") or "Traceback" in line for line in before)
    assert done.out == ""
    return said.removeprefix("jumok: ")


def train(recipe, *options):
    return refused("train", write_recipe(recipe), "--out", "run", "--device", "cpu", *options)


def write_recipe(text):
    with open("recipe.toml", "w", encoding="utf-8") as file:
        file.write(text)
    return "recipe.toml"


def two_files(source, target):
    for name, content in (("train.a", source), ("train.b", target)):
        with open(name, "wb") as file:
            file.write(content)
    return '[data]\nsource = "train.a"\ntarget = "train.b"\n[tokenizer]\nkind = "char"\n'


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# data


def test_files_of_different_lengths():
    said = train(two_files(b"a\nb\nc\n", b"x\ny\n"))
    assert said.startswith("train.a has 3 lines but train.b has 2, and line n of each must be the same sentence.")


def test_invalid_utf8():
    said = train(two_files(b"a\nb\xff\n", b"x\ny\n"))
    assert said.startswith("train.a, line 2: byte 2 of the line (0xff) is not UTF-8; convert the file first")


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_corpus(content):
    said = train(two_files(content, content))
    assert said in (
        "train.a holds no pairs; is it the file you meant?",
        "the training text is empty, so there is nothing to train a tokenizer on",
    )


def test_a_corpus_of_one_line_says_what_is_needed():
    for content in (b"a\n", b"a\na\na\n"):
        assert train(two_files(content, content)) == (
            "train.a leaves nothing to learn from: every hundredth pair, beginning with the first, is held out to "
            "validate on; give more than one sentence, or others to validate on (data.valid_source with "
            "data.valid_target, or data.valid_pairs)"
        )


def test_validation_text_of_nothing_but_empty_lines():
    recipe = two_files(b"a b\nb a\n", b"b a\na b\n")
    write(Path("empty"), "\n\n")
    said = train(recipe, "--set=data.valid_source=empty", "--set=data.valid_target=empty")
    assert said == "no pair is left to validate on: kept 0 of 2 pairs (dropped: 2 empty)"


@pytest.mark.parametrize(("half", "kind"), [("encoder", "transformer"), ("decoder", "transformer"), ("decoder", "rnn")])
def test_fewer_positions_than_tokens(half, kind):
    recipe = two_files(b"a b\nb a\n", b"b a\na b\n")
    setting = "positions=learned" if kind == "transformer" else "attention=location"
    said = train(recipe, f"--set={half}.kind={kind}", f"--set={half}.{setting}", f"--set={half}.longest=256")
    assert said == (
        f"{half}.longest = 256 positions are too few for filter.max_length = 256 tokens and their end; "
        f"set {half}.longest = 257 or filter.max_length = 255"
    )
    assert not os.path.exists("run")


def test_a_file_that_is_not_there():
    write_recipe("")
    said = train('[data]\nsource = "recipe.tmol"\ntarget = "x"\n')
    assert said == "there is no file recipe.tmol; did you mean recipe.toml?"


def test_a_vocabulary_larger_than_the_data_allows():
    text = two_files(b"a b\nb a\n" * 9, b"b a\na b\n" * 9).replace('kind = "char"', 'kind = "unigram"\nsize = 5000')
    assert train(text).startswith("tokenizer.size = 5000 is more than the training text allows; the most is ")


def test_text_to_translate_that_is_not_utf8(reverser):
    said = refused("translate", reverser, stdin=b"\xff\xfe1\x00\n")
    assert said.startswith("standard input, line 1: byte 1 of the line (0xff) is not UTF-8")


# recipes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[data]\ncorpus = 'reverse'\nsizes = 3", "recipe.toml: data.sizes is not a setting; did you mean size?"),
        ("[dta]\ncorpus = 'reverse'", "recipe.toml: there is no section [dta]; did you mean data?"),
        ("corpus = 'reverse'", "recipe.toml: corpus stands before the first section; put it below one"),
        ("data = 3", "recipe.toml: [data] must be a section of its own, but it is the value 3"),
        ("encoder = 'rnn'\n[data]\ncorpus = 'reverse'", "recipe.toml: [encoder] must be a section of its own"),
        ("[[data]]\ncorpus = 'reverse'", "recipe.toml: [data] must be a section of its own"),
        ("[data]\ncorpus = 'reversed'", "recipe.toml: data.corpus = 'reversed' must be one of 'cldr', 'dates'"),
        ("[data]\ncorpus = 3", "recipe.toml: data.corpus = 3 must be one of"),
        ("[data]\nsize = 3", "recipe.toml: give one of data.source (with data.target)"),
        ("", "recipe.toml: give one of data.source (with data.target)"),
        ("[data]\ncorpus = 'reverse'\nsize = 'x'", "recipe.toml: data.size = 'x' must be a whole number"),
        ("[data]\ncorpus = 'reverse'\nsize = 2.5", "recipe.toml: data.size = 2.5 must be a whole number"),
        ("[data]\ncorpus = 'reverse'\nsize = true", "recipe.toml: data.size = True must be a whole number"),
        ("[data]\ncorpus = 'reverse'\nlocales = 'en'", "recipe.toml: data.locales = 'en' must be a list"),
        ("[data]\ncorpus = 'reverse'\nlocales = ['en']", "recipe.toml: data.locales = ['en'] must have 2 entries"),
        ("[data]\npairs = 'a.tsv'\ncolumns = [1, 'b']", "recipe.toml: data.columns = [1, 'b'] must be"),
        ("[data]\ncorpus = 'reverse'\n[training]\nclip = 'x'", "recipe.toml: training.clip = 'x' must be a number"),
        ("[data]\ncorpus = 'reverse'\n[training]\nsteps = 0", "recipe.toml: training.steps = 0; wanted at least 1"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nkind = 'rmn'", "encoder.kind = 'rmn' is not one of transformer, rnn"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nkind = ['rnn']", "recipe.toml: encoder.kind = ['rnn'] is not one of"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nheads = 3", "encoder.heads = 3"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nkind = 'rnn'\nheads = 3", "encoder.heads is not a setting"),
        ("[data\n", "recipe.toml is not TOML: "),
        ("[data]\nsource = '$NOT_SET/a'\ntarget = 'b'", "needs the environment variable NOT_SET, which is not set"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_work_is_said_with_its_place(text, said):
    assert said in train(text)


def test_a_recipe_that_is_not_there_or_not_text(tmp_path):
    assert refused("train", "none.toml") == "there is no recipe none.toml"
    assert refused("train", tmp_path) == f"{tmp_path} is a folder; name a recipe, a .toml file"
    (tmp_path / "wide.toml").write_text("[data]", encoding="utf-16")
    assert refused("train", "wide.toml").startswith("wide.toml is not UTF-8 text")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("training.steps", "--set 'training.steps' must look like training.steps=2000"),
        ("steps=3", "--set 'steps=3' must look like training.steps=2000"),
        ("=3", "--set '=3' must look like training.steps=2000"),
        ("training.step=3", "--set training.step=3: training.step is not a setting; did you mean steps?"),
        ("trainings.steps=3", "--set trainings.steps=3: there is no section [trainings]; did you mean training?"),
        ("training.steps=many", "--set training.steps=many: training.steps = 'many' must be a whole number"),
        ("training.steps.more=3", "--set training.steps.more=3: training.steps.more is not a setting"),
        ("training.steps=3\nx = 4", "training.steps = '3\\nx = 4' must be a whole number"),
        ("encoder.kind=rmn", "--set encoder.kind=rmn: encoder.kind = 'rmn' is not one of"),
        ("decoder.half_window=0", "--set decoder.half_window=0: decoder.half_window = 0; wanted at least 1"),
    ],
)
def test_a_wrong_change_from_outside(change, said):
    assert said in train(RECIPE, "--set", change)


def test_a_change_is_blamed_only_for_what_it_changed():
    broken = RECIPE.replace("warmup = 20", "warmups = 20")
    said = train(broken, "--set", "training.steps=4")
    assert said == "recipe.toml: training.warmups is not a setting; did you mean warmup?"
    said = train(RECIPE, "--set", "training.steps=0", "--set", "training.keep=2")
    assert said == "--set training.steps=0: training.steps = 0; wanted at least 1"


def test_a_change_of_a_section_that_is_no_section():
    assert "[data] must be a section of its own" in train("data = 3", "--set", "data.size=3")


# options


def test_an_unknown_device(reverser):
    assert refused("translate", reverser, "--device", "gpu") == "device = 'gpu' must be auto, cpu or cuda"
    assert train(RECIPE, "--device", "tpu:x") == "device = 'tpu:x' must be auto, cpu or cuda"
    assert refused("translate", reverser, "--device", "meta") == "device = 'meta' must be auto, cpu or cuda"
    assert not os.path.exists("run")


def test_a_gpu_that_is_not_there(reverser, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    said = refused("translate", reverser, "--device", "cuda:7")
    assert said == "device = 'cuda:7' was asked for, but there are only: cuda:0"


def test_an_unknown_score():
    write_recipe("a\n")
    said = refused("evaluate", "--output", "recipe.toml", "--reference", "recipe.toml", "--metrics", "bleu,blue")
    assert said == "'blue' is not a score; there are bleu, chrf, ter, exact_match, wer"


def test_more_translations_than_the_beam_is_wide(reverser):
    said = refused("translate", reverser, "--beam", "2", "--n-best", "3", stdin="1\n")
    assert said == "n_best = 3, but the beam is 2 wide; n_best must lie between 1 and it"


def test_settings_of_the_search_are_looked_at_before_anything_is_read(reverser):
    assert refused("translate", reverser, "--beam", "2", "--n-best", "3").startswith("n_best = 3")


def test_a_file_to_translate_that_is_not_there(reverser):
    assert refused("translate", reverser, "--source", "none.txt") == "there is no file none.txt"


def test_maps_of_a_model_without_attention(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE)
    well("train", recipe, "--out", "fixed", *BRIEFLY, "--set=decoder.attention=none")
    said = refused("translate", "fixed", "--attention", "maps", stdin="12\n")
    assert said == "this model has no attention to show: its decoder sees only a fixed context"


# model folders


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "truncated", "tampered"])
@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("command", ["translate", "inspect"])
def test_a_model_with_a_damaged_file(model, command, name, how):
    damage(model / name, how)
    said = refused(command, model)
    assert name in said
    assert "missing" in said or how != "missing"


def test_a_model_folder_that_is_none(tmp_path):
    assert refused("inspect", "none") == "there is no model folder none; `jumok train` writes one"
    (tmp_path / "empty").mkdir()
    assert refused("inspect", "empty") == "empty is not a complete model: recipe.toml is missing"
    assert refused("translate", write_recipe("")).startswith("there is no model folder recipe.toml")


@pytest.mark.parametrize("found", ["[]", "3", '{"model.safetensors": 3}', "{}", '{"../model": "00"}', "\udcff"])
def test_checksums_that_are_none(model, found):
    (model / "checksums.json").write_bytes(found.encode("utf-8", "surrogateescape"))
    said = refused("inspect", model)
    assert said.startswith(f"{model / 'checksums.json'} is damaged: ")
    assert said.endswith("; copy the folder again")


def test_a_checksum_that_is_changed_is_not_blamed_on_the_weights_alone(model):
    text = (model / "checksums.json").read_text()
    digest = json.loads(text)["model.safetensors"]
    (model / "checksums.json").write_text(text.replace(digest, digest[::-1]))
    assert "model.safetensors is not the file that was saved, or checksums.json is not" in refused("inspect", model)
    (model / "checksums.json").write_text(text.replace(digest, digest[:-1] + "~"))
    said = refused("inspect", model)
    assert said.endswith("is damaged: what it says of 'model.safetensors' is no checksum; copy the folder again")


def test_a_model_whose_weights_have_another_shape(model):
    recipe = (model / "recipe.toml").read_text(encoding="utf-8")
    write(model / "recipe.toml", recipe.replace("width = 64", "width = 32"))
    said = refused("translate", model)
    assert "recipe.toml is not the file that was saved, or checksums.json is not" in said
    reseal(model)
    said = refused("translate", model)
    assert f"{model / 'model.safetensors'} " in said
    assert "it belongs to another model; use the recipe that was saved beside it" in said


def reseal(folder):
    """Write the checksums anew, as somebody would who changes a model on purpose."""
    digests = json.loads((folder / "checksums.json").read_text())
    digests = {name: sha256((folder / name).read_bytes()).hexdigest() for name in digests}
    (folder / "checksums.json").write_text(json.dumps(digests))


def test_a_sealed_tokenizer_that_is_none(model):
    damage(model / "tokenizer.model", "truncated")
    reseal(model)
    assert "tokenizer.model" in refused("translate", model)


def test_sealed_weights_that_are_none(model):
    damage(model / "model.safetensors", "truncated")
    reseal(model)
    assert f"{model / 'model.safetensors'} is not a whole safetensors file" in refused("translate", model)


def test_a_model_that_lacks_its_tokenizer_in_the_checksums(model):
    digests = json.loads((model / "checksums.json").read_text())
    del digests["tokenizer.model"]
    (model / "checksums.json").write_text(json.dumps(digests))
    damage(model / "tokenizer.model", "tampered")
    assert "tokenizer.model" in refused("translate", model)


@pytest.mark.parametrize("name", MODEL_FILES)
def test_an_average_with_a_tampered_model(model, reverser, name):
    damage(model / name, "tampered")
    assert name in refused("average", reverser, model, "--out", "mean")
    assert not os.path.exists("mean")


def test_an_average_of_models_with_other_words(reverser):
    write(
        Path("letters.tsv"), "".join(f"{one}{other}\t{other}{one}\n" for one in "abcdefghij" for other in "abcdefghij")
    )
    data = "--set=data.corpus=", "--set=data.pairs=letters.tsv"
    well("train", write_recipe(RECIPE), "--out", "letters", "--device", "cpu", *BRIEFLY, *data)
    assert refused("average", reverser, "letters", "--out", "mean") == (
        f"letters has another vocabulary than {reverser}, so their weights have no mean"
    )


def test_an_average_of_no_model_folder(model):
    said = refused("average", model / "model.safetensors", "--out", "mean")
    assert said.endswith("is a model folder; at least one must be")
    assert "none of " in said
    assert refused("average", model, "none", "--out", "mean").startswith("cannot read none")
    assert not os.path.exists("mean")


# runs


def test_a_run_resumed_with_another_shape_harms_nothing(model):
    before = contents(model)
    said = refused("train", write_recipe(RECIPE), "--out", model, "--resume", "--set=encoder.width=32")
    assert said == (
        "encoder.width was 64 and is now 32; a resumed run goes on as it was: put it back, or train into another "
        f"folder than {model}"
    )
    assert contents(model) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("data.size=1000", "data.size was 2000 and is now 1000"),
        ("tokenizer.lowercase=true", "tokenizer.lowercase was false and is now true"),
        ("filter.max_length=7", "filter.max_length was 8 and is now 7"),
        ("batch.tokens=400", "batch.tokens was 500 and is now 400"),
        ("decoder.attention=dot", 'decoder.attention was "additive" and is now "dot"'),
        ("encoder.kind=rnn", ""),
    ],
)
def test_a_run_resumed_with_another_setting_says_which_and_harms_nothing(model, change, said):
    before = contents(model)
    command = ["train", write_recipe(RECIPE), "--out", model, "--resume", "--device", "cpu", "--set", change]
    if not said:  # nothing has changed
        assert well(*command).code == 0
        return
    assert refused(*command).startswith(f"{said}; a resumed run goes on as it was")
    assert contents(model) == before


def test_a_run_resumed_with_changed_text_harms_nothing_and_newer_copies_can_be_used():
    lines = b"".join(b"%d %d\n" % (number, number + 1) for number in range(60))
    small = "".join(f'[{half}]\nkind = "rnn"\nwidth = 8\nembedding = 8\n' for half in ("encoder", "decoder"))
    text = two_files(lines, lines) + small + "[training]\nsteps = 2\nwarmup = 1\nmetric = 'loss'\n"
    command = ["train", write_recipe(text), "--out", "run", "--device", "cpu"]
    well(*command)
    before = contents(Path("run"))
    two_files(lines + b"100 101\n", lines + b"100 101\n")
    resumed = [*command, "--resume", "--set=training.steps=3"]
    said = refused(*resumed)
    assert said.startswith("run/data was made from other files than the recipe names, or from an earlier state of them")
    assert contents(Path("run")) == before
    two_files(lines, lines)  # the same text again, but newer
    assert refused(*resumed) == said
    shutil.rmtree("run/data")
    assert "going on after step 2" in well(*resumed).err


def test_a_run_that_failed_before_its_first_checkpoint_is_not_in_the_way(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("jumok.training.checkpoint._write", full)
        assert "No space left on device" in train(RECIPE, *BRIEFLY)
    assert os.path.isdir("run/checkpoints")
    assert well("train", "recipe.toml", "--out", "run", "--device", "cpu", *BRIEFLY).code == 0
    assert "already holds a training run (checkpoints, metrics.jsonl, model.safetensors)" in train(RECIPE)


def test_a_damaged_checkpoint_does_not_stop_a_resume(model):
    damage(model / "checkpoints/step-00000120/model.safetensors", "truncated")
    options = ["--set=training.steps=62", "--set=training.validate_every=60", "--device", "cpu"]
    done = well("train", write_recipe(RECIPE), "--out", model, "--resume", *options)
    assert "going on from step-00000060 instead" in done.err


def test_a_folder_that_holds_a_run_is_not_trained_into(model):
    before = contents(model)
    said = refused("train", write_recipe(RECIPE), "--out", model)
    assert said.startswith(f"{model} already holds a training run")
    assert contents(model) == before


def test_a_run_of_another_recipe_in_the_folder_keeps_its_data(model):
    before = contents(model)
    refused("train", write_recipe(RECIPE), "--out", model, "--set=data.size=1000")
    assert contents(model) == before


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_while_a_checkpoint_is_saved(model, monkeypatch):
    before = contents(model / "checkpoints")
    monkeypatch.setattr("jumok.training.checkpoint._write", full)
    said = refused("train", write_recipe(RECIPE), "--out", model, "--resume", "--set=training.steps=122")
    assert "No space left on device; free some space on the disk, then go on with the same command and --resume" in said
    assert contents(model / "checkpoints") == before


def test_a_full_disk_while_data_are_prepared(monkeypatch):
    monkeypatch.setattr("jumok.data.files.os.fsync", full)
    said = train(RECIPE)
    assert said.startswith("cannot write run/data/")
    assert "No space left on device" in said


def test_a_full_disk_while_a_model_is_written(model, monkeypatch):
    before = contents(model)
    monkeypatch.setattr("jumok.data.files.os.fsync", full)
    said = refused("average", model, model, "--out", model.parent / "mean")
    assert "No space left on device" in said
    assert contents(model) == before


def read_only(*arguments, **options):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_folder_that_may_not_be_written_to(monkeypatch):
    monkeypatch.setattr("pathlib.Path.mkdir", read_only)
    said = train(RECIPE)
    assert "Permission denied" in said
    assert "run" in said


def test_a_place_that_is_a_file(tmp_path):
    write(tmp_path / "file", "")
    for resume in ([], ["--resume"]):
        assert train_into("file/run", *resume) == (
            "file is a file, not a folder, so file/run cannot be one in it; name another folder to write to"
        )
        assert train_into("file", *resume) == "file is a file, not a folder; name another folder to write to"


def train_into(out, *options):
    """What is said, which must be all: nothing was read or learnt before."""
    done = jumok("train", write_recipe(RECIPE), "--out", out, *options)
    assert (done.code, done.err.count("\n")) == (1, 1)
    return done.err.removeprefix("jumok: ").strip()


def test_a_mean_of_models_into_a_file(reverser, tmp_path):
    write(tmp_path / "file", "")
    assert refused("average", reverser, "--out", "file").startswith("file is a file, not a folder")


def test_outputs_that_cannot_be_kept(reverser, tmp_path):
    write(tmp_path / "text", "1\n")
    command = ["evaluate", reverser, "--source", "text", "--reference", "text", "--save", "text/out"]
    assert refused(*command).startswith("text is a file, not a folder")


def test_maps_that_cannot_be_written(reverser, tmp_path):
    write(tmp_path / "text", "1\n")
    said = refused("translate", reverser, "--source", "text", "--attention", "text")
    assert said == "text is a file, not a folder; name another folder to write to"
    assert refused("translate", reverser, "--attention", "text/maps").startswith("text is a file, not a folder, so")


def test_a_usage_error_is_two():
    assert jumok("train").code == 2
    assert jumok("trian").code == 2


def test_every_setting_that_differs_from_the_run_to_be_resumed_is_named(reverser, tmp_path):
    run = shutil.copytree(reverser, tmp_path / "run")
    recipe = write(tmp_path / "r.toml", RECIPE)
    said = refused("train", recipe, "--out", run, "--resume", "--set=encoder.width=32", "--set=training.warmup=3")
    assert "encoder.width was 64 and is now 32" in said
    assert "training.warmup was 20 and is now 3" in said


def test_a_recipe_with_a_byte_order_mark_is_a_recipe(tmp_path):
    recipe = write(tmp_path / "r.toml", "\ufeff" + RECIPE)
    assert well("train", recipe, "--out", tmp_path / "run", "--device=cpu", *BRIEFLY).code == 0


def test_an_empty_key_does_not_leave_a_server_open():
    assert refused("serve", "--api-key", "") == (
        "the API key is empty; give one, or leave --api-key and JUMOK_API_KEY out"
    )


def test_a_text_and_a_model_the_wrong_way_round_are_noticed(model):
    assert (
        refused("look", "a text", model) == f"'a text' is no model folder, but {str(model)!r} is; the model comes first"
    )


def test_no_text_is_not_taken_for_the_folder_one_is_in():
    assert refused("look", "") == "there is no attention map of an empty text"
