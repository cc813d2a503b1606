"""One playbook behind the API, and whether what is served is in step with what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from httpx2 import AsyncClient, Response


@dataclass
class Book:
    api: AsyncClient
    name: str = "book"

    @property
    def url(self) -> str:
        return f"/api/v1/playbooks/{quote(self.name, safe='')}"

    async def post(
        self,
        what: str,
        *,
        headers: dict[str, str] | None = None,
        dry_run: bool = False,
        **body: Any,
    ) -> Response:
        url = f"{self.url}/{what}" + ("?dry_run=true" if dry_run else "")
        return await self.api.post(url, json=body, headers=headers)

    async def trace(self, **more: Any) -> str:
        """The id of a run that is stored and not learned from."""
        body = {"events": [{"event_type": "user_message", "content": "Do it"}], **more}
        answer = await self.api.post("/api/v1/traces?reflect=never", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["trace_id"]

    async def deltas(self, *deltas: dict[str, Any]) -> dict[str, Any]:
        answer = await self.post("deltas", deltas=list(deltas))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def put(self, body: str | dict[str, Any]) -> Response:
        if isinstance(body, str):
            return await self.api.put(self.url, content=body.encode())
        return await self.api.put(self.url, json=body)

    async def now(self, **params: Any) -> tuple[int, dict[str, Any]]:
        answer = await self.api.get(self.url, params=params)
        assert answer.status_code == 200, answer.text
        return int(answer.headers["etag"].strip('"')), answer.json()

    async def bullets(self) -> list[dict[str, Any]]:
        return (await self.api.get(f"{self.url}/bullets?limit=200")).json()["items"]

    async def search(self, query: str, **more: Any) -> list[str]:
        answer = await self.post("search", query_text=query, **more)
        assert answer.status_code == 200, answer.text
        return [hit["bullet"]["id"] for hit in answer.json()["results"]]

    async def problems(self) -> list[str]:
        """What of the playbook search does not see as it is stored."""
        bullets = await self.bullets()
        active = {b["id"]: b for b in bullets if b["status"] == "active"}
        found: list[str] = []
        listed = set(await self.search("", top_k=1000, min_confidence=0))
        if listed != active.keys():
            found.append(f"listed {listed ^ active.keys()}")
        for key, bullet in active.items():
            hits = await self.post(
                "search", query_text=bullet["searchable_text"], top_k=1000, min_confidence=0
            )
            ids = [hit["bullet"]["id"] for hit in hits.json()["results"]]
            if sorted(ids) != sorted(active):
                found.append(f"{key}: search finds {ids}")
            narrow = await self.search(
                bullet["searchable_text"], min_confidence=bullet["confidence_score"], top_k=1000
            )
            if key not in narrow:
                found.append(f"{key}: served with another confidence")
        return found
