"""Tenant ids and keys: the pure half."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.memory_api.core.errors import Forbidden, Invalid, Unauthorized
from apps.memory_api.tenants.identity import (
    Access,
    Identity,
    make_key,
    read_key,
    tenant_id_of,
)

ID = UUID("0190aaaa-0000-7000-8000-000000000001")


def identity(*scopes: Access, project_id: str | None = None) -> Identity:
    return Identity(ID, UUID(int=1), frozenset(scopes), project_id)


@settings(max_examples=200)
@given(st.uuids())
def test_a_key_says_its_tenant_and_hides_its_secret(tenant_id: UUID) -> None:
    key = make_key(tenant_id)
    assert read_key(key.text) == (tenant_id, key.secret_hash)
    assert key.text.split("_", 2)[2].encode() not in key.secret_hash
    assert make_key(tenant_id).text != key.text


@settings(max_examples=300)
@given(st.text() | st.from_regex(r"hsk_[a-z2-7]{26}_[A-Za-z0-9_-]{20,40}", fullmatch=True))
def test_any_text_is_a_key_or_unauthorized(text: str) -> None:
    try:
        tenant_id, secret = read_key(text)
    except Unauthorized:
        return
    assert isinstance(tenant_id, UUID)
    assert len(secret) == 32


@settings(max_examples=200)
@given(st.uuids())
def test_a_uuid_is_its_own_id(tenant_id: UUID) -> None:
    assert tenant_id_of(tenant_id) == tenant_id_of(str(tenant_id)) == tenant_id


def test_a_slug_has_an_id_that_never_changes() -> None:
    assert tenant_id_of("tenant-123") == tenant_id_of("tenant-123") != tenant_id_of("tenant-124")
    assert tenant_id_of("default") == UUID("40c84e0b-ce0f-5cfb-b7a0-0f4a8c64933e")


@settings(max_examples=200)
@given(st.text())
def test_any_name_is_an_id_or_invalid(name: str) -> None:
    try:
        assert isinstance(tenant_id_of(name), UUID)
    except Invalid:
        return


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        (Access.READ, {Access.READ}),
        (Access.WRITE, {Access.READ, Access.WRITE}),
        (Access.ADMIN, {Access.READ, Access.WRITE, Access.ADMIN}),
        (Access.OPERATOR, {Access.OPERATOR}),
    ],
)
def test_what_a_scope_implies(held: Access, allowed: set[Access]) -> None:
    for access in Access:
        if access in allowed:
            identity(held).require(access)
        else:
            with pytest.raises(Forbidden):
                identity(held).require(access)


def test_projects_of_a_key() -> None:
    free, bound = identity(Access.READ), identity(Access.READ, project_id="mine")
    assert (free.project(None), free.project("any")) == ("default", "any")
    assert (bound.project(None), bound.project("mine")) == ("mine", "mine")
    with pytest.raises(Forbidden):
        bound.project("other")


def test_a_tenant_that_is_named_must_be_the_keys() -> None:
    me = identity(Access.READ)
    me.check_tenant(None)
    me.check_tenant(str(ID))
    with pytest.raises(Forbidden):
        me.check_tenant("somebody-else")
