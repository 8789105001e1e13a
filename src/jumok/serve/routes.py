"""The REST interface: translate, watch, look, align, and what the server says of itself."""

from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse

import jumok
from jumok.analysis.draw.page import attention_page
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.data import Pair
from jumok.errors import ArgumentError
from jumok.serve.answers import align_answer, attention_answer, model_answer, translation_answer
from jumok.serve.messages import (
    AlignAnswer,
    AlignRequest,
    AttentionAnswer,
    AttentionRequest,
    BeamAnswer,
    HealthAnswer,
    LimitsAnswer,
    ModelsAnswer,
    PageRequest,
    Problem,
    TextRequest,
    TranslateAnswer,
    TranslateRequest,
)
from jumok.serve.models import Served
from jumok.serve.service import Service
from jumok.serve.stream import first_event, stream_events
from jumok.serve.tree import Watched
from jumok.serve.waiting import within
from jumok.serve.work import Align, Asked, Look, checked_head, checked_pair

PROBLEMS = {
    400: "the body is not JSON",
    401: "the server asks for a key",
    404: "no such model",
    408: "the body came too slowly",
    413: "the body is too large, or the texts cost more than can be done in time",
    415: "the body is not said to be JSON",
    421: "the request is for another host",
    422: "a value that cannot be used",
    429: "too many wrong keys",
    503: "too many wait; try again soon",
    504: "it took too long",
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": said} for status, said in PROBLEMS.items()
}
MISSENT: dict[int | str, dict[str, Any]] = {421: ANSWERS[421]}
LOCKED = {401: ANSWERS[401], 429: ANSWERS[429], **MISSENT}
EVENT = {"type": "object", "properties": {"event": {"enum": ["partial", "done", "error"]}, "data": {"type": "string"}}}
EVENTS = {"content": {"text/event-stream": {"schema": EVENT}}, "description": "events partial, then done or error"}
HTML = {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "a page"}
PROMETHEUS = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "the counters"}


def api_routes(service: Service) -> APIRouter:
    """What needs a model."""
    router = APIRouter(prefix="/api", responses=ANSWERS)

    @router.post("/translate", tags=["translate"])
    async def translate(asked: TranslateRequest, request: Request) -> TranslateAnswer:
        """Translate one text or many; answers come in the order of the texts."""
        work = service.translate(asked.model, asked.beam, asked.n_best)
        texts = [asked.text] if isinstance(asked.text, str) else asked.text
        found = await service.translations(request, work, texts)
        return TranslateAnswer(model=work.model.name, translations=[translation_answer(one) for one in found])

    @router.post("/stream", tags=["translate"], response_class=Response, responses={200: EVENTS})
    async def stream(asked: TextRequest, request: Request) -> StreamingResponse:
        """Translate while you watch: server-sent events `partial`, the best so far after each step, then `done`."""
        work = service.translate(asked.model, asked.beam, asked.n_best)
        service.check_texts([asked.text])
        events = await first_event(service, work, asked.text, request)
        return StreamingResponse(stream_events(service, work, events), media_type="text/event-stream")

    @router.post("/beam", tags=["look"])
    async def beam(asked: TextRequest, request: Request) -> BeamAnswer:
        """The search as a tree: the hypotheses that each step kept, with their parents and scores."""
        work = service.translate(asked.model, asked.beam, asked.n_best)
        service.check_texts([asked.text])
        watched = Watched(work.model)
        (found,) = await service.results(request, work, [Asked(asked.text, watched)])
        if len(found.pieces) > 1:
            raise ArgumentError(f"there is no one tree: the text was translated in {len(found.pieces)} parts")
        steps = await run_in_threadpool(watched.steps, found)
        return BeamAnswer(model=work.model.name, source=found.source, text=found.text, beam=work.beam, steps=steps)

    @router.post("/attention", tags=["look"], response_model=AttentionAnswer)
    async def attention(asked: AttentionRequest, request: Request) -> JSONResponse:
        """Where each word of a translation looked: of the model's own, or of one it is made to say."""
        model, shown, text = await _looked(service, asked, request)
        both = shown if asked.tokens else replace(shown, tokens=None)
        return JSONResponse(await run_in_threadpool(attention_answer, model, both, text))

    @router.post("/page", tags=["look"], response_class=Response, responses={200: HTML})
    async def page(asked: PageRequest, request: Request) -> HTMLResponse:
        """The same as one page to keep: every layer and head, to be opened offline in any browser."""
        _, shown, text = await _looked(service, asked, request)
        titled = replace(shown, title=f"{asked.text} → {text}"[:300])
        return HTMLResponse(await run_in_threadpool(attention_page, titled, asked.language))

    @router.post("/align", tags=["look"])
    async def align(asked: AlignRequest, request: Request) -> AlignAnswer:
        """Which word of a translation belongs to which word of its source, by where the model looked."""
        model = service.model(asked.model)
        service.check_texts([asked.source, asked.target])
        checked_pair(model, asked.source, asked.target)
        checked_head(model, asked.layer, asked.head)
        await run_in_threadpool(getattr, model, "aligner")  # the first time it takes seconds, and nobody should wait
        pair = Pair(asked.source, asked.target)
        (links,) = await service.results(request, Align(model, asked.layer, asked.head), [pair])
        return align_answer(model, pair, links, model.aligner_with(asked.layer, asked.head).head)

    return router


def own_routes(service: Service) -> APIRouter:
    """What the server says of itself."""
    router = APIRouter(tags=["server"])

    @router.get("/api/models", responses=LOCKED)
    async def models() -> ModelsAnswer:
        """The models, what they are, and the limits of a request."""
        known = [model_answer(served) for served in service.models.values()]
        return ModelsAnswer(models=known, limits=LimitsAnswer(**asdict(service.limits)))

    @router.get("/api", include_in_schema=False)
    async def index(request: Request) -> JSONResponse:
        """What there is, for whoever comes without a map."""
        described = request.app.openapi()["paths"]
        paths = {
            f"{method.upper()} {path}": said["description"].partition(":")[0].rstrip(".")
            for path, methods in described.items()
            for method, said in methods.items()
        }
        return JSONResponse({"version": jumok.__version__, "page": "/", "openapi": "/openapi.json", "paths": paths})

    @router.get("/health", responses=MISSENT)
    async def health() -> HealthAnswer:
        """Whether the server is there."""
        return HealthAnswer(status="ok", version=jumok.__version__)

    @router.get("/metrics", response_class=Response, responses={200: PROMETHEUS, **LOCKED})
    async def metrics() -> Response:
        """Counters for Prometheus: requests, errors, queue, batches, latency, tokens."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


async def _looked(service: Service, asked: AttentionRequest, request: Request) -> tuple[Served, AttentionMap, str]:
    """The map of what the model is made to say: the ids or the text given, else its own translation."""
    if asked.target is not None and asked.target_ids is not None:
        raise ArgumentError("target and target_ids are two ways to say one thing; give one of them")
    service.check_texts([asked.text, asked.target or ""])
    work = service.translate(asked.model, asked.beam, 1)
    said = asked.target if asked.target_ids is None else asked.target_ids
    async with within(service.limits.seconds):  # both together
        if said is None:
            checked_pair(work.model, asked.text, "")  # what cannot be shown need not be translated
            (found,) = await service.translations(request, work, [asked.text])
            if len(found.pieces) > 1:
                raise ArgumentError(
                    f"there is no one map: the text was translated in {len(found.pieces)} parts; ask for each, with "
                    "source and ids of the pieces that /api/translate gives"
                )
            said = list(found.pieces[0][1])
        pair = checked_pair(work.model, asked.text, said)
        (shown,) = await service.results(request, Look(work.model, asked.words), [pair])
    return work.model, shown, work.model.translator.trained.tokenizers.target.decode(pair.ids)
