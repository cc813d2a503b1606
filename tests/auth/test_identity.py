"""Tenant ids and keys: the pure half."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.auth.identity import Identity, KeyScope, generate_key, parse_key
from memory_api.core.errors import Forbidden, InvalidRequest, Unauthorized
from memory_api.core.ids import to_tenant_id
from tests.support.cases import each_case

ID = UUID("0190aaaa-0000-7000-8000-000000000001")


def identity(*scopes: KeyScope, project_id: str | None = None) -> Identity:
    return Identity(ID, UUID(int=1), frozenset(scopes), project_id)


@settings(max_examples=100)
@given(st.uuids())
def test_key_contains_tenant_and_hides_secret(tenant_id: UUID) -> None:
    key = generate_key(tenant_id)
    assert parse_key(key.text) == (tenant_id, key.secret_hash)
    assert key.text.split("_", 2)[2].encode() not in key.secret_hash
    assert generate_key(tenant_id).text != key.text


@settings(max_examples=100)
@given(st.text() | st.from_regex(r"hsk_[a-z2-7]{26}_[A-Za-z0-9_-]{20,40}", fullmatch=True))
def test_any_text_parses_as_key_or_is_unauthorized(text: str) -> None:
    try:
        tenant_id, secret = parse_key(text)
    except Unauthorized:
        return
    assert isinstance(tenant_id, UUID)
    assert len(secret) == 32


@settings(max_examples=100)
@given(st.uuids())
def test_uuid_is_its_own_tenant_id(tenant_id: UUID) -> None:
    assert to_tenant_id(tenant_id) == to_tenant_id(str(tenant_id)) == tenant_id


def test_slug_maps_to_stable_id() -> None:
    assert to_tenant_id("tenant-123") == to_tenant_id("tenant-123") != to_tenant_id("tenant-124")
    assert to_tenant_id("default") == UUID("40c84e0b-ce0f-5cfb-b7a0-0f4a8c64933e")


@settings(max_examples=100)
@given(st.text())
def test_any_name_maps_to_id_or_is_invalid(name: str) -> None:
    try:
        assert isinstance(to_tenant_id(name), UUID)
    except InvalidRequest:
        return


@each_case(
    ("held", "allowed"),
    [
        (KeyScope.READ, {KeyScope.READ}),
        (KeyScope.WRITE, {KeyScope.READ, KeyScope.WRITE}),
        (KeyScope.ADMIN, {KeyScope.READ, KeyScope.WRITE, KeyScope.ADMIN}),
        (KeyScope.OPERATOR, {KeyScope.OPERATOR}),
    ],
)
def test_scope_implies_lower_scopes(held: KeyScope, allowed: set[KeyScope]) -> None:
    for access in KeyScope:
        if access in allowed:
            identity(held).require_scope(access)
        else:
            with pytest.raises(Forbidden):
                identity(held).require_scope(access)


def test_key_of_project_is_limited_to_it() -> None:
    free, bound = identity(KeyScope.READ), identity(KeyScope.READ, project_id="mine")
    assert (free.resolve_project(None), free.resolve_project("any")) == ("default", "any")
    assert (bound.resolve_project(None), bound.resolve_project("mine")) == ("mine", "mine")
    with pytest.raises(Forbidden):
        bound.resolve_project("other")


def test_named_tenant_must_match_key() -> None:
    me = identity(KeyScope.READ)
    me.require_tenant(None)
    me.require_tenant(str(ID))
    with pytest.raises(Forbidden):
        me.require_tenant("somebody-else")
