"""What most commands are: a function that sends requests and returns its output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

import typer

from hansei.cli.options import AsJson
from hansei.cli.terminal import open_client, print_json, print_message, print_text

if TYPE_CHECKING:
    from hansei.client import Hansei

    Client = Hansei
else:
    Client = object
    """The help of `hansei` needs no client, so its module is imported when one is opened."""

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., "Output"])


@dataclass(frozen=True)
class Output:
    """`--json` prints `result`. Otherwise `text` is printed, or called to print something. The exit
    status is 1 if the command `failed`.
    """

    result: Any
    text: str | Callable[[], object]
    failed: bool = False


def listing(
    items: Iterable[T],
    empty: str,
    *,
    each: Callable[[T], object] | None = None,
    table: Callable[[list[T]], object] | None = None,
    limit: int | None = None,
) -> Output:
    """A list, printed item by item or as a table. `empty` says that there is nothing. With a
    `limit`, `items` must have one item more if there are more.
    """
    everything = list(items)
    found = everything[:limit]

    def show() -> None:
        if not found:
            print_message(empty)
        elif table is not None:
            table(found)
        for item in found if each is not None else ():
            cast("Callable[[T], object]", each)(item)
        if len(everything) > len(found):
            print_message(f"There are more: --limit {10 * len(found)}")

    return Output({"items": found}, show)


def command(group: typer.Typer, name: str) -> Callable[[Function], Function]:
    """Add a function as a command. It gets a client, and what its other parameters describe."""

    def add(function: Function) -> Function:
        hints = get_type_hints(function, include_extras=True)
        _, *parameters = inspect.signature(function).parameters.values()
        options = [each.replace(annotation=hints[each.name]) for each in parameters]
        options.append(
            inspect.Parameter(
                "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson
            )
        )

        def run(*, as_json: bool, **arguments: Any) -> None:
            with open_client() as client:
                output = function(client, **arguments)
                if as_json:
                    print_json(output.result)
                elif isinstance(output.text, str):
                    print_text(output.text)
                else:
                    output.text()
            if output.failed:
                raise typer.Exit(1)

        cast(Any, run).__signature__ = inspect.Signature(options)
        run.__annotations__ = {each.name: each.annotation for each in options}
        run.__doc__ = function.__doc__
        group.command(name)(run)
        return function

    return add
