"""Exports contain nothing that would let their reader act as the tenant."""

from __future__ import annotations

from httpx2 import AsyncClient


async def test_no_secret_of_a_webhook_is_exported(api: AsyncClient) -> None:
    """The secret before a rotation signs too, until the overlap ends."""
    made = (await api.post("/api/v1/webhooks", json={"url": "https://example.com/x"})).json()
    rotate = f"/api/v1/webhooks/{made['id']}/rotate-secret"
    rotated = (await api.post(rotate, json={"overlap_seconds": 3600})).raise_for_status().json()
    exported = (await api.get("/api/v1/export")).text
    assert made["id"] in exported
    assert made["secret"] not in exported
    assert rotated["secret"] not in exported
