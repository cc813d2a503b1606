"""A model provider for tests: a real HTTP server that speaks OpenAI's and Anthropic's protocols.

    with StubProvider() as stub:
        stub.queue(rate_limited(retry_after=1), answer('{"ok": true}'))
        client(base_url=stub.openai_url)        # or stub.anthropic_url
        assert len(stub.calls) == 2

Queued behaviours are used up first, then `stub.behave(call)` decides (default: a minimal instance
of the asked JSON schema, else "ok"). A model named like a key of `BY_NAME` (`stub-429`,
`stub-refusal`, …) picks its behaviour by name.
"""

from tests.support.stub_provider.behaviours import (
    BY_NAME,
    Answer,
    Behaviour,
    Fail,
    Hang,
    Reply,
    Reset,
    answer,
    bad_request,
    broken_body,
    by_schema,
    fenced,
    hang,
    html_page,
    max_tokens,
    obey,
    overloaded,
    prose,
    quota,
    rate_limited,
    refusal,
    reset,
    server_error,
    truncated,
    unauthorized,
    wrong_shape,
)
from tests.support.stub_provider.call import Call
from tests.support.stub_provider.server import StubProvider

__all__ = [
    "BY_NAME",
    "Answer",
    "Behaviour",
    "Call",
    "Fail",
    "Hang",
    "Reply",
    "Reset",
    "StubProvider",
    "answer",
    "bad_request",
    "broken_body",
    "by_schema",
    "fenced",
    "hang",
    "html_page",
    "max_tokens",
    "obey",
    "overloaded",
    "prose",
    "quota",
    "rate_limited",
    "refusal",
    "reset",
    "server_error",
    "truncated",
    "unauthorized",
    "wrong_shape",
]
