"""The pages about recipes name every setting there is, as the dataclasses describe it."""

import re
from pathlib import Path

import pytest

from docs.make_settings import MARKED, PAGES, sections, table, with_settings
from jumok.models.build import DECODERS, ENCODERS
from jumok.training import TrainingConfig
from jumok.training.state import MAY_CHANGE


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_of_settings_are_those_of_the_dataclasses(path):
    page = path.read_text(encoding="utf-8")
    assert page == with_settings(page), "run: python -m docs.make_settings"


def test_every_section_has_its_table():
    shown = [found[1] for page in PAGES for found in MARKED.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(sections())


def test_every_setting_is_described():
    for cls in sections().values():
        assert "|  |\n" not in table(cls)


@pytest.mark.parametrize(("half", "kinds"), [("encoder", ENCODERS), ("decoder", DECODERS)])
def test_the_setting_kind_lists_every_kind_of_encoder_and_decoder(half, kinds):
    for kind in kinds:
        (row,) = [row for row in table(sections()[f"{half}, kind = {kind}"]).splitlines() if row.startswith("| `kind`")]
        assert set(re.findall(r'"(\w+)"', row.split("|")[4])) >= kinds.keys()


def test_the_page_names_every_setting_of_training_that_a_resumed_run_may_change_and_no_other():
    page = Path(__file__).parents[2].joinpath("docs/train.md").read_text(encoding="utf-8")
    said = re.search(r"only settings that do not affect training steps: (.*?) of `\[training\]`", page, re.DOTALL)
    names = re.findall(r"`(\w+)`", said[1])
    assert set(names) == MAY_CHANGE
    assert TrainingConfig.__dataclass_fields__.keys() >= MAY_CHANGE
