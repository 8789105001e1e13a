"""Decoding on a CPU beside CTranslate2 and Hugging Face: ids cpu-decode and cpu-latency.

    JUMOK_DATA=path/to/data python -m benchmarks.decoding TRANSFORMER [--rnn RNNSEARCH] [--quick]

Speed: base (6+6, 512), small (3+3, 256) and RNNsearch (GRU of 512) with random weights and the vocabulary of the
trained model, on sentences of Multi30k's test set of 2016; every output is forced to 30 tokens, so that all systems
take the same number of steps. Throughput has two threads, latency (one sentence at a time) has one. Every system is a
process of its own; they take turns, and the best turn of each counts. CTranslate2 reads the same weights.

"jumok" is `--precision int8`, to be compared with CTranslate2 in int8; "own engine" is without CTranslate2.

Quality: the trained models translate the test set, with outputs of any length: BLEU and sentences a second.
"""

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Row, cpu, installed, write

LENGTH = 30
BATCH = 32
EIGHT, OURS, OWN = "jumok", "jumok, float32", "jumok, float32, own engine"
PLAIN, PLAIN_EIGHT, WORKERS = "CTranslate2", "CTranslate2 int8", "CTranslate2 int8, a thread for each batch"
MARIAN = "Marian in Hugging Face"
SLOW = {OWN, MARIAN}
"""Systems that are given a quarter of the sentences, or less in a quick run."""
TRANSFORMERS = {"base": (6, 512), "small": (3, 256)}
SYSTEMS = {
    "base": (EIGHT, PLAIN_EIGHT, WORKERS, OURS, PLAIN, OWN, MARIAN),
    "small": (EIGHT, PLAIN_EIGHT, WORKERS, OURS, PLAIN, OWN, MARIAN),
    "rnnsearch": (EIGHT, OURS),
}
GOALS = {"throughput-base-beam-5": "cpu-decode", "latency-base-beam-5": "cpu-latency"}


class Task(NamedTuple):
    """What a worker does: a system with a model, a beam, and a number of threads."""

    system: str
    shape: str
    beam: int
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


def translate_with(task: Task) -> Callable[[Sequence[str]], Any]:
    """A function that translates texts by the system; the trained model to any length, others to LENGTH tokens."""
    import torch

    import jumok

    torch.set_num_threads(task.threads)
    trained = task.shape == "trained"
    if task.system == MARIAN:
        return marian(task)
    translator = jumok.load(task.model, device="cpu") if trained else random_translator(task.shape, task.model)
    if task.system in (PLAIN, PLAIN_EIGHT, WORKERS):
        return plain(task, translator)
    settings: dict[str, Any] = {"beam": task.beam, "precision": "int8" if task.system == EIGHT else "float32"}
    settings["engine"] = "jumok" if task.system == OWN else "auto"
    if trained or task.shape == "rnnsearch" or task.system == OWN:
        forced = {} if trained else {"min_length": LENGTH, "max_length": LENGTH}
        if not trained:
            translator.engines.folder = Path(task.model)  # for the shortlist
        return lambda texts: translator.translate(texts, **settings, **forced)
    return forced_engine(task, translator)


def forced_engine(task: Task, translator: Any) -> Callable[[Sequence[str]], Any]:
    """Our use of CTranslate2, with outputs of one length, which our own search would otherwise write."""
    from jumok.decoding.config import DecodingConfig

    engines = translator.engines
    engines.folder, shortlist = Path(task.model), engines.shortlist
    found = shortlist()
    engines.folder, engines.shortlist = None, lambda: found  # the export is of other weights than the folder's
    precision = "int8" if task.system == EIGHT else "float32"
    engine = engines._made(precision)
    config = DecodingConfig(beam=task.beam, min_length=LENGTH, max_length=LENGTH, precision=precision)
    encode = translator.trained.tokenizers.source.encode

    def translate(texts: Sequence[str]) -> Any:
        outputs = engine.generate([encode(text)[1:] for text in texts], [LENGTH] * len(texts), config)
        assert all(len(output[0].ids) == LENGTH for output in outputs)

    return translate


def plain(task: Task, translator: Any) -> Callable[[Sequence[str]], Any]:
    """CTranslate2 as its documentation shows it."""
    import tempfile

    import ctranslate2

    from jumok.exchange.to_ctranslate2 import export_model

    precision = "float32" if task.system == PLAIN else "int8"
    threads = (task.threads, 1) if task.system == WORKERS else (1, task.threads)
    with tempfile.TemporaryDirectory() as folder:
        export_model(translator.trained, folder, quantization=precision)
        engine = ctranslate2.Translator(
            folder, compute_type=precision, inter_threads=threads[0], intra_threads=threads[1]
        )
    tokenizers = translator.trained.tokenizers
    forced = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH} if task.shape != "trained" else {}

    def translate(texts: Sequence[str]) -> list[str]:
        pieces = [[tokenizers.source.pieces[id] for id in tokenizers.source.encode(text)[1:]] for text in texts]
        found = engine.translate_batch(pieces, beam_size=task.beam, max_batch_size=BATCH, **forced)
        ids = {piece: number for number, piece in enumerate(tokenizers.target.pieces)}
        return [tokenizers.target.decode([ids[piece] for piece in one.hypotheses[0]]) for one in found]

    return translate


def marian(task: Task) -> Callable[[Sequence[str]], Any]:
    import torch

    import jumok
    from jumok.bench.peers import TransformerShape
    from jumok.bench.peers import marian as random_marian
    from jumok.data import pad

    tokenizer = jumok.load(task.model, device="cpu").trained.tokenizers.source
    layers, width = TRANSFORMERS[task.shape]
    model = random_marian(TransformerShape(layers, width, tokenizer.size)).eval()
    forced = {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH, "num_beams": task.beam, "do_sample": False}

    def translate(texts: Sequence[str]) -> None:
        for start in range(0, len(texts), BATCH):
            ids, visible = pad([tokenizer.encode(text)[1:] for text in texts[start : start + BATCH]])
            with torch.inference_mode():
                model.generate(input_ids=ids, attention_mask=visible.long(), **forced)

    return translate


def work(task: Task) -> None:
    """Answer each line of standard input, "many" or "one", with the seconds that it took."""
    started = time.time()
    translate = translate_with(task)
    texts = test_set("en")[: task.sentences]
    translate(texts[:1])
    ready = time.time() - started
    print(json.dumps({"ready": ready}), flush=True)
    for line in sys.stdin:
        chosen = texts if line.strip() == "many" else texts[:4]
        times, output = [], None
        for group in [chosen] if line.strip() == "many" else [[text] for text in chosen]:
            start = time.perf_counter()
            output = translate(group)
            times.append(time.perf_counter() - start)
        answer: dict[str, Any] = {"seconds": sorted(times)[len(times) // 2]}
        answer["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if task.shape == "trained":
            answer["outputs"] = [one if isinstance(one, str) else one.text for one in output or []]
        print(json.dumps(answer), flush=True)


# In the process that compares


class Worker:
    """The process of one system."""

    def __init__(self, task: Task) -> None:
        self.task, self.best, self.memory, self.outputs = task, float("inf"), 0.0, []
        environment = os.environ | {name: str(task.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.decoding", "--worker", json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.ready = self._answer()["ready"]

    def run(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.best = min(self.best, answer["seconds"])
        self.memory = answer["memory"]
        self.outputs = answer.get("outputs", [])

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


def turns(tasks: list[Task], what: str, rounds: int) -> list[Worker]:
    """Every system runs once in every round."""
    workers = [Worker(task) for task in tasks]
    for _ in range(rounds):
        for worker in workers:
            worker.run(what)
    for worker in workers:
        worker.end()
    return workers


def speed(shape: str, beam: int, model: str, sentences: int, rounds: int) -> Iterator[Row]:
    """Throughput and latency; with beam 5, memory and start-up as well."""
    forced = f"random weights, {LENGTH} tokens out"

    def tasks(threads: int) -> list[Task]:
        few = {system: sentences // 4 if system in SLOW else sentences for system in SYSTEMS[shape]}
        return [Task(system, shape, beam, threads, model, few[system]) for system in SYSTEMS[shape]]

    for done in turns(tasks(2), "many", rounds):
        name, task = f"throughput-{shape}-beam-{beam}", done.task
        conditions = f"{task.sentences} sentences of Multi30k, {forced}, two threads; best of {rounds}"
        tokens = task.sentences * LENGTH / done.best
        yield Row(GOALS.get(name, name), task.system, round(tokens), "tok/s", conditions)
        if beam == 5:
            yield Row(f"memory-{shape}", task.system, round(done.memory), "MiB", f"peak, {conditions}")
            yield Row(f"start-{shape}", task.system, round(done.ready, 2), "s", "to the first translation, from Python")
    for done in turns(tasks(1), "one", rounds):
        name = f"latency-{shape}-beam-{beam}"
        conditions = f"median of 4 sentences one by one, {forced}, one thread; best of {rounds}"
        yield Row(GOALS.get(name, name), done.task.system, round(1000 * done.best, 1), "ms", conditions)


def quality(name: str, model: str, systems: Sequence[str], beam: int, rounds: int) -> Iterator[Row]:
    """BLEU of a trained model, and the sentences a second at which it was reached."""
    import sacrebleu

    references = test_set("de")
    sentences = len(references)
    for done in turns([Task(system, "trained", beam, 2, model, sentences) for system in systems], "many", rounds):
        bleu = sacrebleu.metrics.BLEU()
        score = bleu.corpus_score(done.outputs, [references]).score
        conditions = f"Multi30k en-de 2016, {sentences} sentences, beam {beam}, two threads"
        signature = bleu.get_signature()
        yield Row(f"bleu-{name}-beam-{beam}", done.task.system, round(score, 2), "BLEU", f"{conditions}; {signature}")
        rate = round(sentences / done.best, 1)
        yield Row(
            f"sentences-{name}-beam-{beam}", done.task.system, rate, "sentences/s", f"{conditions}; best of {rounds}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder of a Transformer trained on Multi30k en-de")
    parser.add_argument("--rnn", help="folder of an RNN trained on it")
    parser.add_argument("--quick", action="store_true", help="fewer sentences and rounds; some minutes in all")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(Task(*json.loads(options.worker)))
        return
    sentences, rounds = (32, 2) if options.quick else (256, 4)
    rows: list[Row] = []

    def add(found: Iterator[Row]) -> None:
        for row in found:
            print(f"{row.id:28}{row.system:44}{row.value:>10} {row.unit}", flush=True)
            rows.append(row)

    trials = 1 if options.quick else 3
    for beam in (5, 1):
        add(quality("small", options.model, (OWN, OURS, EIGHT, PLAIN_EIGHT, WORKERS), beam, trials))
        if options.rnn:
            add(quality("rnnsearch", options.rnn, (OURS, EIGHT), beam, trials))
    for shape in SYSTEMS:
        for beam in (5, 1):
            add(speed(shape, beam, options.model, sentences, rounds))
    rows.sort(key=lambda row: (row.id not in GOALS.values(), row.id))
    print(
        write("decoding", rows, device=f"{cpu()}, 2 cores", packages=installed("torch", "ctranslate2", "transformers"))
    )


if __name__ == "__main__":
    main()
