"""Expressions for a number anywhere in a model's output, written as in Python."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import islice
from numbers import Integral
from operator import attrgetter
from typing import Any, NamedTuple

from torch import Tensor

REDUCTIONS = ("sum", "mean", "max")
"""The methods of a tensor that an expression may end in, without arguments."""

_MAX_LISTED = 6  # keys, attributes or items that an error lists
MOST_LEAVES = 200


class Output:
    """A recorded expression of a model's output, such as ``output["out"][0, 15].mean()``.

    Begin with `hookviz.output`. Indices, keys and attributes select parts of the model's output;
    ``.sum()``, ``.mean()`` and ``.max()`` reduce a tensor to one number, and ``+`` and ``-``
    combine two expressions. An expression prints as it is written, and equals every other one that
    prints the same. It is also a function of the output, so that it can be a ``target``.

    Examples
    --------
    >>> import torch, hookviz
    >>> box = hookviz.output[0]["scores"][2]
    >>> box
    output[0]["scores"][2]
    >>> box([{"scores": torch.tensor([0.9, 0.8, 0.5])}])
    tensor(0.5000)
    >>> hookviz.output["out"][0, 15, 8:16].mean() - hookviz.output["out"][0, 0].mean()
    output["out"][0, 15, 8:16].mean() - output["out"][0, 0].mean()
    """

    __slots__ = ("_text",)

    def __init__(self, text: str = "output") -> None:
        self._text = text

    # Recording

    def __getitem__(self, index: Any) -> Output:
        return Output(f"{self._operand}[{_written(index)}]")

    def __getattr__(self, name: str) -> Output:
        if name.startswith("_"):  # looked up by notebooks, copies and pickles
            raise AttributeError(name)
        return Output(f"{self._operand}.{name}")

    def sum(self, *arguments: Any, **options: Any) -> Output:
        """Record the sum of all values."""
        return self._reduced("sum", arguments or options)

    def mean(self, *arguments: Any, **options: Any) -> Output:
        """Record the mean of all values."""
        return self._reduced("mean", arguments or options)

    def max(self, *arguments: Any, **options: Any) -> Output:
        """Record the largest value."""
        return self._reduced("max", arguments or options)

    def _reduced(self, name: str, arguments: Any) -> Output:
        return self._refuse() if arguments else Output(f"{self._operand}.{name}()")

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(
            "An expression of the output is made of indices, keys and attributes, + and −, and "
            ".sum(), .mean() or .max() of all values: for more, give a function as target, such as "
            "lambda output: output.square().mean()."
        )

    __neg__ = __abs__ = __mul__ = __rmul__ = __truediv__ = __pow__ = __matmul__ = _refuse

    def __sub__(self, other: Output) -> Output:
        return Output(f"{self} - {other._operand}") if isinstance(other, Output) else NotImplemented

    def __add__(self, other: Output) -> Output:
        return Output(f"{self} + {other._operand}") if isinstance(other, Output) else NotImplemented

    def __iter__(self) -> Any:
        raise TypeError(f"{self} has no length before the model has run: give an index.")

    @property
    def _operand(self) -> str:
        """The text, in parentheses if it is a sum or difference."""
        return f"({self._text})" if isinstance(_parsed(self._text), ast.BinOp) else self._text

    # Evaluating and printing

    def __call__(self, *outputs: Any, **options: Any) -> Any:
        """Return the value in a model's output, which is the only argument.

        Raises
        ------
        ValueError
            Unknown key, index or attribute; the message lists those of the output.
        TypeError
            It is called as a method of the output, such as ``output.softmax(1)``.
        """
        if options or len(outputs) != 1 or isinstance(outputs[0], (int, float, str)):
            self._refuse()
        (output,) = outputs
        return _apply(self._text, _parsed(self._text), output)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> Any:
        return Output, (self._text,)


def _apply(text: str, tree: ast.expr, start: Any) -> Any:
    """Apply an expression to a model's output; applied to `output`, it is recorded again."""

    def source(part: ast.expr) -> str:
        return ast.get_source_segment(text, part) or ""

    step: Callable[[Any], Any]
    match tree:
        case ast.Name("output") | ast.Attribute(ast.Name("hookviz"), "output"):
            return start
        case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right):
            one, other = _apply(text, left, start), _apply(text, right, start)
            try:
                return one + other if isinstance(sign, ast.Add) else one - other
            except (RuntimeError, TypeError) as error:
                raise ValueError(f"{source(tree)} cannot be computed: {error}") from None
        case ast.Subscript(base, index):
            step = lambda value: value[_literal(index)]  # noqa: E731
        case ast.Call(ast.Attribute(base, name), [], []) if name in REDUCTIONS:
            step = lambda value: getattr(value, name)()  # noqa: E731
        case ast.Attribute(base, name) if not name.startswith("_"):
            step = attrgetter(name)
        case _:
            raise ValueError(f"{source(tree)} is not an expression of the output.")
    value = _apply(text, base, start)
    try:
        return step(value)
    except (LookupError, TypeError, AttributeError, RuntimeError):
        raise ValueError(
            f"The model's output has no {source(tree)}: {source(base)} is {described(value)}."
        ) from None


@lru_cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def sides_of(expression: Output) -> tuple[Output, Output] | None:
    """Return both sides of a difference; None for other expressions.

    >>> sides_of(output[0, 3] - output[0, 2])
    (output[0, 3], output[0, 2])
    """
    match _parsed(str(expression)):
        case ast.BinOp(left, ast.Sub(), right):
            return _part(expression, left), _part(expression, right)
    return None


def _part(expression: Output, tree: ast.expr) -> Output:
    return Output(ast.get_source_segment(str(expression), tree) or "")


output = Output()
"""The model's output itself; indexed, a number in it. See `Output`."""


def _written(index: Any) -> str:
    """Return an index as it is written in square brackets."""
    if isinstance(index, tuple):
        return ", ".join(map(_written, index)) + "," * (len(index) == 1)
    if isinstance(index, list):
        return f"[{', '.join(map(_written, index))}]"
    if isinstance(index, slice):
        ends = [index.start, index.stop, *([] if index.step is None else [index.step])]
        return ":".join("" if end is None else _written(end) for end in ends)
    if isinstance(index, str):
        return json.dumps(index, ensure_ascii=False)  # in double quotes, and valid Python
    if index is None or isinstance(index, Integral):
        return str(index)
    if index is Ellipsis:
        return "..."
    raise TypeError(
        f"output[…] takes numbers, slices and keys, not {type(index).__name__}: for more, give a "
        "function output -> scalar as target."
    )


# From text


def read_output(text: str) -> Output:
    """Parse an expression from text, without running it.

    Raises
    ------
    ValueError
        The text is not an expression of the output.

    Examples
    --------
    >>> read_output("output['out'][0, -1].mean()")
    output["out"][0, -1].mean()
    """
    try:
        expression = _apply(text.strip(), _parsed(text.strip()), output)
    except (SyntaxError, ValueError, RecursionError, TypeError):
        expression = None
    if not isinstance(expression, Output):  # for example a method that is not called
        raise ValueError(
            f"{text!r} is not an expression of the output: write output, then indices, keys and "
            'attributes, then .sum(), .mean() or .max(), such as output["out"][0, 15].mean().'
        )
    return expression


def _literal(tree: ast.AST) -> Any:
    match tree:
        case ast.Tuple(parts):
            return tuple(map(_literal, parts))
        case ast.Slice(start, stop, step):
            return slice(*(None if end is None else _literal(end) for end in (start, stop, step)))
    return ast.literal_eval(tree)


# A model's output in words


def described(value: Any) -> str:
    """Describe a model's output by its keys, attributes and shapes.

    Examples
    --------
    >>> import torch
    >>> described({"out": torch.zeros(1, 21, 8, 8), "aux": [1, 2]})
    "a dict with ['out'] (1, 21, 8, 8), ['aux'] list of 2"
    >>> described([]), described({}), described("no"), described(None)
    ('an empty list', 'an empty dict', 'a str', 'None')
    >>> from collections import OrderedDict
    >>> described(OrderedDict(out=torch.zeros(2)))
    "an OrderedDict with ['out'] (2,)"
    """
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None"
    name, parts = type(value).__name__, _parts(value)
    if isinstance(value, Collection) and not len(value):
        return f"an empty {name}"
    listed = [f"{suffix} {_short(item)}" for suffix, _, item in parts]
    more = f" and {len(parts) - _MAX_LISTED} more" if len(parts) > _MAX_LISTED else ""
    words = f" with {', '.join(listed[:_MAX_LISTED])}{more}" if parts else ""
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}{words}"


def _parts(value: Any) -> list[tuple[str, Any, Any]]:
    """Return the parts of a container: as written behind it, by key, index or name, and itself."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", key, item) for key, item in value.items()]
    names = getattr(value, "_fields", None)
    if names is not None:
        return [(f".{name}", name, item) for name, item in zip(names, value, strict=False)]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [(f"[{index}]", index, item) for index, item in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):  # with slots it has no __dict__
        names = [item.name for item in fields(value)]
    else:
        names = [name for name in getattr(value, "__dict__", {}) if name[:1] != "_"]
    return [(f".{name}", name, getattr(value, name, None)) for name in names]


class Leaf(NamedTuple):
    """A tensor in an output: its expression, its container's expression, and its key there."""

    at: Output
    base: Output
    key: Any
    value: Tensor


def leaves_of(value: Any) -> list[Leaf]:
    """Return the tensors of an output, detached: at most ``MOST_LEAVES``, four containers deep.

    Examples
    --------
    >>> import torch
    >>> [leaf.at for leaf in leaves_of({"out": torch.zeros(2), "more": [torch.ones(3)]})]
    [output["out"], output["more"][0]]
    """
    leaves: list[Leaf] = []

    def look(at: Output, base: Output, key: Any, value: Any, depth: int) -> None:
        if isinstance(value, Tensor):
            if len(leaves) < MOST_LEAVES:
                leaves.append(Leaf(at, base, key, value.detach()))
            return
        if depth == 4 or value is None or isinstance(value, (str, bytes, int, float, bool)):
            return
        for suffix, key_here, item in islice(_parts(value), MOST_LEAVES):
            if suffix.startswith("."):
                look(Output(f"{at}{suffix}"), at, key_here, item, depth + 1)
            elif isinstance(key_here, (str, int)):
                look(at[key_here], at, key_here, item, depth + 1)

    look(output, output, None, value, 0)
    return leaves


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    if isinstance(value, Mapping):
        return f"{type(value).__name__} with {', '.join(map(repr, list(value)[:_MAX_LISTED]))}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
