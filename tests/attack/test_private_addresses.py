"""Addresses that lead to a private network, in every form that a URL can give them."""

from __future__ import annotations

import pytest

from memory_api.core.outgoing import AddressRefused, resolve_url
from tests.support.cases import each_case

PRIVATE = {
    "loopback": "http://127.0.0.1/",
    "loopback by name": "http://localhost/",
    "loopback as a number": "http://2130706433/",
    "loopback in octal": "http://0177.0.0.1/",
    "loopback in IPv6": "http://[::1]/",
    "unspecified": "http://0.0.0.0/",
    "unspecified in IPv6": "http://[::]/",
    "private": "http://10.1.2.3/",
    "shared": "http://100.100.100.200/",
    "metadata": "http://169.254.169.254/latest/meta-data",
    "metadata of a protocol block": "http://192.0.0.192/",
    "services of the host": "http://168.63.129.16/",
    "relay of 6to4": "http://192.88.99.1/",
    "multicast": "http://224.0.0.1/",
    "public range of multicast": "http://232.1.2.3/",
    "reserved": "http://240.0.0.1/",
    "broadcast": "http://255.255.255.255/",
    "IPv4-mapped": "http://[::ffff:10.0.0.1]/",
    "IPv4-compatible": "http://[::127.0.0.1]/",
    "IPv4-translated": "http://[::ffff:0:127.0.0.1]/",
    "NAT64": "http://[64:ff9b::a9fe:a9fe]/",
    "NAT64 of multicast": "http://[64:ff9b::224.0.0.1]/",
    "local NAT64": "http://[64:ff9b:1::a9fe:a9fe]/",
    "local NAT64 of a public address": "http://[64:ff9b:1::808:808]/",
    "6to4": "http://[2002:a9fe:a9fe::1]/",
    "6to4 of a public address": "http://[2002:808:808::1]/",
    "Teredo": "http://[2001:0:a9fe:a9fe:0:0:5601:5601]/",
    "ISATAP": "http://[2600:1::5efe:169.254.169.254]/",
    "ISATAP, global": "http://[2600:1::200:5efe:169.254.169.254]/",
    "link-local": "http://[fe80::1]/",
    "link-local with a zone": "http://[fe80::1%25lo]/",
    "site-local": "http://[fec0::1]/",
    "unique-local": "http://[fd00:ec2::254]/",
    "multicast in IPv6": "http://[ff02::1]/",
    "global multicast in IPv6": "http://[ff0e::1]/",
    "discard": "http://[100::1]/",
    "documentation": "http://[2001:db8::1]/",
    "new documentation": "http://[3fff::1]/",
    "segment routing": "http://[5f00::1]/",
    "other scheme": "ftp://192.0.2.1/",
    "credentials": "http://user:password@example.com/",
    "no host": "http:///path",
    "no address": "http://[::1/",
    "no port": "http://8.8.8.8:99999/",
    "no name": f"http://{'a' * 64}.example/",
}


@each_case("form, url", PRIVATE.items())
async def test_private_address_is_refused(form: str, url: str) -> None:
    with pytest.raises(AddressRefused):
        await resolve_url(url, allow_private=False)


@each_case("host", ["8.8.8.8", "[2606:4700::1111]", "[64:ff9b::808:808]", "[::ffff:8.8.8.8]"])
async def test_public_address_is_used_as_it_was_checked(host: str) -> None:
    target = await resolve_url(f"https://{host}:8443/a?b=c", allow_private=False)
    assert (target.address, target.port) == (host.strip("[]"), 8443)
    assert (target.host_header, target.target) == (f"{host}:8443", "/a?b=c")
