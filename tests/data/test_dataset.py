import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok.data import Dataset, dataset, write_dataset
from jumok.data.dataset import open_dataset
from jumok.data.fingerprint import fingerprint_of

ROWS = st.lists(st.tuples(*[st.lists(st.integers(0, 299), max_size=9)] * 2))


@given(rows=ROWS, size=st.sampled_from([300, 70_000]))
@settings(max_examples=30)
def test_rows_come_back_as_written(tmp_path_factory, rows, size):
    path = tmp_path_factory.mktemp("data") / "a.store"
    written = write_dataset(path, iter(rows), size=size)
    assert len(written) == len(rows)
    assert [tuple(side.tolist() for side in written[row]) for row in range(len(rows))] == rows
    by_length = written.sorted_rows(np.arange(len(rows))).tolist()
    assert by_length == sorted(range(len(rows)), key=lambda row: [len(side) for side in rows[row]])
    assert written.length_counts.counts.sum() == len(rows)
    written.check()


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_take_two_bytes_where_they_fit(tmp_path, size, dtype):
    written = write_dataset(tmp_path / "a", [([0], [size - 1])], size=size)
    assert written[0][1].dtype == dtype
    assert written[0][1].tolist() == [size - 1]


def test_rows_are_written_as_they_come(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "CHUNK", 4)
    rows = [([row], [row, row]) for row in range(11)]
    written = write_dataset(tmp_path / "a", iter(rows), size=11)
    assert [written[row][1].tolist() for row in range(11)] == [[row, row] for row in range(11)]


def test_rows_are_sorted_by_length(tmp_path):
    rows = [([1] * source, [1] * target, [0] * 9) for source, target in [(2, 5), (70, 1), (2, 5), (1, 1), (71, 1)] * 4]
    written = write_dataset(tmp_path / "a", iter(rows), sides=3, size=2)
    assert written.length_counts.lengths.tolist() == [[1, 1], [2, 5], [71, 1]]  # 70 counts as 71
    assert written.length_counts.counts.tolist() == [4, 8, 8]
    assert [written.length_counts.reached(pairs) for pairs in (1, 8, 9, 99)] == [71, 71, 2, 1]
    found = written.sorted_rows(np.arange(20)).tolist()
    assert found == [*range(3, 20, 5), *(row for row in range(20) if row % 5 in (0, 2)), *_long(range(20))]


def _long(rows):
    return [row for row in rows if row % 5 in (1, 4)]


def test_opening_reads_no_rows(tmp_path, monkeypatch):
    write_dataset(tmp_path / "a", [([1] * 100_000, [2]) for _ in range(4)], size=3)
    checked = []
    monkeypatch.setattr(Dataset, "_check", lambda self, start, end: checked.append((start, end)))
    opened = Dataset(tmp_path / "a")
    assert checked == []
    opened[2]
    assert max(end - start for start, end in checked) < 4 * 100_000


def test_a_dataset_is_used_again_only_for_the_same_inputs(tmp_path):
    write_dataset(tmp_path / "a", [([1], [2])], size=3, fingerprint="this", note={"dropped": 5})
    assert open_dataset(tmp_path / "a", "that") is None
    assert open_dataset(tmp_path / "missing", "this") is None
    found = open_dataset(tmp_path / "a", "this")
    assert found is not None
    assert found.note == {"dropped": 5}


def test_fingerprints_differ_when_anything_does():
    parts = [("a", 1), ("a", 2), ("b", 1), ("a1",), ("a", "1"), ()]
    assert len({fingerprint_of(*part) for part in parts}) == len(parts)


def test_a_writer_that_fails_leaves_the_old_dataset_and_no_rubbish(tmp_path):
    write_dataset(tmp_path / "a", [([1], [2])], size=3)

    def rows():
        yield [1], [1]
        raise KeyError("the source broke off")

    with pytest.raises(KeyError):
        write_dataset(tmp_path / "a", rows(), size=3)
    assert Dataset(tmp_path / "a")[0][1].tolist() == [2]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
