"""Decoding on a CPU, compared with other toolkits: ids cpu-decode and cpu-latency.

    JUMOK_DATA=path/to/data python -m benchmarks.decoding TRANSFORMER [--rnn RNNSEARCH] [--quick]
        [--peers opennmt=path/to/python eole=path/to/python joeynmt=path/to/python]

TRANSFORMER and RNNSEARCH are folders of trained models. OpenNMT-py, Eole and JoeyNMT need other versions of packages
than jumok, so each has an environment of its own, whose Python --peers names (benchmarks/decoding_peers.py).
benchmarks.decode_cpu counts CPU time instead, where other programs share the cores.

Speed: base (6+6, 512), small (3+3, 256) and RNNsearch (GRU of 512) with random weights and the vocabulary of the
trained model translate sentences of Multi30k's 2016 test set. Every output is forced to 30 tokens, so that all systems
take the same number of steps. Throughput uses two threads, latency (one sentence at a time) one. Every system has its
own process; they take turns, and the best round of each counts. CTranslate2 reads the same weights. "jumok" is
`--precision int8`, to be compared with CTranslate2 in int8; "own engine" is without CTranslate2.

Quality: the trained models translate the test set with outputs of any length: BLEU and sentences per second.
"""

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Row, cpu, installed, version_in, write

LENGTH = 30
BEAMS = (5, 1)
BATCH = 32
EIGHT, OURS, OWN = "jumok", "jumok, float32", "jumok, float32, own engine"
PLAIN, PLAIN_EIGHT, WORKERS = "CTranslate2", "CTranslate2 int8", "CTranslate2 int8, a thread for each batch"
MARIAN = "Marian in Hugging Face"
PEERS = {"opennmt": "OpenNMT-py", "eole": "Eole", "joeynmt": "JoeyNMT"}
SLOW = {OWN: 4, MARIAN: 4, "OpenNMT-py": 4, "Eole": 4, "JoeyNMT": 8}
"""Systems that are given a quarter of the sentences, or an eighth."""
TRANSFORMERS = {"base": (6, 512), "small": (3, 256)}
SYSTEMS = {
    "base": (EIGHT, PLAIN_EIGHT, WORKERS, OURS, PLAIN, OWN, MARIAN),
    "small": (EIGHT, PLAIN_EIGHT, WORKERS, OURS, PLAIN, OWN, MARIAN),
    "rnnsearch": (EIGHT, OURS),
}
GOALS = {"throughput-base-beam-5": "cpu-decode", "latency-base-beam-5": "cpu-latency"}


Translate = Callable[[Sequence[str], int], Any]


class Task(NamedTuple):
    """What a worker does: a system with a model and a number of threads."""

    system: str
    shape: str
    threads: int
    model: str
    """The folder of a trained model, for its vocabulary; for shape = "trained" it translates itself."""
    sentences: int


def test_set(language: str) -> list[str]:
    folder = Path(os.environ.get("JUMOK_DATA", "../shared/data")) / "multi30k"
    return gzip.decompress((folder / f"test_2016_flickr.{language}.gz").read_bytes()).decode().splitlines()


# In the process of a system


def random_translator(shape: str, model: str) -> Any:
    """A model with random weights and the vocabulary of a trained one."""
    import torch

    import jumok
    from jumok.tasks import TRANSLATION, make_recipe
    from jumok.tasks.translator import TrainedTranslator, Translator

    tokenizers = jumok.load(model, device="cpu").trained.tokenizers
    if shape == "rnnsearch":
        side: dict[str, Any] = {"kind": "rnn", "width": 512, "embedding": 256}
        decoder = side | {"attention": "additive"}
    else:
        layers, width = TRANSFORMERS[shape]
        side = {"kind": "transformer", "layers": layers, "width": width, "heads": width // 64, "hidden": 4 * width}
        decoder = side | {"tied": "all"}
    recipe = make_recipe({"data": {"corpus": "cldr"}, "encoder": side, "decoder": decoder})
    torch.manual_seed(0)
    return Translator(TrainedTranslator(TRANSLATION.build(recipe, tokenizers).eval(), recipe, tokenizers))


def translate_with(task: Task) -> Translate:
    """A function that translates texts with a beam; the trained model to any length, others to LENGTH tokens."""
    import torch

    import jumok

    torch.set_num_threads(task.threads)
    trained = task.shape == "trained"
    if task.system == MARIAN:
        return marian(task)
    translator = jumok.load(task.model, device="cpu") if trained else random_translator(task.shape, task.model)
    if task.system in (PLAIN, PLAIN_EIGHT, WORKERS):
        return plain(task, translator)
    settings: dict[str, Any] = {"precision": "int8" if task.system == EIGHT else "float32"}
    settings["engine"] = "jumok" if task.system == OWN else "auto"
    if trained or task.shape == "rnnsearch" or task.system == OWN:
        forced = {} if trained else {"min_length": LENGTH, "max_length": LENGTH}
        if not trained:
            translator.engines.folder = Path(task.model)  # for the shortlist
        return lambda texts, beam: translator.translate(texts, beam=beam, **settings, **forced)
    return forced_engine(task, translator)


def forced_engine(task: Task, translator: Any) -> Translate:
    """Our use of CTranslate2, with outputs of one length, which our own search would otherwise write."""
    from jumok.decoding.config import DecodingConfig

    engines = translator.engines
    engines.folder, shortlist = Path(task.model), engines.shortlist
    found = shortlist()
    engines.folder, engines.shortlist = None, lambda: found  # the export is of other weights than the folder's
    precision = "int8" if task.system == EIGHT else "float32"
    engine = engines._engine(precision)
    encode = translator.trained.tokenizers.source.encode

    def translate(texts: Sequence[str], beam: int) -> None:
        config = DecodingConfig(beam=beam, min_length=LENGTH, max_length=LENGTH, precision=precision)
        outputs = engine.generate([encode(text)[1:] for text in texts], [LENGTH] * len(texts), config)
        assert all(len(output[0].ids) == LENGTH for output in outputs)

    return translate


def plain(task: Task, translator: Any) -> Translate:
    """CTranslate2 as its documentation shows it."""
    import tempfile

    import ctranslate2

    from jumok.decoding.ctranslate2_model import write_model

    precision = "float32" if task.system == PLAIN else "int8"
    threads = (task.threads, 1) if task.system == WORKERS else (1, task.threads)
    with tempfile.TemporaryDirectory() as folder:
        write_model(translator.trained.model, translator.trained.tokenizers, folder, quantization=precision)
        engine = ctranslate2.Translator(
            folder, compute_type=precision, inter_threads=threads[0], intra_threads=threads[1]
        )
    tokenizers = translator.trained.tokenizers
    forced = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH} if task.shape != "trained" else {}

    def translate(texts: Sequence[str], beam: int) -> list[str]:
        pieces = [[tokenizers.source.pieces[id] for id in tokenizers.source.encode(text)[1:]] for text in texts]
        found = engine.translate_batch(pieces, beam_size=beam, max_batch_size=BATCH, **forced)
        ids = {piece: number for number, piece in enumerate(tokenizers.target.pieces)}
        return [tokenizers.target.decode([ids[piece] for piece in one.hypotheses[0]]) for one in found]

    return translate


def marian(task: Task) -> Translate:
    import torch

    import jumok
    from jumok.bench.peers import TransformerShape
    from jumok.bench.peers import marian as random_marian
    from jumok.data import pad

    tokenizer = jumok.load(task.model, device="cpu").trained.tokenizers.source
    layers, width = TRANSFORMERS[task.shape]
    model = random_marian(TransformerShape(layers, width, tokenizer.size)).eval()
    forced = {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH, "do_sample": False}

    def translate(texts: Sequence[str], beam: int) -> None:
        for start in range(0, len(texts), BATCH):
            ids, visible = pad([tokenizer.encode(text)[1:] for text in texts[start : start + BATCH]])
            with torch.inference_mode():
                model.generate(input_ids=ids, attention_mask=visible.long(), num_beams=beam, **forced)

    return translate


def work(task: Task) -> None:
    """Answer each line of standard input, "many 5" or "one 5", with the seconds that it took with this beam."""
    started = time.time()
    translate = translate_with(task)
    texts = test_set("en")[: task.sentences]
    translate(texts[:1], 2)
    print(json.dumps({"ready": time.time() - started}), flush=True)
    for line in sys.stdin:
        what, beam = line.split()
        times, output = [], None
        for group in [texts] if what == "many" else [[text] for text in texts[:4]]:
            start, busy = time.perf_counter(), time.process_time()
            output = translate(group, int(beam))
            times.append((time.perf_counter() - start, time.process_time() - busy))
        seconds, busy = sorted(times)[len(times) // 2]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer: dict[str, Any] = {"seconds": seconds, "busy": busy, "memory": memory}
        if task.shape == "trained":
            answer["outputs"] = [one if isinstance(one, str) else one.text for one in output or []]
        print(json.dumps(answer), flush=True)


# In the process that compares


class Worker:
    """The process of one system."""

    def __init__(self, task: Task) -> None:
        self.task = task
        environment = os.environ | {name: str(task.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # OpenNMT-py's own checkpoints hold settings of argparse
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.ready = self._answer()["ready"]

    def command(self) -> list[str]:
        """The program of the process."""
        return [sys.executable, "-W", "ignore", "-m", "benchmarks.decoding", "--worker", json.dumps(self.task)]

    def run(self, what: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"{self.task.system} failed with {self.task.shape}")


class PeerWorker(Worker):
    """The process of another toolkit, with the Python of its own environment."""

    def __init__(self, task: Task, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        super().__init__(task)

    def command(self) -> list[str]:
        """The program of the process; it gets the vocabulary and the sentences in files."""
        import jumok

        tokenizer = jumok.load(self.task.model, device="cpu").trained.tokenizers.source
        texts = test_set("en")[: self.task.sentences]
        pieces = ["".join("␣" if sign.isspace() else sign for sign in piece) for piece in tokenizer.pieces]
        sentences = [" ".join(pieces[id] for id in tokenizer.encode(text)[1:-1]) for text in texts]
        self.folder.mkdir(parents=True)
        words = [piece for piece in pieces if not (piece.startswith("<") and piece.endswith(">"))]
        for name, lines in {"vocabulary": words, "sentences": sentences}.items():
            (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (toolkit,) = (key for key, name in PEERS.items() if name == self.task.system)
        task = {"toolkit": toolkit, "shape": self.task.shape, "threads": self.task.threads, "length": LENGTH}
        task |= {"folder": str(self.folder.resolve()), "sentences": self.task.sentences, "batch": BATCH}
        return [self.python, "-W", "ignore", "benchmarks/decoding_peers.py", json.dumps(task)]


class Best(NamedTuple):
    """The best turns of a system, by the clock and by the time of the processor."""

    task: Task
    ready: float
    seconds: float
    busy: float
    memory: float
    outputs: list[str]


def turns(workers: list[Worker], what: str, beams: Sequence[int], rounds: int) -> Iterator[tuple[int, list[Best]]]:
    """For each beam the best of every system; every system runs once in every round."""
    for beam in beams:
        runs = [[worker.run(f"{what} {beam}") for worker in workers] for _ in range(rounds)]
        yield (
            beam,
            [
                Best(
                    worker.task,
                    worker.ready,
                    min(run["seconds"] for run in own),
                    min(run["busy"] for run in own),
                    own[-1]["memory"],
                    own[-1].get("outputs", []),
                )
                for worker, own in zip(workers, zip(*runs, strict=True), strict=True)
            ],
        )
    for worker in workers:
        worker.end()


def speed(shape: str, model: str, sentences: int, rounds: int, peers: Mapping[str, str], folder: Path) -> Iterator[Row]:
    """Throughput and latency; with beam 5, memory and start-up as well. `peers` have the Python of other toolkits."""
    forced = f"random weights, {LENGTH} tokens out"

    def workers(threads: int) -> list[Worker]:
        tasks = {
            system: Task(system, shape, threads, model, sentences // SLOW.get(system, 1))
            for system in (*SYSTEMS[shape], *peers)
        }
        ours = [Worker(tasks[system]) for system in SYSTEMS[shape]]
        return [*ours, *(PeerWorker(tasks[name], peers[name], folder / f"{name}-{shape}-{threads}") for name in peers)]

    for beam, found in turns(workers(2), "many", BEAMS, rounds):
        name = f"throughput-{shape}-beam-{beam}"
        for best in found:
            system, tokens = best.task.system, best.task.sentences * LENGTH
            conditions = f"{best.task.sentences} sentences of Multi30k, {forced}, two threads; best of {rounds}"
            yield Row(GOALS.get(name, name), system, round(tokens / best.seconds), "tok/s", conditions)
            yield Row(f"per-core-{shape}-beam-{beam}", system, round(tokens / best.busy), "tok/s", conditions)
            if beam == BEAMS[0]:
                yield Row(f"memory-{shape}", system, round(best.memory), "MiB", f"peak, {conditions}")
                yield Row(f"start-{shape}", system, round(best.ready, 2), "s", "to the first translation, from Python")
    for beam, found in turns(workers(1), "one", BEAMS, rounds):
        name = f"latency-{shape}-beam-{beam}"
        conditions = f"median of 4 sentences one by one, {forced}, one thread; best of {rounds}"
        for best in found:
            yield Row(GOALS.get(name, name), best.task.system, round(1000 * best.seconds, 1), "ms", conditions)


def quality(name: str, model: str, systems: Sequence[str], rounds: int) -> Iterator[Row]:
    """BLEU of a trained model, and the sentences a second at which it was reached."""
    import sacrebleu

    references = test_set("de")
    workers = [Worker(Task(system, "trained", 2, model, len(references))) for system in systems]
    for beam, found in turns(workers, "many", BEAMS, rounds):
        conditions = f"Multi30k en-de 2016, {len(references)} sentences, beam {beam}, two threads"
        for best in found:
            bleu, system = sacrebleu.metrics.BLEU(), best.task.system
            score = bleu.corpus_score(best.outputs, [references]).score
            said = f"{conditions}; {bleu.get_signature()}"
            yield Row(f"bleu-{name}-beam-{beam}", system, round(score, 2), "BLEU", said)
            rate = round(len(references) / best.seconds, 1)
            yield Row(f"sentences-{name}-beam-{beam}", system, rate, "sentences/s", f"{conditions}; best of {rounds}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder of a Transformer trained on Multi30k en-de")
    parser.add_argument("--rnn", help="folder of an RNN trained on it")
    parser.add_argument("--quick", action="store_true", help="fewer sentences and rounds; some minutes in all")
    parser.add_argument("--shapes", default=",".join(SYSTEMS), help="models to time, such as base,rnnsearch")
    parser.add_argument("--peers", nargs="*", default=[], help="other toolkits and their Python, NAME=PYTHON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(Task(*json.loads(options.worker)))
        return
    sentences, rounds = (128, 2) if options.quick else (256, 4)
    rows: list[Row] = []

    def add(found: Iterator[Row]) -> None:
        for row in found:
            print(f"{row.id:28}{row.system:44}{row.value:>10} {row.unit}", flush=True)
            rows.append(row)

    trials = 1 if options.quick else 3
    add(quality("small", options.model, (EIGHT, PLAIN_EIGHT, WORKERS, OURS, OWN), trials))
    if options.rnn:
        add(quality("rnnsearch", options.rnn, (EIGHT, OURS), trials))
    peers = {PEERS[name]: python for name, _, python in (peer.partition("=") for peer in options.peers)}
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shapes.split(","):
            add(speed(shape, options.model, sentences, rounds, peers, Path(folder)))
    rows.sort(key=lambda row: (row.id not in GOALS.values(), row.id))
    packages = installed("torch", "ctranslate2", "transformers")
    others = {name: version_in(python, name) for name, python in peers.items()}
    print(write("decoding", rows, device=f"{cpu()}, 2 cores", packages=packages, others=others))


if __name__ == "__main__":
    main()
