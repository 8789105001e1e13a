"""What all routes share: the models, the queue, the limits and the metrics."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from jumok.data.terms import Terms
from jumok.errors import ArgumentError
from jumok.images.files import Pixels, decode_image, reduced
from jumok.serve.auth import client_address
from jumok.serve.batching import Batcher
from jumok.serve.errors import ClientGoneError, TimeLimitError
from jumok.serve.jobs import AlternativesJob, CaptionJob, MapJob, TranslationJob
from jumok.serve.limits import Limits
from jumok.serve.metrics import ServerMetrics
from jumok.serve.models import Reads, ServedGenerator, ServedMapper, ServedModel, find_model
from jumok.serve.queue import Job
from jumok.tasks.captioner import Caption, Captioner
from jumok.tasks.results import LANGUAGES_OF_MODEL, Languages, MapOptions
from jumok.tasks.translated_text import Translation
from jumok.tasks.translator import Translator

MAX_IMAGE_SIDE = 1024
"""Larger images are reduced to so many pixels, so that a queue of them fits into memory."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Service:
    """The models of one server and the thread that computes."""

    models: Mapping[str, ServedModel]
    batcher: Batcher
    limits: Limits
    metrics: ServerMetrics
    decoding: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while an image is decoded: a file of a few bytes can take a gigabyte of memory, and two would take two."""

    @classmethod
    def start(
        cls, models: Mapping[str, ServedModel], limits: Limits, *, batch_tokens: int = 4096, window: float = 0.003
    ) -> "Service":
        """A service with its own queue; `close` ends it."""
        metrics = ServerMetrics()
        batcher = Batcher(
            batch_tokens=batch_tokens,
            window=window,
            capacity=limits.queue,
            seconds=limits.seconds,
            on_batch=lambda size: metrics.batches.observe(size),
        )
        metrics.watch_queue(lambda: batcher.depth)
        return cls(models, batcher, limits, metrics)

    def close(self) -> None:
        """Finish what was accepted."""
        self.batcher.close()

    @property
    def reads_images(self) -> bool:
        """Whether some model reads images."""
        return any(model.reads == "image" for model in self.models.values())

    def translator(self, name: str | None) -> ServedGenerator[Translator]:
        """The translator of that name, or the first one."""
        return find_model(self.models, name, "text", ServedGenerator)

    def captioner(self, name: str | None) -> ServedGenerator[Captioner]:
        """The captioner of that name, or the first one."""
        return find_model(self.models, name, "image", ServedGenerator)

    def mapper(self, name: str | None, reads: Reads) -> ServedMapper:
        """The model of that name whose task draws maps of texts or nodes, or the first one."""
        return find_model(self.models, name, reads, ServedMapper)

    async def translator_between(self, name: str | None, languages: Languages) -> ServedGenerator[Translator]:
        """The translator of that name, or the first one, between two of its languages."""
        model = self.translator(name)
        if languages == LANGUAGES_OF_MODEL:
            return model
        return await run_in_threadpool(model.between, languages)  # whose tokenizers may take a moment

    async def translation_job(
        self,
        model: str | None,
        beam: int | None,
        n_best: int,
        tag: str | None = None,
        *,
        languages: Languages = LANGUAGES_OF_MODEL,
        prefix: str = "",
        terms: Mapping[str, str] | None = None,
    ) -> TranslationJob:
        """A translation within the limits."""
        translator = await self.translator_between(model, languages)
        translator.generator.tagged("", tag)  # an unknown tag is refused at once
        beam = self._beam(translator, beam, n_best)
        return TranslationJob(translator, beam, n_best, tag, prefix, Terms(terms) if terms else None)

    async def alternatives_job(
        self,
        model: str | None,
        beam: int | None,
        count: int,
        tag: str | None = None,
        *,
        languages: Languages = LANGUAGES_OF_MODEL,
    ) -> AlternativesJob:
        """Other words in a translation, within the limits."""
        translator = await self.translator_between(model, languages)
        translator.generator.tagged("", tag)
        if count > self.limits.beam:
            raise ArgumentError(f"count = {count} is more than the {self.limits.beam} allowed")
        return AlternativesJob(translator, self._beam(translator, beam, 1), count, tag)

    def caption_job(self, model: str | None, beam: int | None, n_best: int) -> CaptionJob:
        """A caption within the limits."""
        captioner = self.captioner(model)
        return CaptionJob(captioner, self._beam(captioner, beam, n_best), n_best)

    def map_job(self, model: ServedMapper, options: MapOptions) -> MapJob:
        """A map within the limits."""
        model.check_options(options)
        if (options.beam or 0) > self.limits.beam:
            raise ArgumentError(f"beam = {options.beam} is more than the {self.limits.beam} allowed")
        return MapJob(model, options)

    def _beam(self, model: ServedGenerator[Any], beam: int | None, n_best: int) -> int:
        """The beam size; defaults to that of the model, or to `n_best` if that is larger."""
        size = max(model.generator.decoding.beam, n_best) if beam is None else beam
        if size > self.limits.beam:
            name = "n_best" if beam is None else "beam"
            raise ArgumentError(f"{name} = {size} is more than the {self.limits.beam} allowed")
        if n_best > size:
            raise ArgumentError(f"n_best = {n_best} is more than beam = {size}")
        return size

    async def image(self, content: bytes) -> Pixels:
        """Decode an image file, one at a time."""
        if len(content) > self.limits.image_bytes:
            raise ArgumentError(
                f"the image has {len(content)} bytes, but at most {self.limits.image_bytes} are allowed; reduce it"
            )
        async with self.decoding:
            return await run_in_threadpool(_decode, content)

    async def results(self, request: Request, job: Job, items: Sequence[Any]) -> list[Any]:
        """The results of a job, in the order of the items; dropped when time is up or the client disconnects."""
        futures = self.batcher.submit(job, items, client_address(request.scope))
        try:
            return await self.wait_for(request, asyncio.gather(*map(asyncio.wrap_future, futures)))
        finally:
            self.batcher.cancel(futures)

    async def translations(self, request: Request, job: TranslationJob, texts: Sequence[str]) -> list[Translation]:
        """The translations of texts."""
        self.check_texts(job, texts)
        translations = await self.results(request, job, [job.source(text) for text in texts])
        self.count(job.model, translations)
        return translations

    def check_texts(self, job: TranslationJob, texts: Sequence[str]) -> None:
        """Raise an ArgumentError for texts that exceed the limits, alone or with what is required of them."""
        self.limits.check_texts(texts)
        self.limits.check_required(job.prefix, job.terms, texts)

    async def caption(self, request: Request, job: CaptionJob, image: Pixels) -> Caption:
        """The caption of an image."""
        caption: Caption
        (caption,) = await self.results(request, job, [image])
        self.metrics.count_tokens(job.model.name, source=job.size(image), target=len(caption.ids))
        return caption

    def count(self, model: ServedGenerator[Translator], translations: Sequence[Translation]) -> None:
        """Count the tokens of translations."""
        parts = [part for translation in translations for part in translation.pieces]
        source, target = sum(len(part.source_ids) for part in parts), sum(len(part.ids) for part in parts)
        self.metrics.count_tokens(model.name, source=source, target=target)

    async def wait_for(self, request: Request, answer: asyncio.Future[Result]) -> Result:
        """The answer, unless time is up or the client, whose body must have been read, disconnects."""
        gone = asyncio.ensure_future(_disconnected(request))
        either: set[asyncio.Future[Any]] = {answer, gone}
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # or asyncio logs a late error
        try:
            await asyncio.wait(either, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise ClientGoneError("the client disconnected") if gone.done() else TimeLimitError(self.limits.seconds)
        finally:
            gone.cancel()
            answer.cancel()

    @asynccontextmanager
    async def time_limit(self) -> AsyncIterator[None]:
        """Several steps that share the time of one request."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                yield
        except TimeoutError:
            raise TimeLimitError(self.limits.seconds) from None


def _decode(content: bytes) -> Pixels:
    return reduced(decode_image(content, "upload"), MAX_IMAGE_SIDE)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
