"""Two directions become one alignment, as in fast_align's atools, whose answers symmetrised.tsv holds.

atools -i forward -j backward -c grow-diag-final-and
"""

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.analysis.alignment.aligner import Method, symmetrise
from jumok.data.word_links import parse_word_links

HEADER, *LINES = (Path(__file__).parent / "symmetrised.tsv").read_text().splitlines()
LINKS = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)))


@pytest.mark.parametrize("method", get_args(Method))
def test_the_result_is_that_of_atools(method):
    column = HEADER.split("\t").index(method)
    for line in LINES:
        cells = [parse_word_links(cell, "") for cell in line.split("\t")]
        assert symmetrise(cells[0], cells[1], method) == set(cells[column]), line


@given(LINKS, LINKS)
def test_grown_alignments_lie_between_intersection_and_union(forward, backward):
    grown = symmetrise(forward, backward, "grow-diag")
    assert forward & backward <= grown <= forward | backward
    assert grown <= symmetrise(forward, backward, "grow-diag-final-and")
    final = symmetrise(forward, backward, "grow-diag-final")
    assert {source for source, _ in final} == {source for source, _ in forward | backward}
    assert {target for _, target in final} == {target for _, target in forward | backward}


@given(LINKS)
def test_what_both_directions_say_is_the_result_of_every_method(links):
    assert all(symmetrise(links, links, method) == links for method in get_args(Method))
