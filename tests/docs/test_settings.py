"""The page about recipes names every setting there is, as the dataclasses describe it."""

from docs.make_settings import MARKED, PAGE, sections, table, with_settings


def test_the_tables_of_settings_are_those_of_the_dataclasses():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_settings(page), "run: python -m docs.make_settings"


def test_every_section_has_its_table():
    assert {found[1] for found in MARKED.finditer(PAGE.read_text(encoding="utf-8"))} == sections().keys()


def test_every_setting_is_described():
    for cls in sections().values():
        assert "|  |" not in table(cls)
