"""Data files damaged in ways that libraries stumble over, and small ones that promise large ones: one line each."""

import struct
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from jumok import files
from jumok.analysis.alignment.error_rate import read_gold
from jumok.analysis.curves.training import read_curves
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.data import arrays
from jumok.data.pairs import read_pairs
from jumok.data.vectors import read_vectors, vector_width
from jumok.data.word_links import parse_word_links
from jumok.devices import free_memory
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.graphs.files import from_arrays, read_graph, read_node_tables
from jumok.graphs.graph import GraphConfig, find_node
from jumok.graphs.store import open_graph, write_graph
from jumok.images import files as images
from jumok.images.files import ImageFolder, decode_image
from jumok.tasks import TRANSLATION
from jumok.tasks.captioner import Captioner
from jumok.training.metrics import read_metrics
from support.commands import write
from support.graphs import CONFIG, raw_graph
from support.refusals import names, refuses

MANY_DIGITS = "9" * 4301
"""Python turns at most 4,300 digits into a number."""


def refusal(read, *given, kind=DataError):
    """The one line in which something is refused."""
    with refuses(kind) as raised:
        read(*given)
    assert len(str(raised.value)) < 1000
    return str(raised.value)


def saved(image, **options):
    file = BytesIO()
    image.save(file, **options)
    return file.getvalue()


def test_a_message_is_one_line_however_long_and_broken_what_it_repeats_is():
    said = str(DataError(f"the key {'x' * 50_000}\r\nis not known\u2028; there are source, target"))
    assert len(said) == 1000
    assert said.startswith("the key xxx")
    assert said.endswith("xxx is not known ; there are source, target")
    assert " … " in said
    assert str(ArgumentError("beam = 0")) == "beam = 0"


def test_a_word_number_of_4301_digits_is_no_link(tmp_path):
    names(refusal(parse_word_links, f"{MANY_DIGITS}-0", "links, line 1"), "links, line 1: '")
    for row in (f"0-{MANY_DIGITS}", f"{MANY_DIGITS} 1 1 S", f"1 1 {MANY_DIGITS}", "1 1 1\n99999999999 1 1\n"):
        names(refusal(read_gold, write(tmp_path / "gold", row)), "gold", "link")


@pytest.mark.parametrize("suffix", [".vec", ".bin"])
def test_vectors_whose_first_line_promises_what_no_file_holds_are_refused(tmp_path, suffix):
    for header in (f"{MANY_DIGITS} 3", f"2 {MANY_DIGITS}", "2 999999999999"):
        path = write(tmp_path / f"words{suffix}", f"{header}\nthe 1 2 3\n")
        for read in (read_vectors, vector_width):
            if suffix == ".vec" or len(header) < 200:  # a longer line of a binary file is cut before its end
                names(refusal(read, path), path, "line 1")


def test_a_node_by_a_number_that_is_none_is_refused(tmp_path):
    graph = write_graph(tmp_path, raw_graph(), CONFIG)
    for name in (MANY_DIGITS, "²"):
        names(refusal(find_node, graph, name, kind=ArgumentError), "0 to 39")


def outcomes(whole, read, step=1):
    """How often an input with one bit flipped was refused; another exception than ours would end the test."""
    said = []
    for place in range(0, len(whole), step):
        try:
            read(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        except JumokError as error:
            said.append(str(error))
    assert not any("\n" in line for line in said)
    return len(said)


def test_a_bit_flipped_anywhere_in_a_zip_of_images_never_shows_what_its_library_raises(tmp_path):
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", saved(Image.new("RGB", (8, 8), "red"), format="PNG"))

    def read(content):
        (tmp_path / "images.zip").write_bytes(content)
        folder = ImageFolder(tmp_path / "images.zip")
        for name in folder.names():
            folder.read(name)

    assert outcomes(file.getvalue(), read) > 100


@pytest.mark.parametrize("shape", ["(3, 3, 3)", "(2,)", "(10**9,)", "(-3,)", "(" * 90 + ")" * 90, "(3,", "(None,)"])
def test_an_npy_whose_header_does_not_fit_its_size_is_refused(tmp_path, shape):
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".ljust(200).encode() + b"\n"
    (tmp_path / "labels.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 24)
    names(refusal(read_graph, GraphConfig(path=str(tmp_path))), "labels.npy", "numpy.save")


SPARSE = {
    "labels": np.array([0, 1, 0]),
    "edges": np.array([[0, 1], [1, 2]]),
    "feat_data": np.ones(4),
    "feat_indices": np.array([0, 1, 1, 0]),
    "feat_indptr": np.array([0, 2, 3, 4]),
    "feat_shape": np.array([3, 2]),
}


@pytest.mark.parametrize(
    ("name", "array", "facts"),
    [
        ("feat_indices", np.array([0, -1, 1, 0]), "column -1 … 2 columns"),
        ("feat_indices", np.array([0, 2, 1, 0]), "column 2 … 2 columns"),
        ("feat_indices", np.array([0.0, 1, 1, 0]), "feat_indices"),
        ("feat_indptr", np.array([0, 3, 2, 4]), "begin with 0 … never fall"),
        ("feat_indptr", np.array([1, 2, 3, 4]), "begin with 0 … never fall"),
        ("feat_indptr", np.array(4), "feat_indptr is []"),
        ("feat_shape", np.array(3), "feat_shape is []"),
        ("feat_shape", np.array([-1, 2]), "feat_shape [-1, 2]"),
        ("labels", np.array(1), "labels is int64 []"),
        ("edges", np.array(1), "edges is int64 []"),
        ("train_mask", np.array(True), "train mask is bool []"),
        ("names", np.array([2**31, 0, 0], np.uint32).view("U1"), "names … text"),
        ("names", np.array(["\ud800", "b", "c"]), "names … text"),
        ("names", np.array("a"), "names is []"),
        ("graph", np.array(0), "graph is int64 []"),
        ("graph", np.array([0.0, 0.0, 1.0]), "graph is float64 [3]"),
        ("edge_features", np.array(1.0), "edge_features is float64 []"),
        ("edge_features", np.array([["a"], ["b"]]), "edge_features is <U1 [2, 1]"),
        ("edge_features", np.array([[0.0], [np.nan]]), "edge 1 … nan"),
    ],
)
def test_arrays_of_a_graph_with_odd_indices_or_axes_are_named(tmp_path, name, array, facts):
    with refuses(DataError, facts):
        write_graph(tmp_path, from_arrays({**SPARSE, name: array}, "g.npz"), CONFIG)


def test_edges_of_unsigned_numbers_are_read(tmp_path):
    graph = write_graph(tmp_path, from_arrays({**SPARSE, "edges": np.array([[0], [1]], np.uint64)}, "g.npz"), CONFIG)
    assert graph.sources.tolist() == [1, 0]


def test_arrays_of_prepared_graphs_that_do_not_fit_each_other_are_damage(tmp_path):
    write_graph(tmp_path, raw_graph(), CONFIG)
    np.save(tmp_path / "starts.npy", np.array(3))
    names(refusal(open_graph, tmp_path), "damaged")


@pytest.mark.parametrize("cell", ["1\r2", "x" * 140_000], ids=["a lone carriage return", "too long a cell"])
def test_what_no_table_holds_is_named_by_its_line(tmp_path, cell):
    nodes = tmp_path / "nodes.csv"
    nodes.write_bytes(f"label,a\n0,1\n1,{cell}\n".encode())
    names(refusal(read_node_tables, str(nodes), str(nodes)), f"{nodes}, line 3")


def test_a_tag_of_an_image_that_is_a_fraction_where_it_should_be_whole_is_damage():
    whole = saved(Image.new("RGB", (6, 6)), format="TIFF")
    assert whole[72] == 4  # the type of a tag: a whole number
    names(refusal(decode_image, whole[:72] + b"\x05" + whole[73:], "scan.tif"), "scan.tif", "damaged")


def test_an_image_is_turned_as_pillow_turns_it():
    noise = Image.fromarray(np.random.default_rng(0).integers(256, size=(5, 3, 3), dtype=np.uint8))
    for held in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = held
        content = saved(noise, format="PNG", exif=exif)
        with Image.open(BytesIO(content)) as image:
            wanted = np.array(ImageOps.exif_transpose(image))
        assert np.array_equal(decode_image(content, "photo"), wanted)


@pytest.mark.parametrize("depth", [900, 990, 100_000])
def test_lists_in_lists_without_end_are_refused_wherever_json_is_read(tmp_path, depth):
    deep = "[" * depth + "]" * depth
    path = write(tmp_path / "pairs.jsonl", f'{{"source": {deep}, "target": "a"}}\n')
    names(refusal(lambda: list(read_pairs(path))), "pairs.jsonl, line 1")
    for text in (
        deep,
        f'{{"source": ["a"], "target": ["b"], "weights": {deep}}}',
        f'{{"source": {deep}, "target": ["b"], "weights": [[[[1]]]]}}',
    ):
        names(refusal(AttentionMap.from_json, text), "JSON", "attention map")
    for read in (read_metrics, read_curves):
        names(refusal(read, write(tmp_path / "metrics.jsonl", f"{deep}\n{{}}\n")), "line 1")


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path = write(tmp_path / "pairs.tsv", "a\tb\n" + "a" * 5000)
    names(refusal(lambda: list(read_pairs(path))), path, "line 2", "1,000 bytes")


def test_what_are_no_texts_is_said_of_every_call(reverser):
    translator = TRANSLATION.load(reverser, device="cpu")
    for texts in (5, None, 2.5, "12", [5], ["a", None]):
        for call in (translator.translate, lambda texts: list(translator.stream(texts))):
            names(refusal(call, texts, kind=ArgumentError), "texts")
    names(refusal(translator.attention, "1", 5, kind=ArgumentError), "texts[1]")
    names(refusal(lambda: list(translator.stream(["1"], chunk=0)), kind=ArgumentError), "chunk = 0")


def test_what_are_no_images_is_said():
    captioner = Captioner.__new__(Captioner)
    names(refusal(captioner.caption, 5, kind=ArgumentError), "list of images")
    names(refusal(captioner.model_image, 5, kind=ArgumentError), "path", "pixels")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells the peak of a process")
def test_a_large_transparent_image_takes_little_more_memory_than_its_pixels():
    content = saved(Image.new("RGBA", (5000, 5000)), format="PNG")
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    assert decode_image(content, "large.png").shape == (2500, 2500, 3)
    assert peak() - before < 200e6  # of which 100 are the pixels; it was 525


def peak():
    """Bytes the process took at most since the last reset."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def test_an_image_for_which_there_is_no_memory_is_refused_with_its_size_and_the_limit(monkeypatch):
    monkeypatch.setattr(images, "free_memory", lambda: 2e6)
    said = refusal(decode_image, saved(Image.new("RGB", (500, 500)), format="PNG"), "photo.png")
    names(said, "photo.png", "500 × 500 pixels", "2 MB", "1 MB")


@pytest.mark.parametrize("bound", ["free", "expansion"])
def test_a_small_npz_of_a_large_array_is_refused_with_its_size_and_the_limit(tmp_path, monkeypatch, bound):
    if bound == "free":
        monkeypatch.setattr(arrays, "free_memory", lambda: 4e6)
    else:
        monkeypatch.setattr(arrays, "SMALL", 2_000_000)
    np.savez_compressed(tmp_path / "graph.npz", **SPARSE, features=np.zeros((1000, 1000), np.float32))
    said = refusal(read_graph, GraphConfig(path=str(tmp_path / "graph.npz")))
    names(said, "its arrays up to features take 4 MB of memory, more than the 2 MB allowed here")


def test_an_array_that_no_graph_has_is_never_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "SMALL", 2_000_000)
    np.savez_compressed(tmp_path / "graph.npz", **SPARSE, unrelated=np.zeros((1000, 1000), np.float32))
    assert len(read_graph(GraphConfig(path=str(tmp_path / "graph.npz"))).labels) == 3


def test_free_memory_is_no_more_than_a_container_may_use(tmp_path, monkeypatch):
    monkeypatch.setattr("jumok.devices.LIMITS", (str(write(tmp_path / "limit", "1000\n")), "/nowhere"))
    assert free_memory() == 1000


def test_words_and_weights_of_a_map_that_are_none_are_refused():
    shown = '{"source": ["a"], "target": ["b"], "weights": [[[[1]]]]}'
    for weight in ("-1", MANY_DIGITS, "1e999", "null", '"a"'):
        with refuses(JumokError):
            AttentionMap.from_json(shown.replace("1", weight))
    with refuses(DataError):
        AttentionMap.from_json(shown.replace('"a"', '"\\ud800"'))


@pytest.mark.slow
def test_a_bit_flipped_anywhere_in_arrays_never_shows_what_its_library_raises(tmp_path):
    file = BytesIO()
    np.savez_compressed(file, **SPARSE)
    np.save(tmp_path / "labels.npy", np.array([0, 1, 0]))
    np.save(tmp_path / "features.npy", np.eye(3, dtype=np.float32))
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 2]]))

    def read_npz(content):
        (tmp_path / "graph.npz").write_bytes(content)
        read_graph(GraphConfig(path=str(tmp_path / "graph.npz")))

    def read_npy(content):
        (tmp_path / "labels.npy").write_bytes(content)
        read_graph(GraphConfig(path=str(tmp_path)))

    assert outcomes(file.getvalue(), read_npz, step=3) > 60
    assert outcomes((tmp_path / "labels.npy").read_bytes(), read_npy) > 50
