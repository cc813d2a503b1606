"""Every regular expression takes linear time on hostile text, or its input is bounded.

For each pattern, hostile texts are made of its own parse tree: what it repeats, many times, before
a character that ends no match.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import memory_api as service
from tests.rules.sources import files, tree
from tests.support.growth import grows_faster_than_input

TEXT_LENGTH = 20_000
NOTICEABLE_SECONDS = 0.15
"""A quadratic pattern reads 200 million characters, which takes longer; a linear one 1 ms."""
ANCHORED = {"match", "fullmatch"}
PARSER = re._parser  # type: ignore[attr-defined]

DISTILLATION = "memory_api.embeddings.model"
"""Makes the bundled model, once; needs libraries that the service does not."""


@dataclass(frozen=True)
class Rule:
    """A pattern, and whether it is only matched at one place of a text, not searched for."""

    pattern: re.Pattern[str]
    is_anchored: bool


def patterns_in(value: Any, depth: int = 4) -> Iterator[re.Pattern[str]]:
    """The patterns in a value, also in containers and in objects of the service."""
    if isinstance(value, re.Pattern):
        is_text = isinstance(value.pattern, str)
        yield value if is_text else re.compile(value.pattern.decode("latin-1"), value.flags)
        return
    is_own = type(value).__module__.startswith("memory_api.") and not isinstance(value, type)
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        items = list(value)
    else:
        items = list(getattr(value, "__dict__", {}).values()) if is_own else []
    for item in items if depth else ():
        yield from patterns_in(item, depth - 1)


def compiled_rules() -> Iterator[Rule]:
    """The patterns in variables of all modules."""
    for found in pkgutil.walk_packages(service.__path__, "memory_api."):
        if found.name.endswith("__main__") or found.name.startswith(DISTILLATION):
            continue
        module = importlib.import_module(found.name)
        methods = methods_of_names(Path(module.__file__ or ""))
        for name, value in vars(module).items():
            is_anchored = methods.get(name, {"search"}) <= ANCHORED
            yield from (Rule(pattern, is_anchored) for pattern in patterns_in(value))


def methods_of_names(path: Path) -> dict[str, set[str]]:
    """The methods that a module calls on each of its names: `_KEY.match(…)`."""
    methods: dict[str, set[str]] = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            methods.setdefault(node.value.id, set()).add(node.attr)
    return methods


def inline_rules() -> Iterator[Rule]:
    """Literals in calls such as `re.sub(r"…", …)`."""
    for path in files("apps", suffix=".py"):
        for node in ast.walk(tree(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr != "compile"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                yield Rule(re.compile(node.args[0].value), node.func.attr in ANCHORED)


def example(node: Any) -> str:
    """A short text that a parsed pattern matches, approximately."""
    parts: list[str] = []
    for operation, argument in node:
        match str(operation):
            case "LITERAL":
                parts.append(chr(argument))
            case "NOT_LITERAL" | "ANY":
                parts.append("x" if argument != ord("x") else "y")
            case "IN":
                parts.append(member(argument))
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                parts.append(example(argument[2]) * max(int(argument[0]), 1))
            case "SUBPATTERN":
                parts.append(example(argument[-1]))
            case "ATOMIC_GROUP":
                parts.append(example(argument))
            case "BRANCH":
                parts.append(example(argument[1][0]))
            case _:
                pass
    return "".join(parts)


CANDIDATES = "a1 (\"'=.-:/\n,A[{<*_#あ漢ア、。\t`|\\)"


def member(items: Any) -> str:
    """A character of a set."""
    for candidate in CANDIDATES:
        if in_set(items, candidate):
            return candidate
    return "x"


def in_set(items: Any, character: str) -> bool:
    negated = str(items[0][0]) == "NEGATE"
    found = False
    for operation, argument in items[1:] if negated else items:
        name = str(operation)
        if name == "LITERAL":
            found |= argument == ord(character)
        elif name == "RANGE":
            found |= argument[0] <= ord(character) <= argument[1]
        elif name == "CATEGORY":
            kind = str(argument).removeprefix("CATEGORY_")
            code = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[kind.removeprefix("NOT_")]
            found |= bool(re.match(code, character)) != kind.startswith("NOT_")
    return found != negated


def hostile_texts(pattern: re.Pattern[str], length: int) -> set[str]:
    """For each repetition: what comes before it, many times what it repeats, and an end."""
    texts: set[str] = set()

    def visit(node: Any, prefix: str) -> None:
        for index, (operation, argument) in enumerate(node):
            before = prefix + example(node[:index])
            match str(operation):
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    unit = example(argument[2]) or "x"
                    for body in {unit, before + unit, unit + example(node[index + 1 :])[:1]}:
                        repeated = (body * (length // len(body) + 1))[:length]
                        texts.update((before + repeated + "\x00", repeated))
                    visit(argument[2], before)
                case "SUBPATTERN":
                    visit(argument[-1], before)
                case "ATOMIC_GROUP":
                    visit(argument, before)
                case "BRANCH":
                    for branch in argument[1]:
                        visit(branch, before)
                case "ASSERT" | "ASSERT_NOT":
                    visit(argument[1], before)
                case _:
                    pass

    visit(PARSER.parse(pattern.pattern, pattern.flags & ~re.DEBUG), "")
    return texts


@cache
def all_rules() -> list[Rule]:
    """Each pattern once; searched for if it is anywhere."""
    found: dict[tuple[str, int], Rule] = {}
    for rule in (*compiled_rules(), *inline_rules()):
        key = rule.pattern.pattern, rule.pattern.flags
        if key not in found or not rule.is_anchored:
            found[key] = rule
    return [found[key] for key in sorted(found)]


def is_slow(rule: Rule, text: str) -> bool:
    """Whether the pattern needs noticeable time, and that time grows faster than the text."""

    def search(share: float) -> None:
        part = text if share == 1 else text[: int(len(text) * share)] + text[-1]
        if rule.is_anchored:
            rule.pattern.match(part)
        else:
            for _ in rule.pattern.finditer(part):
                pass

    return grows_faster_than_input(search, NOTICEABLE_SECONDS)


def test_patterns_take_linear_time() -> None:
    slow: list[str] = []
    for rule in all_rules():
        texts = hostile_texts(rule.pattern, TEXT_LENGTH)
        slow += [f"{rule.pattern.pattern!r} on {x[:40]!r}" for x in texts if is_slow(rule, x)][:1]
    assert slow == []


@pytest.mark.parametrize("pattern", [r"\s*\([^)]*\)\s*$", r"\s+$", r"\w+\("])
def test_quadratic_pattern_is_found(pattern: str) -> None:
    rule = Rule(re.compile(pattern), False)
    texts = hostile_texts(rule.pattern, TEXT_LENGTH)
    assert any(is_slow(rule, text) for text in texts)
