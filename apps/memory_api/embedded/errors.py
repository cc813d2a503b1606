"""What can go wrong on the way to a running `hansei up`."""

from __future__ import annotations

from apps.memory_api.core.errors import HanseiError


class EmbeddedPostgresError(HanseiError):
    """The embedded PostgreSQL cannot be used."""

    code = "embedded_postgres"


class PortUnavailable(HanseiError):
    """The port cannot be listened on."""

    code = "port_unavailable"
