"""The pages about recipes name every setting there is, as the dataclasses describe it."""

import pytest

from docs.make_settings import MARKED, PAGES, sections, table, with_settings


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_of_settings_are_those_of_the_dataclasses(path):
    page = path.read_text(encoding="utf-8")
    assert page == with_settings(page), "run: python -m docs.make_settings"


def test_every_section_has_its_table():
    shown = [found[1] for page in PAGES for found in MARKED.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(sections())


def test_every_setting_is_described():
    for cls in sections().values():
        assert "|  |" not in table(cls)
