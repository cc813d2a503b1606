"""The measured effect of bullets on the wire."""

from __future__ import annotations

from pydantic import Field

from memory_api.core.schemas import Page, ResponseModel, with_examples


class OutcomeRate(ResponseModel):
    """Agent runs and how many of them succeeded."""

    runs: int
    successes: int
    rate: float | None = Field(description="successes / runs, 0 to 1; null without runs.")


class ConfidenceInterval(ResponseModel):
    """A 95 % interval (Newcombe). Null if there is no difference."""

    low: float | None
    high: float | None


class OutcomeComparison(ResponseModel):
    """Outcomes of agent runs with a bullet and without it."""

    with_: OutcomeRate = Field(alias="with")
    without: OutcomeRate
    difference: float | None = Field(
        description="Success rate with it minus the rate without. Null if unknown: one side has no "
        "runs, or `always_with` names bullets."
    )
    interval: ConfidenceInterval = Field(description="The interval of `difference`.")
    always_with: list[str] = Field(
        description="Other bullets that were in exactly the same runs, at most 10: their effects "
        "cannot be separated. Empty for `randomized`."
    )


class BulletEffect(ResponseModel):
    """The effect of one bullet. Only `randomized` shows what the bullet causes."""

    model_config = ResponseModel.model_config | with_examples(
        {
            "key": "mis-00001",
            "status": "active",
            "randomized": {
                "with": {"runs": 60, "successes": 45, "rate": 0.75},
                "without": {"runs": 55, "successes": 28, "rate": 0.509},
                "difference": 0.241,
                "interval": {"low": 0.064, "high": 0.401},
                "always_with": [],
            },
            "observational": None,
        }
    )

    key: str
    status: str = Field(description="active, quarantined, archived or deleted.")
    randomized: OutcomeComparison | None = Field(
        default=None, description="Renders that drew this bullet at random, and withheld it or not."
    )
    observational: OutcomeComparison | None = Field(
        default=None,
        description="Runs that had the bullet, against runs that had other bullets of the "
        "playbook, but not this one, since it exists. The tasks of the two groups may differ. A "
        "bullet that was always served together with the others has no difference.",
    )


class BulletEffectPage(Page[BulletEffect]):
    """One page of bullet effects, by key."""
