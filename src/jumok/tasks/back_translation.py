"""Back-translation: training pairs made of text in the target language alone (Sennrich et al. 2016).

    monolingual target text -> a model of the other direction -> synthetic source, paired with the text it came from

Sources are drawn from the model by default, which trains better models than those that search finds, except where the
model is trained on little (Edunov et al. 2018). The pairs are a TSV for a [[data.mix]], whose `tag` makes it tagged
back-translation (Caswell et al. 2019).

Interrupted work can be resumed: pairs are appended to OUT.part, and OUT.part.json records the settings and how many
lines are done. What is drawn for a line depends on the seed and the line alone, so the file is the same whether it was
made in one run or in several.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from jumok.data.filters import FilterReport
from jumok.decoding.conversion_cache import weights_digest
from jumok.errors import ArgumentError, DataError
from jumok.files import MOST_JSON, atomic_write, parse_json, read_plain, sync_folder
from jumok.progress import TellProgress
from jumok.tasks.translated_text import Translation
from jumok.tasks.translator import Translator

SUFFIX = ".tsv"
RATIO_FROM = 10
"""The ratio of lengths is compared where the longer side has at least this many tokens, as in [filter]."""


@dataclass
class BackTranslated:
    """The progress of the work."""

    settings: str
    """Identifies the model and the settings."""
    lines: int = 0
    """Lines of the text that are done."""
    text: str = ""
    """Digest of these lines."""
    bytes: int = 0
    """Size of the pairs written."""
    report: FilterReport = field(default_factory=FilterReport)
    """Pairs made and dropped."""


def back_translate(
    translator: Translator,
    texts: Iterable[str],
    out: str | Path,
    *,
    samples: int = 1,
    max_ratio: float = 3.0,
    chunk: int = 1024,
    tell: TellProgress | None = None,
    **settings: Any,
) -> Iterator[BackTranslated]:
    """Write a TSV `out` of synthetic sources, which the model writes, and the texts they came from.

    `samples` sources are drawn for each text, of which some may be equal; with `samples=0` beam search finds one.
    `settings` are those of `Translator.translate`. Pairs with an empty side, repeated texts and pairs of which one side
    has more than `max_ratio` times the tokens of the other (0 for any) are dropped. Yields the progress at the
    beginning and after every `chunk` texts; iterate over it to the end. After an interruption, the same call resumes
    where the previous one stopped.
    """
    out = Path(out)
    check_output(out)
    settings |= {"samples": samples}
    part = _Part(out, _identity(translator, {"max_ratio": max_ratio, "chunk": chunk, **settings}))
    lines, history = iter(texts), _TextHistory()
    done = part.resume(lines, history)
    yield done
    while group := list(islice(lines, chunk)):
        # A repeated text becomes an empty one, which costs nothing and keeps the number of its line.
        fresh = [text if history.is_new(text) else "" for text in group]
        translations = translator.translate(fresh, n_best=max(samples, 1), first=done.lines + 1, tell=tell, **settings)
        repeated = sum(bool(text.strip()) and not new for text, new in zip(group, fresh, strict=True))
        pairs = _kept_pairs(translator, translations, repeated, max_ratio, done.report)
        part.append(pairs, done, lines=len(group), text=history.digest)
        yield done
    part.finish()


def check_output(out: Path) -> None:
    """Refuse a file that no recipe would read as pairs, and one that exists."""
    if out.suffix != SUFFIX:
        raise ArgumentError(f"{out} must end in {SUFFIX}, by which data.pairs knows the format; name it {out.stem}.tsv")
    if out.exists():
        raise ArgumentError(f"{out} exists already; delete it, or choose another name")


def _kept_pairs(
    translator: Translator, translations: Sequence[Translation], repeated: int, max_ratio: float, report: FilterReport
) -> list[tuple[str, str]]:
    """The pairs that are kept; all are counted in `report`."""
    kept: list[tuple[str, str]] = []
    report.dropped["duplicate"] += repeated
    report.dropped["empty"] += sum(not each.source.strip() for each in translations) - repeated
    report.read += sum(not each.source.strip() for each in translations)
    for translation in translations:
        if not translation.source.strip():
            continue
        for output in translation.n_best or (translation,):
            rule = _broken_rule(translator, translation.source, output, max_ratio)
            report.read += 1
            if rule is None:
                kept.append((output.text, translation.source))
            else:
                report.dropped[rule] += 1
    return kept


def _broken_rule(translator: Translator, text: str, output: Translation, max_ratio: float) -> str | None:
    if not output.text.strip():
        return "empty"
    written = len(translator.tokenizer.encode(output.text)) - 2
    shorter, longer = sorted((written, translator.size(text)))
    return "ratio" if max_ratio and longer >= RATIO_FROM and longer > max_ratio * shorter else None


class _TextHistory:
    """Which texts have come before, by a 64-bit hash, and a digest of all in their order."""

    def __init__(self) -> None:
        self.hashes: set[int] = set()
        self.all = blake2b(digest_size=16)

    def is_new(self, text: str) -> bool:
        content = text.encode("utf-8", "surrogatepass")
        self.all.update(content + b"\n")
        before = len(self.hashes)
        self.hashes.add(int.from_bytes(blake2b(content.strip(), digest_size=8).digest()))
        return len(self.hashes) > before

    @property
    def digest(self) -> str:
        return self.all.hexdigest()


class _Part:
    """The pairs written so far, beside the file they become."""

    def __init__(self, out: Path, identity: str) -> None:
        self.out, self.identity = out, identity
        self.pairs, self.note = (out.with_name(out.name + end) for end in (".part", ".part.json"))

    def resume(self, lines: Iterator[str], history: _TextHistory) -> BackTranslated:
        """Skip the lines that are done, and remove pairs of an unfinished chunk."""
        done = self._read()
        if done is None:
            return BackTranslated(self.identity)
        if done.settings != self.identity:
            raise ArgumentError(
                f"{self.pairs} was begun with another model or other settings; use those to resume, or delete it"
            )
        for line in islice(lines, done.lines):
            history.is_new(line)
        if history.digest != done.text:
            raise ArgumentError(f"{self.pairs} was begun with another text; give that text to resume, or delete it")
        with self._open() as file:
            if file.seek(0, os.SEEK_END) < done.bytes:
                raise DataError(f"{self.pairs} is cut short; delete it to begin again")
            file.truncate(done.bytes)
        return done

    def append(self, pairs: Iterable[tuple[str, str]], done: BackTranslated, *, lines: int, text: str) -> None:
        """Append the pairs of a chunk, then record that it is done."""
        with self._open() as file:
            file.seek(done.bytes)
            for source, target in pairs:
                file.write(f"{_cell(source)}\t{_cell(target)}\n".encode("utf-8", "replace"))
            done.bytes = file.tell()
            os.fsync(file.fileno())
        done.lines, done.text = done.lines + lines, text
        with atomic_write(self.note) as file:
            file.write(json.dumps(asdict(done)).encode())

    def finish(self) -> None:
        """Rename the file of pairs to its final name."""
        self._open().close()  # no text, no pairs
        os.replace(self.pairs, self.out)
        self.note.unlink(missing_ok=True)
        sync_folder(self.out.parent)

    def _read(self) -> BackTranslated | None:
        if not (self.note.exists() and self.pairs.exists()):
            return None
        with suppress(ValueError, TypeError, KeyError):
            values = cast(dict[str, Any], parse_json(read_plain(self.note, most=MOST_JSON)))
            return BackTranslated(**{**values, "report": FilterReport(**values["report"])})
        raise DataError(f"{self.note} is damaged; delete it and {self.pairs} to begin again")

    def _open(self) -> BinaryIO:
        try:
            self.pairs.parent.mkdir(parents=True, exist_ok=True)
            self.pairs.touch()
            return open(self.pairs, "r+b")
        except OSError as error:
            raise DataError(f"cannot write {self.pairs}: {error.strerror or error}") from None


def _cell(text: str) -> str:
    """A text as a cell of a TSV."""
    return " ".join(text.split()) if "\t" in text or "\n" in text or "\r" in text else text


def _identity(translator: Translator, settings: Mapping[str, Any]) -> str:
    """Identifies the model and the settings that determine its outputs."""
    options = sorted((name, repr(value)) for name, value in settings.items() if value is not None)
    languages = [side.language for side in translator.trained.tokenizers]
    content = f"{weights_digest(translator.trained.model)} {options} {languages}"
    return blake2b(content.encode(), digest_size=16).hexdigest()
