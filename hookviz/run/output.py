"""Expressions for a number anywhere in a model's output, written as in Python."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

REDUCTIONS = ("sum", "mean", "max")
"""The methods of a tensor that an expression may end in, without arguments."""

_MAX_LISTED = 6  # keys, attributes or items that an error lists


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

    __slots__ = ("_base", "_other", "_step")

    _base: Output | None
    _step: tuple[str, Any] | None
    _other: Output | None

    def __init__(
        self,
        base: Output | None = None,
        step: tuple[str, Any] | None = None,
        other: Output | None = None,
    ) -> None:
        self._base, self._step, self._other = base, step, other

    # Recording

    def __getitem__(self, index: Any) -> Output:
        return Output(self, ("index", _checked(index)))

    def __getattr__(self, name: str) -> Output:
        if name.startswith("_"):  # looked up by notebooks, copies and pickles
            raise AttributeError(name)
        return Output(self, ("attribute", name))

    def sum(self) -> Output:
        """Record the sum of all values."""
        return Output(self, ("call", "sum"))

    def mean(self) -> Output:
        """Record the mean of all values."""
        return Output(self, ("call", "mean"))

    def max(self) -> Output:
        """Record the largest value."""
        return Output(self, ("call", "max"))

    def __sub__(self, other: Output) -> Output:
        return self._joined("-", other)

    def __add__(self, other: Output) -> Output:
        return self._joined("+", other)

    def _joined(self, sign: str, other: Output) -> Output:
        return Output(self, ("join", sign), other) if isinstance(other, Output) else NotImplemented

    def __iter__(self) -> Any:
        raise TypeError(f"{self} has no length before the model has run: index what is meant.")

    # Evaluating and printing

    def __call__(self, output: Any) -> Any:
        """Return the value in a model's output.

        Raises
        ------
        ValueError
            Unknown key, index or attribute; the message lists those of the output.
        """
        if self._base is None or self._step is None:
            return output
        value = self._base(output)
        kind, argument = self._step
        if kind == "join":
            assert self._other is not None
            other = self._other(output)
            try:
                return value - other if argument == "-" else value + other
            except (RuntimeError, TypeError) as error:
                raise ValueError(f"{self} cannot be computed: {error}") from None
        try:
            if kind == "index":
                return value[argument]
            attribute = getattr(value, argument)
            return attribute() if kind == "call" else attribute
        except (LookupError, TypeError, AttributeError, RuntimeError):
            raise ValueError(
                f"The model's output has no {self}: {self._base} is {described(value)}."
            ) from None

    def __str__(self) -> str:
        if self._base is None or self._step is None:
            return "output"
        kind, argument = self._step
        if kind == "join":
            right = str(self._other)
            closed = self._other is not None and self._other._joins
            return f"{self._base} {argument} {f'({right})' if closed else right}"
        base = f"({self._base})" if self._base._joins else str(self._base)
        if kind == "index":
            return f"{base}[{_written(argument)}]"
        return f"{base}.{argument}" + "()" * (kind == "call")

    __repr__ = __str__

    @property
    def _joins(self) -> bool:
        return self._step is not None and self._step[0] == "join"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> Any:
        return Output, (self._base, self._step, self._other)


def sides_of(expression: Output) -> tuple[Output, Output] | None:
    """Return both sides of a difference; None for other expressions.

    >>> sides_of(output[0, 3] - output[0, 2])
    (output[0, 3], output[0, 2])
    """
    if expression._step != ("join", "-") or expression._base is None or expression._other is None:
        return None
    return expression._base, expression._other


output = Output()
"""The model's output itself; indexed, a number in it. See `Output`."""


def _checked(index: Any) -> Any:
    """Return an index that can be written down."""
    if isinstance(index, tuple):
        return tuple(map(_checked, index))
    if isinstance(index, list):
        return list(map(_checked, index))
    if isinstance(index, slice):
        return slice(*(_checked(end) for end in (index.start, index.stop, index.step)))
    if index is None or index is Ellipsis or isinstance(index, (str, bool)):
        return index
    if isinstance(index, Integral):
        return int(index)
    raise TypeError(
        f"output[…] takes numbers, slices and keys, not {type(index).__name__}: for more, give a "
        "function output -> scalar as target."
    )


def _written(index: Any) -> str:
    if isinstance(index, tuple):
        return ", ".join(map(_written, index)) + "," * (len(index) == 1)
    if isinstance(index, list):
        return f"[{', '.join(map(_written, index))}]"
    if isinstance(index, slice):
        ends = ["" if end is None else str(end) for end in (index.start, index.stop, index.step)]
        return ":".join(ends[:2] if index.step is None else ends)
    if isinstance(index, str):
        return json.dumps(index, ensure_ascii=False)  # in double quotes, and valid Python
    return "..." if index is Ellipsis else str(index)


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
        tree = ast.parse(text.strip(), mode="eval").body
        return _read(tree)
    except (SyntaxError, ValueError, RecursionError, TypeError):
        raise ValueError(
            f"{text!r} is not an expression of the output: write output, then indices, keys and "
            'attributes, then .sum(), .mean() or .max(), such as output["out"][0, 15].mean().'
        ) from None


def _read(tree: ast.AST) -> Output:
    match tree:
        case ast.Name("output"):
            return output
        case ast.Attribute(ast.Name("hookviz"), "output"):
            return output
        case ast.Subscript(value, index):
            return _read(value)[_literal(index)]
        case ast.Call(ast.Attribute(value, name), [], []) if name in REDUCTIONS:
            return getattr(_read(value), name)()
        case ast.Attribute(value, name) if not name.startswith("_") and name not in REDUCTIONS:
            return Output(_read(value), ("attribute", name))
        case ast.BinOp(left, ast.Sub(), right):
            return _read(left) - _read(right)
        case ast.BinOp(left, ast.Add(), right):
            return _read(left) + _read(right)
    raise ValueError


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
    "a dict with 'out' (1, 21, 8, 8), 'aux' list of 2"
    >>> described([])
    'an empty list'
    >>> from collections import OrderedDict
    >>> described(OrderedDict(out=torch.zeros(2)))
    "an OrderedDict with 'out' (2,)"
    """
    name = type(value).__name__
    named = f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return _listed(named, [(repr(key), item) for key, item in value.items()])
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        public = attributes(value)
        return _listed(named, [(f".{key}", item) for key, item in public.items()])
    fields: Any = getattr(value, "_fields", None)
    if fields is not None:
        pairs = zip(fields, value, strict=False)
        return _listed(named, [(f".{key}", item) for key, item in pairs])
    if not value:
        return f"an empty {name}"
    return _listed(named, [(f"[{index}]", item) for index, item in enumerate(value)])


class Leaf(NamedTuple):
    """A tensor in an output: its expression, its container's expression, and its key there."""

    at: Output
    base: Output
    key: Any
    value: Tensor


def leaves_of(value: Any, limit: int = 200) -> list[Leaf]:
    """Return the tensors of an output, detached: at most ``limit``, four containers deep.

    Examples
    --------
    >>> import torch
    >>> [leaf.at for leaf in leaves_of({"out": torch.zeros(2), "more": [torch.ones(3)]})]
    [output["out"], output["more"][0]]
    """
    leaves: list[Leaf] = []

    def look(at: Output, base: Output, key: Any, value: Any, depth: int) -> None:
        if isinstance(value, Tensor):
            if len(leaves) < limit:
                leaves.append(Leaf(at, base, key, value.detach()))
            return
        if depth == 4 or value is None or isinstance(value, (str, bytes, int, float, bool)):
            return
        if isinstance(value, Mapping):
            pairs = [(k, item) for k, item in value.items() if isinstance(k, (str, int))]
        elif isinstance(value, Sequence):
            pairs = list(enumerate(islice(value, limit)))
        else:
            for name, item in attributes(value).items():
                look(Output(at, ("attribute", name)), at, name, item, depth + 1)
            return
        for key_here, item in pairs:
            look(at[key_here], at, key_here, item, depth + 1)

    look(output, output, None, value, 0)
    return leaves


def index_of(expression: Output, leaves: Sequence[Leaf]) -> tuple[int, tuple[int, ...]] | None:
    """Return an expression's tensor, as a number of a leaf, and its index in that tensor.

    None if the expression is not a single value of a leaf.

    Examples
    --------
    >>> import torch
    >>> leaves = leaves_of({"out": torch.zeros(2, 3, 8), "more": [torch.ones(3)]})
    >>> index_of(output["out"][1][2, -1], leaves), index_of(output["more"][0][0], leaves)
    ((0, (1, 2, 7)), (1, (0,)))
    >>> index_of(output["out"].sum(), leaves) is None
    True
    """
    indices: list[Any] = []
    at = expression
    while True:
        number = next((n for n, leaf in enumerate(leaves) if leaf.at == at), None)
        if number is not None:
            break
        if at._base is None or at._step is None or at._step[0] != "index":
            return None
        indices.insert(0, at._step[1])
        at = at._base
    shape = leaves[number].value.shape
    numbers = torch.arange(shape.numel()).reshape(shape)
    for index in indices:
        numbers = numbers[index]
    if numbers.numel() != 1:
        return None
    position = torch.unravel_index(numbers.flatten()[0], shape)
    return number, tuple(map(int, position))


def attributes(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields, or the public attributes of any other object."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name, None) for item in fields(value)}
    return {key: item for key, item in getattr(value, "__dict__", {}).items() if key[:1] != "_"}


def _listed(what: str, pairs: list[tuple[str, Any]]) -> str:
    if not pairs:
        return what
    more = f" and {len(pairs) - _MAX_LISTED} more" if len(pairs) > _MAX_LISTED else ""
    items = [f"{name} {_short(item)}" for name, item in pairs[:_MAX_LISTED]]
    return f"{what} with {', '.join(items)}{more}"


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    if isinstance(value, Mapping):
        return f"{type(value).__name__} with {', '.join(map(repr, list(value)[:_MAX_LISTED]))}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
