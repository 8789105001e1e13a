"""The REST API: translation, captions, classes of nodes, attention, alignment, beam search, and the server itself."""

from dataclasses import asdict, replace
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse

import jumok
from jumok.analysis.draw.page import MOST, attention_page
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.scores.word_probabilities import OutputProbabilities
from jumok.data import Pair
from jumok.errors import ArgumentError
from jumok.serve.errors import TooLargeError
from jumok.serve.jobs import (
    AlignmentJob,
    AttentionJob,
    BegunText,
    ForcedOutput,
    SearchWatcher,
    TranslationJob,
)
from jumok.serve.messages import (
    AlignAnswer,
    AlignRequest,
    AlternativesAnswer,
    AlternativesRequest,
    AttentionAnswer,
    AttentionRequest,
    BeamAnswer,
    CaptionAnswer,
    CaptionRequest,
    ClassifyAnswer,
    ClassifyRequest,
    HealthAnswer,
    LimitsAnswer,
    ModelAnswer,
    ModelsAnswer,
    PageRequest,
    Problem,
    SearchRequest,
    TextRequest,
    TranslateAnswer,
    TranslateRequest,
    TranslationAnswer,
    attention_answer,
    class_facts,
    languages_of,
    map_options,
)
from jumok.serve.models import Reads, ServedGenerator, ServedMapper, ServedModel, find_model
from jumok.serve.service import Service
from jumok.serve.stream import open_stream, send_events
from jumok.tasks.results import Classification, MapOptions, MappedOutput
from jumok.tasks.translated_text import Translation

STATUSES = {
    400: "The body is not JSON.",
    401: "The API key is missing or wrong.",
    404: "Unknown model.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or the request needs too much work.",
    415: "The content type is not application/json.",
    421: "Unknown host name.",
    422: "A value is invalid.",
    429: "Too many wrong keys.",
    503: "Too many requests are waiting; try again soon.",
    504: "The request took too long.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description} for status, description in STATUSES.items()
}
HOST_ERRORS: dict[int | str, dict[str, Any]] = {421: ERRORS[421]}
KEY_ERRORS = {401: ERRORS[401], 429: ERRORS[429], **HOST_ERRORS}
EVENT = {"type": "object", "properties": {"event": {"enum": ["partial", "done", "error"]}, "data": {"type": "string"}}}
EVENTS = {"content": {"text/event-stream": {"schema": EVENT}}, "description": "Events partial, then done or error."}
HTML = {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "A page."}
PROMETHEUS = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The metrics."}
IMAGE_PATHS = ("/api/caption", "/api/attention", "/api/page")
"""Where requests may have an image."""


def translation_routes(service: Service, security: list[Any]) -> APIRouter:
    """The routes that use a translator."""
    router = APIRouter(prefix="/api", tags=["translation"], responses=ERRORS, dependencies=security)

    @router.post("/translate")
    async def translate(body: TranslateRequest, request: Request) -> TranslateAnswer:
        """Translate one or more texts; the translations have the order of the texts."""
        job = await _search_job(service, body)
        texts = [body.text] if isinstance(body.text, str) else body.text
        translations = await service.translations(request, job, texts)
        answers = [TranslationAnswer.of(translation, job.model) for translation in translations]
        return TranslateAnswer(model=job.model.name, translations=answers)

    @router.post("/stream", response_class=Response, responses={200: EVENTS})
    async def stream(body: TextRequest, request: Request) -> StreamingResponse:
        """Translate one text and stream it: server-sent events `partial` with the best output so far, then `done`."""
        job = await _search_job(service, body)
        service.check_texts(job, [body.text])
        opened = await open_stream(service, job, body.text, request)
        return StreamingResponse(send_events(service, job, opened), media_type="text/event-stream")

    @router.post("/alternatives")
    async def alternatives(body: AlternativesRequest, request: Request) -> AlternativesAnswer:
        """Return translations that begin with a prefix and go on with different words, best first."""
        job = await service.alternatives_job(body.model, body.beam, body.count, body.tag, languages=languages_of(body))
        service.limits.check_texts([body.text])
        service.limits.check_required(body.prefix, None, [body.text])
        (translations,) = await service.results(request, job, [BegunText(body.text, body.prefix)])
        return AlternativesAnswer.of(translations, body.prefix, job.model)

    @router.post("/beam")
    async def beam(body: TextRequest, request: Request) -> BeamAnswer:
        """Return the beam search as a tree: the hypotheses that each step kept, with their parents and scores."""
        job = await _search_job(service, body)
        service.check_texts(job, [body.text])
        watcher = SearchWatcher(job.model)
        (translation,) = await service.results(request, job, [job.source(body.text, watcher)])
        _check_one_part(translation, "search tree")
        steps = await run_in_threadpool(watcher.steps, translation)
        return BeamAnswer(
            model=job.model.name, source=translation.source, text=translation.text, beam=job.beam, steps=steps
        )

    @router.post("/align")
    async def align(body: AlignRequest, request: Request) -> AlignAnswer:
        """Align the words of a sentence and its translation by the attention of the model."""
        model = await service.translator_between(body.model, languages_of(body))
        service.limits.check_texts([body.source, body.target])
        model.check_attention()
        model.generator.check_source(model.generator.tagged(body.source, body.tag))
        tag = "" if body.tag is None else model.generator.tag_named(body.tag)
        model.output_ids(body.target)
        model.check_head(body.layer, body.head)
        await run_in_threadpool(getattr, model, "aligner")  # the first time takes seconds, outside the queue
        pair = Pair(body.source, body.target)
        (links,) = await service.results(request, AlignmentJob(model, body.layer, body.head, tag), [pair])
        return AlignAnswer.of(model, pair, links, model.aligner_with(body.layer, body.head).head)

    return router


def attention_routes(service: Service, security: list[Any]) -> APIRouter:
    """The routes that caption an image or classify a node, and those that show the attention of any model."""
    router = APIRouter(prefix="/api", responses=ERRORS, dependencies=security)

    async def has_captioner() -> None:
        service.captioner(None)

    # A dependency, because it comes before the check of the image.
    @router.post("/caption", tags=["captioning"], dependencies=[Depends(has_captioner)])
    async def caption(body: CaptionRequest, request: Request) -> CaptionAnswer:
        """Describe an image."""
        job = service.caption_job(body.model, body.beam, body.n_best)
        async with service.time_limit():
            image = await service.image(body.image)
            return CaptionAnswer.of(await service.caption(request, job, image), job.model)

    async def has_classifier() -> None:
        service.mapper(None, "node")

    @router.post("/classify", tags=["graphs"], dependencies=[Depends(has_classifier)])
    async def classify(body: ClassifyRequest, request: Request) -> ClassifyAnswer:
        """Return the class of a node: the probability of every class, and the true one if it is known."""
        model = service.mapper(body.model, "node")
        output = await _mapped(service, request, model, str(body.node), MapOptions())
        if output.classification is None:
            raise ArgumentError(f"the model {model.name} gives a node no class; /api/attention shows its attention")
        return ClassifyAnswer(model=model.name, node=body.node, **class_facts(output.classification))

    @router.post("/attention", tags=["attention"], response_model=AttentionAnswer)
    async def attention(body: AttentionRequest, request: Request) -> JSONResponse:
        """Return the attention of a node, or of each word of a translation or caption: the model's or a given one."""
        model, attention, text, probabilities, classification = await _output(service, body, request)
        if not body.tokens:
            attention = replace(attention, tokens=None)
        answer = await run_in_threadpool(attention_answer, model, attention, text, probabilities, classification)
        return JSONResponse(answer)

    @router.post("/page", tags=["attention"], response_class=Response, responses={200: HTML})
    async def page(body: PageRequest, request: Request) -> HTMLResponse:
        """Return the attention as an HTML page: all layers and heads, works offline."""
        output = await _output(service, body, request)
        title = output.text if body.text is None or body.kind == "decoder" else f"{body.text} → {output.text}"
        title = str(body.text) if body.kind == "encoder" else title
        return HTMLResponse(
            await run_in_threadpool(attention_page, replace(output.attention, title=title[:300]), body.language)
        )

    return router


def server_routes(service: Service, security: list[Any]) -> APIRouter:
    """The routes that describe the server."""
    router = APIRouter(tags=["server"])

    @router.get("/health", responses=HOST_ERRORS)
    async def health() -> HealthAnswer:
        """Return whether the server is running."""
        return HealthAnswer(status="ok", version=jumok.__version__)

    @router.get("/api/models", responses=KEY_ERRORS, dependencies=security)
    async def models() -> ModelsAnswer:
        """List the models and the limits of a request."""
        limits = LimitsAnswer(**asdict(service.limits))
        return ModelsAnswer(models=[ModelAnswer.of(model) for model in service.models.values()], limits=limits)

    @router.get("/metrics", response_class=Response, responses={200: PROMETHEUS, **KEY_ERRORS}, dependencies=security)
    async def metrics() -> Response:
        """Return metrics for Prometheus: requests, errors, queue, batches, latency, tokens."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/openapi.json", include_in_schema=False, dependencies=security)
    async def openapi(request: Request) -> JSONResponse:
        return JSONResponse(request.app.openapi())

    @router.get("/api", include_in_schema=False, dependencies=security)
    async def index(request: Request) -> JSONResponse:
        """List the endpoints."""
        paths = {
            f"{method.upper()} {path}": operation["description"].partition(":")[0].rstrip(".")
            for path, operations in request.app.openapi()["paths"].items()
            for method, operation in operations.items()
        }
        return JSONResponse({"version": jumok.__version__, "page": "/", "openapi": "/openapi.json", "paths": paths})

    return router


async def _search_job(service: Service, body: SearchRequest) -> TranslationJob:
    return await service.translation_job(
        body.model,
        body.beam,
        body.n_best,
        body.tag,
        languages=languages_of(body),
        prefix=body.prefix,
        terms=body.terms,
    )


class AttendedOutput(NamedTuple):
    """The output of a model with its attention."""

    model: ServedModel
    attention: AttentionMap
    text: str
    probabilities: OutputProbabilities | None = None
    """Of the words of a generated text."""
    classification: Classification | None = None


async def _output(service: Service, body: AttentionRequest, request: Request) -> AttendedOutput:
    async with service.time_limit():  # for all steps together
        if body.image is not None:
            return await _caption_attention(service, body, request, body.image)
        reads: Reads = "text" if body.node is None else "node"
        source = body.text or "" if body.node is None else str(body.node)
        model = find_model(service.models, body.model, reads, ServedModel)
        if isinstance(model, ServedMapper):
            return await _mapped_attention(service, body, request, model, source)
        return await _translation_attention(service, body, request, source)


async def _mapped_attention(
    service: Service, body: AttentionRequest, request: Request, model: ServedMapper, source: str
) -> AttendedOutput:
    if body.target_ids is not None:
        raise ArgumentError(
            f"target_ids does not apply to the model {model.name}, which generates no text; leave it out"
        )
    output = await _mapped(service, request, model, source, map_options(body))
    (shown,) = output.maps
    if shown.weights.numel() > MOST:
        raise TooLargeError(f"the map has {shown.weights.numel():,} weights, more than the {MOST:,} allowed")
    return AttendedOutput(model, shown, output.facts["text"], None, output.classification)


async def _mapped(
    service: Service, request: Request, model: ServedMapper, source: str, options: MapOptions
) -> MappedOutput:
    """The output of a model whose task draws maps."""
    service.limits.check_texts([source, options.target or ""])
    output: MappedOutput
    (output,) = await service.results(request, service.map_job(model, options), [source])
    return output


async def _translation_attention(
    service: Service, body: AttentionRequest, request: Request, text: str
) -> AttendedOutput:
    service.limits.check_texts([text, body.target or ""])
    job = await service.translation_job(body.model, body.beam, 1, body.tag, languages=languages_of(body))
    job.model.check_attention(body.kind)
    tagged = job.model.generator.tagged(text, body.tag)
    job.model.generator.check_source(tagged)
    ids = _given_ids(job.model, body)
    if ids is None:
        (translation,) = await service.translations(request, job, [text])
        _check_one_part(translation, "attention map")
        ids = translation.pieces[0][1]
    return await _forced_attention(service, body, request, job.model, ForcedOutput(tagged, ids))


async def _caption_attention(
    service: Service, body: AttentionRequest, request: Request, content: bytes
) -> AttendedOutput:
    service.limits.check_texts([body.target or ""])
    job = service.caption_job(body.model, body.beam, 1)
    job.model.between(languages_of(body))  # which refuses them: a caption has no languages to choose from
    job.model.check_attention(body.kind)
    ids = _given_ids(job.model, body)
    image = await service.image(content)
    if ids is None:
        ids = (await service.caption(request, job, image)).ids
    return await _forced_attention(service, body, request, job.model, ForcedOutput(image, ids))


async def _forced_attention(
    service: Service, body: AttentionRequest, request: Request, model: ServedGenerator[Any], output: ForcedOutput
) -> AttendedOutput:
    (shown,) = await service.results(request, AttentionJob(model, body.words, body.kind), [output])
    return AttendedOutput(model, shown.attention, model.generator.tokenizer.decode(output.ids), shown.probabilities)


def _given_ids(model: ServedGenerator[Any], body: AttentionRequest) -> tuple[int, ...] | None:
    """The tokens of the target in the request; None if it has no target."""
    target = body.target if body.target_ids is None else body.target_ids
    return None if target is None else model.output_ids(target)


def _check_one_part(translation: Translation, what: str) -> None:
    if len(translation.pieces) > 1:
        raise ArgumentError(
            f"there is no single {what}: the text was translated in {len(translation.pieces)} parts; send each part "
            "by itself, with the source and ids of the pieces from /api/translate"
        )
