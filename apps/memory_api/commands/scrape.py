"""Reads `/metrics` of API processes and workers, for `hansei top`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from memory_api.core.secret_redaction import redact

SCRAPE_TIMEOUT_SECONDS = 5.0

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scrape:
    """The samples of several processes: counters added up, gauges at their maximum, because every
    process reports the same queue. `errors` maps the URLs that did not answer to the reason.
    """

    samples: Mapping[str, Mapping[Labels, float]]
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    def value(self, name: str, **labels: str) -> float:
        """The sum of all samples with these labels."""
        return sum(value for _, value in self._matching(name, labels))

    def by_label(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The sums by the values of one label."""
        sums: defaultdict[str, float] = defaultdict(float)
        for sample_labels, value in self._matching(name, labels):
            sums[dict(sample_labels).get(label, "")] += value
        return dict(sums)

    def quantile(self, name: str, share: float, **labels: str) -> float | None:
        """The upper bound of the bucket of a histogram with this share of the observations."""
        buckets: defaultdict[float, float] = defaultdict(float)
        for sample_labels, value in self._matching(f"{name}_bucket", labels):
            buckets[float(dict(sample_labels)["le"])] += value
        bounds = sorted(buckets)
        total = buckets[math.inf] if bounds else 0.0
        if not total:
            return None
        return next(bound for bound in bounds if buckets[bound] >= share * total)

    def minus(self, earlier: Scrape) -> Scrape:
        """The increase of every sample since an earlier scrape. A counter that fell belongs to a
        process that was restarted, and counts from 0.
        """
        increased: dict[str, dict[Labels, float]] = {}
        for name, values in self.samples.items():
            before = earlier.samples.get(name, {})
            increased[name] = {
                labels: value - before.get(labels, 0.0) if value >= before.get(labels, 0) else value
                for labels, value in values.items()
            }
        return Scrape(increased, self.errors)

    def _matching(self, name: str, labels: Mapping[str, str]) -> Iterator[tuple[Labels, float]]:
        wanted = set(labels.items())
        for sample_labels, value in self.samples.get(name, {}).items():
            if wanted <= set(sample_labels):
                yield sample_labels, value


def scrape_all(urls: Sequence[str], token: str | None) -> Scrape:
    """Read all URLs. One that does not answer is in `errors`, without its password."""
    samples: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
    errors: dict[str, str] = {}
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx2.Client(timeout=SCRAPE_TIMEOUT_SECONDS, headers=headers) as client:
        for url in urls:
            try:
                response = client.get(url)
                response.raise_for_status()
            except httpx2.HTTPStatusError as error:
                errors[redact(url).text] = f"status {error.response.status_code}"
            except httpx2.ConnectError:
                errors[redact(url).text] = "cannot be reached"
            except httpx2.HTTPError as error:
                errors[redact(url).text] = type(error).__name__
            else:
                _add_samples(response.text, samples)
    return Scrape(samples, errors)


def _add_samples(text: str, samples: dict[str, dict[Labels, float]]) -> None:
    for family in text_string_to_metric_families(text):
        combine: Callable[[float, float], float] = max if family.type == "gauge" else _add
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            known = samples.setdefault(sample.name, {})
            known[labels] = (
                combine(known[labels], sample.value) if labels in known else sample.value
            )


def _add(first: float, second: float) -> float:
    return first + second
