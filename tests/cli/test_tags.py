"""--tag, --features and --only on the command line, and a tag in requests to the server."""

import json
from pathlib import Path

import pytest

from jumok.cli.arguments import parse_columns, parse_features, parse_only
from jumok.errors import ArgumentError
from support.commands import jumok, well


def test_columns_features_and_rows_are_read_from_the_command_line() -> None:
    assert parse_columns("3+1,2") == ((3, 1), 2)
    assert parse_columns("en+x,ko") == ("en+x", "ko")
    assert parse_features("3, tags") == (3, "tags")
    assert parse_only("2=kor=x") == (2, "kor=x")
    with pytest.raises(ArgumentError, match="such as 2=kor"):
        parse_only("kor")


@pytest.mark.slow
@pytest.mark.parametrize("command", [("translate",), ("look", "Friday")])
def test_an_unknown_tag_is_one_line_that_names_the_known_ones(command: tuple[str, ...]) -> None:
    from jumok.model_folder import BUNDLED

    done = jumok(command[0], BUNDLED, *command[1:], "--tag", "medical", stdin="Friday\n")
    assert done.code == 1
    assert done.err.splitlines()[-1] == "jumok: the model has no tags"


@pytest.mark.slow
def test_a_model_is_trained_and_scored_from_a_table_of_features(tmp_path: Path) -> None:
    table = tmp_path / "verbs.tsv"
    rows = [
        f"{verb}\t{verb}{end}\tx\tV;{tag}\n" for verb in ("walk", "talk") for end, tag in (("ed", "PST"), ("s", "PRS"))
    ]
    table.write_text("".join(rows) + "geh\tgeht\ty\tV;PRS\n", encoding="utf-8")
    recipe = tmp_path / "verbs.toml"
    recipe.write_text(
        f'[data]\npairs = "{table}"\nvalid_pairs = "{table}"\n'
        'columns = [[4, 1], 2]\nfeatures = [4]\nonly = [3, "x"]\n[tokenizer]\nkind = "char"\n'
        '[filter]\nduplicates = false\n[training]\nsteps = 2\nwarmup = 1\nmetric = "ser"\n'
        '[encoder]\nkind = "rnn"\nwidth = 8\nembedding = 8\n[decoder]\nkind = "rnn"\nwidth = 8\nembedding = 8\n',
        encoding="utf-8",
    )
    well("train", recipe, "--out", tmp_path / "run", "--device", "cpu")
    options = ("--columns", "4+1,2", "--features", "4", "--only", "3=x", "--metrics", "ser,exact_match", "--json")
    scores = json.loads(well("evaluate", tmp_path / "run", "--source", table, *options).out)
    assert scores["sentences"] == 4
    ser, exact = (score["value"] for score in scores["scores"])
    assert ser + exact == 100
