"""Every input format: valid samples of it, and code that reads them as a user would."""

import gzip
import json
import lzma
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import jumok
from jumok.errors import LONGEST, JumokError
from jumok.training import Report

HOME = TemporaryDirectory(prefix="jumok-fuzz-")
"""Where the tiny run lies, until the program ends."""
Read = Callable[[str, bytes], None]


class Format(NamedTuple):
    """Samples by their names, and what reads a damaged one."""

    samples: dict[str, bytes]
    read: Read
    inputs: int
    """How many of 40,000 inputs are of this format."""


class WrongAnswerError(Exception):
    """A server's answer that is neither a result nor a refusal in one line."""


RUN = """
[data]
corpus = "dates"
size = 200
valid_size = 8
[tokenizer]
kind = "bpe"
size = 320
byte_fallback = true
[encoder]
kind = "rnn"
width = 8
embedding = 8
[decoder]
kind = "rnn"
width = 8
embedding = 8
[training]
steps = 2
warmup = 1
validate_every = 1
save_every = 1
log_every = 1
metric = "loss"
[decoding]
beam = 2
max_length = 12
"""

TRANSFORMER = """
[data]
pairs = "corpus.tsv.gz"
columns = [1, 2]
joined = [1, 2]
[tokenizer]
kind = "unigram"
size = 8000
shared = false
[encoder]
kind = "transformer"
layers = 2
heads = 4
width = 64
[decoder]
kind = "transformer"
layers = 2
heads = 4
width = 64
tied = "none"
[training]
learning_rate = 1e-3
betas = [0.9, 0.98]
"""


@cache
def trained() -> Path:
    """The folder of a tiny run: a model, its checkpoints and its metrics."""
    folder = Path(HOME.name)
    (folder / "tiny.toml").write_text(RUN, encoding="utf-8")
    jumok.train(folder / "tiny.toml", out=folder / "run", device="cpu", report=Report())
    return folder / "run"


def formats(place: Path) -> dict[str, Callable[[], Format]]:
    """How to make each format; what is read lies in the folder `place`."""
    makers: tuple[Callable[[Path], Format], ...] = (
        recipe, setting, pairs, compressed, links, gold, vectors, npy, npz, tables, images, image_zip, captions,
        model, safetensors, checkpoint, tokenizer, attention_map, store, metrics, arguments, requests,
    )  # fmt: skip
    return {maker.__name__: lambda maker=maker: maker(place / maker.__name__) for maker in makers}  # type: ignore[misc]


def _in_file(place: Path, read: Callable[[Path], object]) -> Read:
    """Reads a sample as the file of its name in an empty folder."""
    place.mkdir(parents=True, exist_ok=True)

    def written(name: str, content: bytes) -> None:
        (place / name).write_bytes(content)
        read(place / name)

    return written


def recipe(place: Path) -> Format:
    """TOML of all three kinds of recipes."""
    from jumok.tasks import read_recipe

    def read(path: Path) -> None:
        read_recipe(path)

    samples = {
        "text.toml": RUN.encode(),
        "transformer.toml": TRANSFORMER.encode(),
        "graph.toml": b'[graph]\nbuilt_in = "planted"\nshares = [0.6, 0.2, 0.2]\n[network]\nheads = 2\nlayers = 2\n',
        "caption.toml": b'[images]\nscenes = "en"\nsize = 32\n[decoder]\nkind = "rnn"\n[augment]\ncrop = 0.9\n',
    }
    return Format(samples, _in_file(place, read), 4500)


def setting(place: Path) -> Format:
    """What follows --set on a command line."""
    from jumok.tasks import read_recipe

    place.mkdir(parents=True)
    base = place / "base.toml"
    base.write_text(RUN, encoding="utf-8")
    given = ["training.steps=2000", 'data.columns=["a", "b"]', "decoding.beam = 5", "encoder.kind=rnn", "data.size=500"]
    samples = {str(number): text.encode() for number, text in enumerate(given)}

    def read(_: str, content: bytes) -> None:
        read_recipe(base, [content.decode("utf-8", "surrogateescape")])

    return Format(samples, read, 2000)


TSV = "Grüße\thello\n3월 1일\tMarch 1\neins zwei\tone two\n".encode() * 3
JSONL = b"".join(
    json.dumps({"source": f"satz {n}", "target": f"문장 {n}", "more": {"id": n}}, ensure_ascii=False).encode() + b"\n"
    for n in range(6)
)


def pairs(place: Path) -> Format:
    """Two texts, TSV and JSONL."""
    from jumok.data.pairs import read_pairs

    place.mkdir(parents=True)
    (place / "other").write_bytes(b"line\n" * 9)
    source = b"".join(line.split(b"\t")[0] + b"\n" for line in TSV.splitlines())

    def read(path: Path) -> None:
        list(read_pairs(path, place / "other" if path.suffix == ".txt" else None))

    return Format({"text.txt": source, "pairs.tsv": TSV, "pairs.jsonl": JSONL}, _in_file(place, read), 4000)


def compressed(place: Path) -> Format:
    """The same in .gz and .xz."""
    from jumok.data.pairs import read_pairs

    samples = {
        "a.tsv.gz": gzip.compress(TSV, mtime=0),
        "b.jsonl.gz": gzip.compress(JSONL, mtime=0),
        "c.tsv.xz": lzma.compress(TSV),
        "d.jsonl.xz": lzma.compress(JSONL),
    }
    return Format(samples, _in_file(place, lambda path: list(read_pairs(path))), 2000)


def links(place: Path) -> Format:
    """Word links in Pharaoh format."""
    from jumok.data.pairs import Pair
    from jumok.data.word_links import with_word_links

    given = [Pair("a b c", "d e f g")] * 5
    samples = {"links.txt": b"0-0 1-1 2-3\n0-2\n\n2-2 1-0\n0-0\n", "longer.txt": b"0-0 1-2 2-1\n" * 5}
    return Format(samples, _in_file(place, lambda path: list(with_word_links(given, path))), 1500)


def gold(place: Path) -> Format:
    """Links made by hand, in both formats."""
    from jumok.analysis.alignment.error_rate import read_gold

    samples = {
        "marked.txt": b"1-1 2p2 3?3\n4-4\n\n1-2 2-1\n",
        "naacl.txt": b"1 1 1 S\n1 2 2 P\n2 3 3\n0004 1 2 S\n",
    }
    return Format(samples, _in_file(place, read_gold), 1500)


def vectors(place: Path) -> Format:
    """Word vectors as text and as word2vec's binary format."""
    from jumok.data.vectors import read_vectors, vector_width

    words = ("the", "집", "new york")
    numbers = np.random.default_rng(0).normal(size=(3, 4)).astype("<f4")
    rows = [f"{word} {' '.join(f'{number:.4f}' for number in row)}\n" for word, row in zip(words, numbers, strict=True)]
    binary = b"3 4\n" + b"".join(
        word.encode().replace(b" ", b"_") + b" " + row.tobytes() + b"\n"
        for word, row in zip(words, numbers, strict=True)
    )
    text = "".join(rows).encode()
    samples = {"a.vec": b"3 4\n" + text, "b.txt": text, "c.bin": binary, "d.txt.gz": gzip.compress(text, mtime=0)}

    def read(path: Path) -> None:
        read_vectors(path)
        vector_width(path)

    return Format(samples, _in_file(place, read), 2000)


def _arrays() -> dict[str, np.ndarray]:
    draws = np.random.default_rng(0)
    return {
        "edges": draws.integers(6, size=(2, 9)),
        "features": draws.normal(size=(6, 3)).astype(np.float32),
        "labels": np.array([0, 1, 0, 1, 1, 0]),
        "edge_features": draws.normal(size=(9, 2)),
        "train_mask": np.array([1, 1, 1, 0, 0, 0], bool),
        "val_mask": np.array([0, 0, 0, 1, 1, 0], bool),
        "names": np.array(list("abcdef")),
    }


def _of_graphs() -> dict[str, np.ndarray]:
    """Two graphs, with sparse features."""
    arrays = {name: array for name, array in _arrays().items() if name in ("edges", "names")}
    return {
        "edge_index": np.array([[0, 1, 3, 4], [1, 2, 4, 5]]),
        "graph": np.array([0, 0, 0, 1, 1, 1]),
        "y": np.array([0, 1]),
        "names": arrays["names"],
        "feat_data": np.arange(1.0, 8.0),
        "feat_indices": np.array([0, 2, 1, 0, 2, 1, 0]),
        "feat_indptr": np.array([0, 2, 3, 3, 5, 6, 7]),
        "feat_shape": np.array([6, 3]),
    }


def _bytes_of(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def _put_in_order(place: Path, path: Path) -> None:
    """Read a graph and write it as training does."""
    from jumok.graphs.files import read_graph
    from jumok.graphs.graph import GraphConfig
    from jumok.graphs.store import write_graph

    config = GraphConfig(path=str(path), normalise=True)
    write_graph(place / "ordered", read_graph(config), config)


def npy(place: Path) -> Format:
    """Graphs as folders of arrays, one of them damaged."""
    whole = {"one": _arrays(), "sparse": _of_graphs()}
    samples = {
        f"{folder}/{name}.npy": _bytes_of(array) for folder, arrays in whole.items() for name, array in arrays.items()
    }

    def read(name: str, content: bytes) -> None:
        folder = place / name.partition("/")[0]
        folder.mkdir(parents=True, exist_ok=True)
        for other, sample in samples.items():
            if other.partition("/")[0] == folder.name:
                (place / other).write_bytes(content if other == name else sample)
        _put_in_order(place, folder)

    return Format(samples, read, 2500)


def npz(place: Path) -> Format:
    """Graphs in one file, of NumPy or of PyTorch."""
    import torch

    samples = {}
    for name, save, arrays in (
        ("plain", np.savez, _arrays()),
        ("packed", np.savez_compressed, _arrays()),
        ("sparse", np.savez_compressed, _of_graphs()),
    ):
        file = BytesIO()
        save(file, **arrays)
        samples[f"{name}.npz"] = file.getvalue()
    file = BytesIO()
    torch.save({name: torch.from_numpy(array) for name, array in _arrays().items() if name != "names"}, file)
    samples["graph.pt"] = file.getvalue()
    return Format(samples, _in_file(place, lambda path: _put_in_order(place, path)), 2500)


def tables(place: Path) -> Format:
    """Graphs as tables of nodes and edges."""
    from jumok.graphs.files import read_node_tables
    from jumok.graphs.graph import GraphConfig
    from jumok.graphs.store import write_graph

    samples = {
        "nodes.csv": b'id,label,split,a,b\np,x,train,1,2\nq,y,train,0.5,-3e2\n"r, s",x,valid,1,1\n',
        "edges.csv": b'source,target\np,q\nq,"r, s"\n',
        "nodes.tsv": b"label\ta\n0\t1\n1\t2\n0\t3\n",
        "edges.tsv": b"0\t1\n1\t2\n",
    }

    def read(name: str, content: bytes) -> None:
        place.mkdir(parents=True, exist_ok=True)
        suffix = name.partition(".")[2]
        for other in (f"nodes.{suffix}", f"edges.{suffix}"):
            (place / other).write_bytes(content if other == name else samples[other])
        raw = read_node_tables(str(place / f"nodes.{suffix}"), str(place / f"edges.{suffix}"))
        write_graph(place / "ordered", raw, GraphConfig(path="unused"))

    return Format(samples, read, 1500)


def _pictures() -> dict[str, bytes]:
    from PIL import Image

    noise = np.random.default_rng(0).integers(256, size=(12, 10, 4), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x011A] = 72.0  # a fraction
    options = {
        "a.png": ("RGBA", {"exif": exif}),
        "b.jpg": ("RGB", {"exif": exif, "progressive": True}),
        "c.webp": ("RGBA", {"exif": exif}),
        "d.gif": ("P", {"transparency": 0}),
        "e.bmp": ("RGB", {}),
        "f.tif": ("RGB", {"compression": "tiff_lzw"}),
        "g.ppm": ("RGB", {}),
        "h.png": ("I;16", {}),
        "i.tif": ("L", {}),
    }
    pictures = {}
    for name, (mode, given) in options.items():
        file, image = BytesIO(), Image.fromarray(noise)
        image = Image.fromarray(noise[..., :2].copy().view("<u2")[..., 0]) if mode == "I;16" else image.convert(mode)
        image.save(file, format={"jpg": "JPEG", "tif": "TIFF"}.get(name[2:], name[2:].upper()), **given)
        pictures[name] = file.getvalue()
    return pictures


def images(place: Path) -> Format:
    """Images of all formats that are read."""
    from jumok.images.files import read_image, squared

    return Format(_pictures(), _in_file(place, lambda path: squared(read_image(path), 16)), 4000)


def image_zip(place: Path) -> Format:
    """A zip of images."""
    from jumok.images.files import ImageFolder

    samples = {}
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        file = BytesIO()
        with zipfile.ZipFile(file, "w", kind) as archive:
            for name in ("a.png", "b.jpg"):
                archive.writestr(zipfile.ZipInfo(f"사진/{name}"), _pictures()[name], kind)
        samples[f"{kind}.zip"] = file.getvalue()

    def read(path: Path) -> None:
        folder, refused = ImageFolder(path), None
        for image in folder.names():
            try:
                folder.read(image)
            except JumokError as error:
                refused = error
        if refused is not None:
            raise refused

    return Format(samples, _in_file(place, read), 2000)


def captions(place: Path) -> Format:
    """Captions as TSV and JSONL."""
    from jumok.images.pairs import ImagesConfig, read_captions

    rows = [("a.png", "빨간 원"), ("b.jpg", "a blue square"), ("c.png", "two dots")]
    samples = {
        "captions.tsv": "".join(f"{image}\t{text}\n" for image, text in rows).encode(),
        "captions.jsonl": "".join(
            json.dumps({"image": image, "caption": text}, ensure_ascii=False) + "\n" for image, text in rows
        ).encode(),
    }
    config = ImagesConfig(path="images", captions="unused")
    return Format(samples, _in_file(place, lambda path: read_captions(replace(config, captions=str(path)))), 1000)


def _resealed(folder: Path) -> None:
    """Checksums that fit, as whoever made a hostile folder would write."""
    names = ["model.safetensors", "recipe.toml", *(path.name for path in folder.glob("tokenizer*.model"))]
    digests = {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "checksums.json").write_text(json.dumps(digests), encoding="utf-8")


def model(place: Path) -> Format:
    """The folder of a model, signed anew after the damage."""
    from jumok.tasks import TRANSLATION

    names = ("recipe.toml", "recipe.toml", "checksums.json", "model.safetensors", "tokenizer.model")
    samples = {f"{folder}/{name}": (trained() / name).read_bytes() for folder, name in enumerate(names)}

    def read(name: str, content: bytes) -> None:
        place.mkdir(parents=True, exist_ok=True)
        file = name.partition("/")[2]
        for other in names:
            (place / other).write_bytes(content if other == file else (trained() / other).read_bytes())
        if file != "checksums.json":
            _resealed(place)
        TRANSLATION.load(place, device="cpu").translate(["March 1"])

    return Format(samples, read, 1500)


def safetensors(place: Path) -> Format:
    """Weights."""
    from jumok.models.weights import load_weights, read_tensors
    from jumok.tasks import TRANSLATION

    empty = TRANSLATION.load(trained(), device="cpu").trained.model
    samples = {"model.safetensors": (trained() / "model.safetensors").read_bytes()}
    return Format(samples, _in_file(place, lambda path: load_weights(empty, read_tensors(path), path)), 1000)


def checkpoint(place: Path) -> Format:
    """A checkpoint: its manifest, or another file listed anew after the damage."""
    from jumok.training.checkpoint import checkpoints, read_snapshot

    whole = checkpoints(trained() / "checkpoints")[-1]
    samples = {path.name: path.read_bytes() for path in whole.iterdir()}

    def read(name: str, content: bytes) -> None:
        shutil.copytree(whole, place, dirs_exist_ok=True)
        (place / name).write_bytes(content)
        if name != "manifest.json":
            manifest = json.loads(samples["manifest.json"])
            manifest["files"][name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
            (place / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        read_snapshot(place)

    return Format(samples, read, 1000)


def tokenizer(place: Path) -> Format:
    """TokenizerPair of all kinds."""
    from jumok.data.tokenizer import Tokenizer, TokenizerConfig

    texts = ["March 1, 2024", "3월 1일", "ten kilometres"] * 4
    made = {"bpe.model": (trained() / "tokenizer.model").read_bytes()}
    for kind in ("char", "word"):
        made[f"{kind}.model"] = Tokenizer.train(texts, TokenizerConfig(kind=kind, size=60)).model

    def read(path: Path) -> None:
        loaded = Tokenizer.load(path)
        loaded.decode(loaded.encode("3월 March ♥"))
        loaded.pieces_with_offsets("3월 March ♥")

    return Format(made, _in_file(place, read), 1000)


def attention_map(place: Path) -> Format:
    """Maps as JSON."""
    import torch

    from jumok.analysis import draw
    from jumok.analysis.maps.attention_map import AttentionMap
    from jumok.analysis.maps.source_layout import GraphLayout, ImageLayout

    draws = torch.Generator().manual_seed(0)

    def weights(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=draws)

    pieces = AttentionMap(("the", "hou", "se"), ("das", "Haus"), weights(2, 1, 2, 3))
    words = AttentionMap(("the", "house"), ("das", "Haus"), weights(2, 1, 2, 2), title="one", tokens=pieces)
    region = ImageLayout(np.zeros((8, 8, 3), np.uint8), 2, 2)
    image = AttentionMap(region.names, ("원",), weights(1, 1, 1, 4), layout=region)
    nodes = GraphLayout((0, 1, 2), ("a", "b", "a"), 2, "a", 0.5)
    graph = AttentionMap(("n0", "n1", "n2"), ("n0",), weights(1, 2, 1, 3), layout=nodes)
    samples = {name: of.to_json().encode() for name, of in (("words", words), ("image", image), ("graph", graph))}

    def read(_: str, content: bytes) -> None:
        shown = AttentionMap.from_json(content.decode("utf-8", "surrogateescape"))
        shown.to_json()
        draw.to_terminal(shown, plain=True)

    return Format(samples, read, 2000)


def store(place: Path) -> Format:
    """Sentences as they are prepared for training."""
    from jumok.data.dataset import Dataset

    def read(path: Path) -> None:
        dataset = Dataset(path)
        dataset.check()
        list(dataset)

    samples = {path.name: path.read_bytes() for path in sorted((trained() / "data").glob("*.store"))}
    return Format(samples, _in_file(place, read), 500)


def metrics(place: Path) -> Format:
    """The metrics of a run, as they are drawn and as a resumed run reads them."""
    from jumok.analysis.curves.training import read_curves
    from jumok.training.metrics import read_metrics

    def read(path: Path) -> None:
        read_metrics(path)
        read_curves(path)

    samples = {"metrics.jsonl": (trained() / "metrics.jsonl").read_bytes()}
    return Format(samples, _in_file(place, read), 500)


def arguments(place: Path) -> Format:
    """What Python code may hand to a translator, whatever it is."""
    from jumok.tasks import TRANSLATION

    translator = TRANSLATION.load(trained(), device="cpu")
    settings = b'{"beam": 2, "n_best": 1, "max_length": 5, "min_length": 0}'
    samples = {"texts": b'["March 1", "May 2"]', "settings": settings}

    def read(name: str, content: bytes) -> None:
        try:
            given = json.loads(content)
        except (ValueError, RecursionError):
            given = content.decode("utf-8", "replace")
        if name == "texts":
            translator.translate(given if not isinstance(given, list) else given[:4])
        elif isinstance(given, dict) and not given.keys() & {"texts", "self", "tell", "watch"}:
            translator.translate(["March 1"], **{**given, "beam": _small(given.get("beam"))})

    return Format(samples, read, 500)


def _small(value: object) -> object:
    """Wide beams are allowed, and take long."""
    return value % 9 if isinstance(value, int) and 0 < value <= 1000 else value


ASKED = {
    "translate": {"text": ["March 1", "May 2"], "beam": 2, "n_best": 2},
    "stream": {"text": "March 1", "beam": 2},
    "beam": {"text": "March 1", "beam": 2},
    "attention": {"text": "March 1", "target_ids": [40, 50], "words": True},
    "page": {"text": "March 1", "language": "ko"},
    "align": {"source": "March 1", "target": "3월 1일"},
}


def requests(place: Path) -> Format:
    """Bodies of requests, through the app without a socket."""
    from starlette.testclient import TestClient

    from jumok.serve.app import create_app
    from jumok.serve.limits import Limits
    from jumok.serve.models import load_models
    from jumok.serve.service import Service

    service = Service.start(load_models({"tiny": trained()}, device="cpu"), Limits(characters=500))
    client = TestClient(create_app(service), base_url="http://localhost", raise_server_exceptions=True)
    client.__enter__()  # one loop for all requests, until the process ends
    samples = {name: json.dumps(body, ensure_ascii=False).encode() for name, body in ASKED.items()}

    def read(name: str, content: bytes) -> None:
        answer = client.post(f"/api/{name}", content=content, headers={"Content-Type": "application/json"})
        if answer.status_code >= 500:
            raise WrongAnswerError(f"status {answer.status_code} of /api/{name}: {answer.text[:100]}")
        if answer.status_code >= 400:
            message = answer.json()["error"]
            if "\n" in message or len(message) > LONGEST:
                raise WrongAnswerError(f"a message of {len(message):,} letters: {message[:60]!r}")
            raise JumokError(message)

    return Format(samples, read, 1000)
