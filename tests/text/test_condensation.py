"""What is left of program output, and what is left alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_api.text.condensation import condense_output, fold_series
from tests.support.cases import each_case


def test_traceback_has_its_innermost_frames_and_the_exception() -> None:
    frames = [f'  File "/a/m{n}.py", line {n}, in f' for n in range(9)]
    text = "\n".join(
        ["start", "Traceback (most recent call last):", *frames, "KeyError: 'x'", "end"]
    )
    assert condense_output(text).split("\n") == [
        "start",
        "Traceback (most recent call last):",
        "  [… 5 lines of frames …]",
        *frames[-4:],
        "KeyError: 'x'",
        "end",
    ]


@each_case(
    "text",
    [
        "one\ntwo\nthree",
        "\n".join(f"{n},{n * 2}" for n in range(50)),
        "\n".join(f"key{n} = value" for n in range(50)),
        "def f():\n    return 1\n\n\ndef g():\n    return 2\n\n\nf()",
        "表の行です\n次の行です\n\nまた次の行です\nその次の行です\nさらに次の行です",
    ],
)
def test_data_and_code_are_unchanged(text: str) -> None:
    assert condense_output(text).replace("\n\n", "\n") == text.replace("\n\n\n", "\n").replace(
        "\n\n", "\n"
    )


def test_progress_and_separators_are_dropped() -> None:
    text = "build\n" + "=" * 40 + "\n" + "\r".join(f"{n} %" for n in range(100)) + "\na\nb\nc\nd"
    assert condense_output(text).split("\n") == ["build", "99 %", "a", "b", "c", "d"]


@given(st.text(alphabet="ab \n\r=1Collecting", max_size=400))
def test_property_result_is_never_much_longer(text: str) -> None:
    assert len(condense_output(text)) <= len(text) + 60 * (text.count("\n") // 6 + 1)


def test_series_has_its_first_and_last_line() -> None:
    lines = [f"Collecting package-{n}" for n in range(60)]
    assert fold_series("\n".join(["a", *lines, "b"])).split("\n") == [
        "a",
        lines[0],
        "[… 58 similar lines that start with 'Collecting' …]",
        lines[-1],
        "b",
    ]
    assert fold_series("\n".join(lines[:5])) == "\n".join(lines[:5])
