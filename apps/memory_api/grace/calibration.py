"""What a project learns from feedback: thresholds, and the temperature of its scores (S3.46)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.grace import queries
from memory_api.grace.confidence import (
    FEEDBACK_WINDOW,
    adjust_thresholds,
    calibrate,
    expected_calibration_error,
    fit_temperature,
)
from memory_api.grace.config import GraceConfig, ThresholdSection
from memory_api.grace.schemas import AgentCalibration
from memory_api.grace.tables import AgentCalibrationRow, AgentRunRow

MAX_SAMPLES = 500
"""Runs with feedback, newest first, that the temperature is fitted to."""
MIN_FIT_SAMPLES = 20


async def load_calibration(
    session: AsyncSession, project_id: str, config: GraceConfig
) -> AgentCalibration:
    row = await queries.get_calibration(session, project_id)
    if row is None:
        values = config.thresholds.model_dump()
        return AgentCalibration(**values, temperature=1.0, ece=None, sample_count=0)
    return AgentCalibration(
        silent=row.silent,
        notify=row.notify,
        confirm=row.confirm,
        temperature=row.temperature,
        ece=row.ece,
        sample_count=row.sample_count,
    )


async def learn_from_feedback(session: AsyncSession, project_id: str, config: GraceConfig) -> None:
    """Adjust the thresholds from each full window of new feedback, once per item, and fit the
    temperature to the last runs with feedback.
    """
    row = await _lock_or_create(session, project_id, config)
    await session.flush()
    new = await queries.list_feedback(
        session, project_id, after=row.judged_until, limit=MAX_SAMPLES
    )
    if row.judged_until is None:
        new = sorted(new, key=lambda run: run.feedback_at or datetime.min.replace(tzinfo=UTC))
    thresholds = ThresholdSection(silent=row.silent, notify=row.notify, confirm=row.confirm)
    for start in range(0, len(new) - FEEDBACK_WINDOW + 1, FEEDBACK_WINDOW):
        judged = new[start : start + FEEDBACK_WINDOW]
        thresholds = adjust_thresholds(thresholds, _outcomes(judged, "calibrated_confidence"))
        row.judged_until = judged[-1].feedback_at
    row.silent, row.notify, row.confirm = (
        thresholds.silent,
        thresholds.notify,
        thresholds.confirm,
    )
    recent = await queries.list_feedback(session, project_id, after=None, limit=MAX_SAMPLES)
    since = row.counted_from
    counted = [run for run in recent if since is None or (run.feedback_at or since) > since]
    outcomes = _outcomes(counted, "overall_confidence")
    row.sample_count = len(outcomes)
    if len(outcomes) >= MIN_FIT_SAMPLES:
        row.temperature = fit_temperature(outcomes)
    row.ece = round(
        expected_calibration_error([(calibrate(s, row.temperature), ok) for s, ok in outcomes]), 4
    )
    row.updated_at = datetime.now(UTC)


async def _lock_or_create(
    session: AsyncSession, project_id: str, config: GraceConfig
) -> AgentCalibrationRow:
    row = await queries.lock_calibration(session, project_id)
    if row is not None:
        return row
    await acquire_tenant_lock(session, "agent_calibrations")
    row = await queries.lock_calibration(session, project_id)
    if row is None:
        row = AgentCalibrationRow(
            tenant_id=current_tenant_id(session),
            project_id=project_id,
            temperature=1.0,
            sample_count=0,
            **config.thresholds.model_dump(),
        )
        session.add(row)
    return row


def _outcomes(runs: Sequence[AgentRunRow], confidence: str) -> list[tuple[float, bool]]:
    """(the confidence of this name, right) of runs that answered."""
    return [
        (float(run.result[confidence]), run.feedback == "right")
        for run in runs
        if run.result is not None
    ]


async def reset_calibration(session: AsyncSession, project_id: str, config: GraceConfig) -> None:
    """Restore the configured thresholds. Feedback up to now no longer counts."""
    row = await _lock_or_create(session, project_id, config)
    for name, value in config.thresholds.model_dump().items():
        setattr(row, name, value)
    row.temperature, row.ece, row.sample_count = 1.0, None, 0
    row.judged_until = row.counted_from = row.updated_at = datetime.now(UTC)
