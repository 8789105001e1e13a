"""What `jumok demo` may replace: the models of an earlier demo, when its own are done, and nothing else."""

import tomllib

import pytest

from jumok.errors import ArgumentError, CheckpointError
from jumok.tasks import demo, make_recipe
from jumok.tasks.demo import MARK, check_folders
from support.commands import RECIPE, jumok, well, write
from support.refusals import contents
from support.runs import Remarks, interrupt


def tiny(seed=1):
    tables = tomllib.loads(RECIPE)
    tables["training"] |= {"steps": 4, "warmup": 1, "validate_every": 100, "seed": seed}
    tables["data"] |= {"size": 300, "valid_size": 4}
    return make_recipe(tables, origin="the test")


def train(folder, report=None, **settings):
    """What is said while a demo trains a model into the folder."""
    said = report or Remarks({})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "report_to_stderr", lambda: said)
        demo.train_demo_model(tiny(**settings), folder, said.say)
    return said.said


@pytest.mark.parametrize("name", ["fixed", "attention"])
def test_what_no_demo_made_is_kept_and_nothing_is_begun(tmp_path, name):
    (tmp_path / name).mkdir()
    write(tmp_path / name / "notes.txt", "mine")
    done = jumok("demo", "--out", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"jumok: {tmp_path / name} holds files that no demo made (notes.txt), and the demo replaces it; "
        "choose another folder with --out, or move it away\n"
    )
    assert contents(tmp_path) == {tmp_path / name / "notes.txt": b"mine"}


def test_a_model_that_was_trained_otherwise_is_kept(tmp_path, reverser):
    (tmp_path / "fixed").mkdir()
    for file in reverser.iterdir():
        if file.is_file():
            (tmp_path / "fixed" / file.name).write_bytes(file.read_bytes())
    before = contents(tmp_path)
    with pytest.raises(ArgumentError, match="holds files that no demo made"):
        check_folders(tmp_path)
    assert contents(tmp_path) == before


def test_a_file_or_a_link_in_the_place_of_a_model_is_refused(tmp_path):
    write(tmp_path / "attention", "mine")
    with pytest.raises(ArgumentError, match="attention is a file, but the demo writes a model there"):
        check_folders(tmp_path)
    (tmp_path / "attention").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "attention").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match="attention is a link"):
        check_folders(tmp_path)


@pytest.mark.slow
def test_a_demo_replaces_the_models_of_the_demo_before_but_for_files_that_were_added(tmp_path):
    folder = tmp_path / "fixed"
    folder.mkdir()  # an empty folder is nobody's
    said = train(folder)
    assert "step 4: training.steps = 4 reached" in said  # and no word of --resume, which a demo has not
    assert (folder / MARK).exists()
    assert len(well("translate", folder, stdin="12\n").out.splitlines()) == 1
    first = contents(folder)
    check_folders(tmp_path)
    train(folder, seed=2)
    assert first[folder / "model.safetensors"] != contents(folder)[folder / "model.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["fixed"]
    write(folder / "notes.txt", "mine")
    with pytest.raises(ArgumentError, match=r"holds files that no demo made \(notes.txt\)"):
        check_folders(tmp_path)
    with pytest.raises(ArgumentError, match="files that no demo made"):  # even if it came while the new one was trained
        train(folder, seed=3)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_demo_that_is_stopped_leaves_the_models_before_it_and_says_what_is_true(tmp_path):
    folder = tmp_path / "attention"
    train(folder)
    before, report = contents(tmp_path), Remarks({2: interrupt})
    with pytest.raises(KeyboardInterrupt):
        train(folder, report, seed=2)
    assert contents(tmp_path) == before
    assert report.said[-2:] == [
        "stopped after step 2",
        f"the demo was stopped: {folder} is unchanged, and the next demo starts from the beginning",
    ]
    assert "--resume" not in "".join(report.said)


def test_what_a_killed_demo_left_is_replaced_but_not_under_one_that_still_trains(tmp_path):
    left = tmp_path / ".fixed.unfinished"
    (left / "checkpoints").mkdir(parents=True)
    write(left / MARK, "")
    write(left / ".recipe.toml.123.unfinished", "half")

    second = []

    def try_another():
        with pytest.raises(CheckpointError, match="another process is training into"):
            check_folders(tmp_path)
        second.append("refused")

    train(tmp_path / "fixed", Remarks({2: try_another}))
    assert second == ["refused"]
    assert [path.name for path in tmp_path.iterdir()] == ["fixed"]


def test_a_picture_that_cannot_be_written_is_said_before_training(tmp_path):
    (tmp_path / "attention.svg").mkdir()
    done = jumok("demo", "--out", tmp_path)
    assert done.code == 1
    assert "attention.svg is a folder" in done.err
