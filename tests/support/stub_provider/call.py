"""One recorded request, read the same way whichever protocol it came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Api = Literal["chat", "responses", "messages", "embeddings", "models"]


@dataclass(frozen=True)
class Call:
    """`headers` have lower-case names; `body` is the decoded JSON; `number` counts calls from 1."""

    number: int
    api: Api
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def model(self) -> str:
        if "model" in self.body:
            return str(self.body["model"])
        parts = self.path.split("/")
        named = [i for i, part in enumerate(parts) if part in ("model", "deployments")]
        return parts[named[0] + 1] if named else ""

    @property
    def system(self) -> str:
        """All system text."""
        own = self.body.get("system") or self.body.get("instructions") or ""
        turns = [
            _text(m.get("content") or "")
            for m in self._turns
            if m.get("role") in ("system", "developer")
        ]
        return "\n".join(filter(None, [_text(own), *turns]))

    @property
    def user(self) -> str:
        """All user text."""
        return "\n".join(
            _text(m.get("content") or "") for m in self._turns if m.get("role") == "user"
        )

    @property
    def text(self) -> str:
        """Everything the model was shown, in order."""
        if self.api == "embeddings":
            texts = self.body["input"]
            return texts if isinstance(texts, str) else "\n".join(map(str, texts))
        if self.api == "models":
            return ""
        own = self.body.get("system") or self.body.get("instructions") or ""
        return "\n".join(
            filter(None, [_text(own), *(_text(m.get("content") or "") for m in self._turns)])
        )

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema that was asked for."""
        match self.body:
            case {"response_format": {"json_schema": {"schema": dict(schema)}}}:
                return schema
            case {"text": {"format": {"schema": dict(schema)}}}:
                return schema
            case {"output_config": {"format": {"schema": dict(schema)}}}:
                return schema
            case _:
                return None

    @property
    def turns(self) -> int:
        """How many messages were sent."""
        return len(self._turns)

    @property
    def max_tokens(self) -> int | None:
        """The limit of the answer, whatever the protocol calls it."""
        names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
        return next((self.body[name] for name in names if name in self.body), None)

    @property
    def _turns(self) -> list[dict[str, Any]]:
        turns = self.body.get("messages", self.body.get("input", []))
        return [{"role": "user", "content": turns}] if isinstance(turns, str) else turns


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or [])
