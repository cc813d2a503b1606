"""Many small cases in one test: pytest takes longer to collect, set up and report a test than most
of these cases take to run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each_case(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test once for each of `values` and report every case that failed. Its arguments are
    those of `pytest.mark.parametrize`. All cases share the fixtures of the test, so no case may
    depend on what another one leaves.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [dict(zip(keys, [v] if len(keys) == 1 else v, strict=True)) for v in values]
    assert cases, "a test without a case cannot fail"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)
        fixtures = [p for p in signature.parameters.values() if p.name not in keys]

        def raise_all(failures: list[Exception]) -> None:
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)

        @functools.wraps(test)
        def run(**given: Any) -> None:
            failures: list[Exception] = []
            for case in cases:
                try:
                    test(**given, **case)
                except Exception as error:
                    failures.append(_with_case(error, case))
            raise_all(failures)

        @functools.wraps(test)
        async def run_async(**given: Any) -> None:
            failures: list[Exception] = []
            for case in cases:
                try:
                    await test(**given, **case)
                except Exception as error:
                    failures.append(_with_case(error, case))
            raise_all(failures)

        made = run_async if inspect.iscoroutinefunction(test) else run
        made.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return made

    return decorate


def _with_case(error: Exception, case: dict[str, Any]) -> Exception:
    error.add_note("case: " + ", ".join(f"{key}={value!r:.90}" for key, value in case.items()))
    return error
