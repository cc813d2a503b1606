"""Column types that recur, so that the same thing has the same type in every table."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from sqlalchemy import DateTime, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import mapped_column

TenantId = Annotated[UUID, mapped_column(primary_key=True)]
Id = Annotated[UUID, mapped_column(primary_key=True)]
Str = Annotated[str, mapped_column(Text)]
OptStr = Annotated[str | None, mapped_column(Text)]
StrList = Annotated[list[str], mapped_column(ARRAY(Text), server_default=text("'{}'"))]
Json = Annotated[dict[str, Any], mapped_column(JSONB, server_default=text("'{}'"))]
OptJson = Annotated[Any, mapped_column(JSONB(none_as_null=True), nullable=True)]
Now = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=text("now()"))]
OptTime = Annotated[datetime | None, mapped_column(DateTime(timezone=True))]
