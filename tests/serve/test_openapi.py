"""Every answer to whatever a machine makes up conforms to the OpenAPI description, and none is a crash."""

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from support.serving import serving

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
GenerationMode = schemathesis.GenerationMode

POSTED = ["translate", "stream", "alternatives", "beam", "align", "caption", "classify", "attention", "page"]
OPERATIONS = [("POST", f"/api/{name}") for name in POSTED] + [
    ("GET", path) for path in ("/api/models", "/health", "/metrics")
]


@pytest.fixture(scope="module")
def description(reverser, words, captioner, graph_model):
    """Of a server with room and time for all that is asked, so that no answer may be one of 5xx."""
    models = {"reverser": reverser, "words": words, "scenes": captioner, "planted": graph_model}
    with serving(models, queue=10_000, seconds=600, characters=300) as live:
        yield schemathesis.openapi.from_url(f"{live.url}/openapi.json")


# The server runs in this process, and what it draws meanwhile is no strategy's doing.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [(*operation, GenerationMode.POSITIVE) for operation in OPERATIONS]
    + [(*operation, GenerationMode.NEGATIVE) for operation in OPERATIONS[: len(POSTED)]],
    ids=lambda value: getattr(value, "value", value),
)
def test_answers_conform_to_the_description(description, method, path, mode):
    @given(description[path][method].as_strategy(mode))
    @settings(max_examples=15, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def ask(case):
        answer = case.call()
        assert answer.status_code < 500, case.body
        if mode is GenerationMode.NEGATIVE:
            assert 400 <= answer.status_code < 500, case.body
        # That n_best is at most beam, or that an empty text has no map, is more than a schema can say.
        case.validate_response(answer, excluded_checks=[checks.positive_data_acceptance])

    ask()


@pytest.mark.long
def test_every_path_says_what_can_go_wrong(live):
    described = live.get("/openapi.json").json
    assert {(method.upper(), path) for path, methods in described["paths"].items() for method in methods} == set(
        OPERATIONS
    )
    for path, methods in described["paths"].items():
        if "post" in methods:
            assert {"200", "400", "404", "413", "415", "421", "422", "503", "504"} <= methods["post"][
                "responses"
            ].keys(), path
    assert "contentEncoding" in described["components"]["schemas"]["CaptionRequest"]["properties"]["image"]
    described_text = described["components"]["schemas"]["TextRequest"]["properties"]["text"]
    assert described_text["maxLength"] == live.service.limits.characters
    assert "HTTPValidationError" not in json.dumps(described["paths"])
