"""Tables of the installation, which belong to no tenant."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Identity, text
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Str


class InstallationRow(Base):
    """One row of random values that only the service can read: in the names of its channels and
    locks, which no other login can compute.
    """

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("id", name="id"),)

    id: Mapped[bool] = mapped_column(primary_key=True, server_default="true")
    channel_secret: Mapped[Str] = mapped_column(
        server_default=text("replace((gen_random_uuid())::text, '-'::text, ''::text)")
    )
    lock_seed: Mapped[int] = mapped_column(
        BigInteger,
        server_default=text("hashtextextended((gen_random_uuid())::text, (0)::bigint)"),
    )


class WriteProbeRow(Base):
    """What the readiness check writes and rolls back."""

    __tablename__ = "write_probes"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    payload: Mapped[Str]
