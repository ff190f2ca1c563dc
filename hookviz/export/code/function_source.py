"""The source of a function or class that stands by itself: with its helpers and imports.

So `hookviz.widgets.Explorer.code` prints the function that made a heatmap, whoever wrote it.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import symtable
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any


@dataclass
class Source:
    """What makes a function anew."""

    name: str  # what it is called in the lines
    imports: set[str] = field(default_factory=set)  # one name a line
    lines: list[str] = field(default_factory=list)  # constants and helpers, and then itself
    names: dict[str, Any] = field(default_factory=dict)  # what imports and lines give, by name


def source_of(function: Any, name: str = "method") -> Source | None:
    r"""The source of a function or class, docstrings off, and of all that it needs.

    Helpers from its own module are printed too; modules, classes and other modules' functions
    are imported; numbers and texts that it uses are as they are now. A lambda is called ``name``.

    None where there is no such source, or not of all: a built-in, a bound method, a
    functools.partial, a file that has changed, a class of the notebook's, a tensor that it uses.
    """
    source = Source(name)
    try:
        source.name = _define(function, name, source)
    except (AttributeError, LookupError, OSError, SyntaxError, TypeError, ValueError):
        return None
    return source


def names_in(source: str) -> set[str]:
    r"""The names that lines of Python have or want at their top level.

    >>> sorted(names_in("import torch\ndef f(x: int):\n    return torch.relu(x + y)"))
    ['f', 'int', 'torch', 'y']
    """
    tables = [symtable.symtable(source, "", "exec")]
    for table in tables:
        tables += table.get_children()
    symbols = [(symbol, table) for table in tables for symbol in table.get_symbols()]
    return {s.get_name() for s, table in symbols if s.is_global() or table is tables[0]}


def _define(function: Any, name: str, source: Source) -> str:
    """Add a definition and, before it, what it needs; an error where something cannot be had."""
    node, text = _located(function)
    if isinstance(node, ast.Lambda):
        lines = [f"def {name}({ast.unparse(node.args)}):", f"    return {ast.unparse(node.body)}"]
    else:
        name, lines = node.name, _printed(node, text)
    if source.names.setdefault(name, function) is not function:
        raise ValueError(f"{name} is two things")
    around = _around(function)
    for used in sorted(names_in("\n".join(lines)) - {name}):
        if used in around or not hasattr(builtins, used):
            _provide(used, around[used], function.__module__, lines, source)
    source.lines += [*([""] if source.lines else []), *lines]
    return name


def _provide(name: str, value: Any, home: str, lines: list[str], source: Source) -> None:
    """Add a name that a definition's lines use: an import, a helper or a constant."""
    known = name in source.names
    if source.names.setdefault(name, value) is not value:
        raise ValueError(f"{name} is two things")
    if isinstance(value, ModuleType):
        source.imports |= _module_imports(name, value, lines)
    elif known:
        return
    elif isinstance(value, FunctionType) and value.__module__ == home:
        if (own := _define(value, name, source)) != name:
            source.lines.append(f"{name} = {own}")
    elif hasattr(value, "__name__"):
        module, own = value.__module__, value.__name__
        if module == "__main__" or getattr(sys.modules[module], own, None) is not value:
            raise ValueError(f"{name} cannot be imported")
        source.imports.add(f"from {module} import {own}" + (f" as {name}" if name != own else ""))
    else:
        if ast.literal_eval(repr(value)) != value:
            raise ValueError(f"{name} cannot be written")
        source.lines.append(f"{name} = {value!r}")


def _module_imports(name: str, module: ModuleType, lines: list[str]) -> set[str]:
    """The import of a module, and of those within it that are reached through its name."""
    parent, _, last = module.__name__.rpartition(".")
    if name != module.__name__:
        if parent and last == name:
            return {f"from {parent} import {last}"}
        return {f"import {module.__name__} as {name}"}
    nodes = ast.walk(ast.parse("\n".join(lines)))
    paths = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    within = {path for path in paths if path.startswith(f"{name}.") and path in sys.modules}
    within = set() if name == "torch" else within  # which loads its own
    return {f"import {path}" for path in (name, *within)}


def _around(function: Any) -> dict[str, Any]:
    """The names that a function or class sees outside itself."""
    if not isinstance(function, FunctionType):
        return vars(sys.modules[function.__module__])
    function = inspect.unwrap(function)  # its decorators see the same
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}


def _located(function: Any) -> tuple[ast.FunctionDef | ast.ClassDef | ast.Lambda, str]:
    """Where a function or class is defined: its node, and the whole file or cell."""
    wrapped = inspect.unwrap(function)
    text = "".join(inspect.findsource(wrapped)[0])
    tree = ast.parse(text)
    if isinstance(function, type):
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        (found,) = (node for node in classes if node.name == function.__name__)
        return found, text
    if not isinstance(function, FunctionType):
        raise TypeError("a method is bound to an object")
    code = wrapped.__code__
    flags = code.co_flags & __future__.annotations.compiler_flag  # a cell's, of an earlier cell
    if code not in _codes(compile(text, "", "exec", flags, dont_inherit=True)):
        raise ValueError("the file has changed")
    made = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    node = [node for node in made if _is_of(node, code)][-1]  # the innermost lambda
    if wrapped is not function and not getattr(node, "decorator_list", []):
        raise ValueError("it was wrapped elsewhere")
    for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
        ast.literal_eval(default)  # an expression may have another value by now
    return node, text


def _is_of(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    if isinstance(node, ast.FunctionDef):
        return (node.name, _first_line(node)) == (code.co_name, code.co_firstlineno)
    body = node.body
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    steps = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    return code.co_name == "<lambda>" and start <= max(steps, default=(0, 0)) < end


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min(each.lineno for each in (node, *node.decorator_list))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _printed(node: ast.FunctionDef | ast.ClassDef, text: str) -> list[str]:
    """A definition's own lines, comments and all, without its docstring."""
    lines = text.split("\n")[: node.end_lineno]
    if ast.get_docstring(node) is not None and len(node.body) > 1:
        docstring = node.body.pop(0)
        after = docstring.end_lineno or 0
        while after < len(lines) and not lines[after].strip():
            after += 1
        del lines[docstring.lineno - 1 : after]
    kept = textwrap.dedent("\n".join(lines[_first_line(node) - 1 :]))
    try:
        same = ast.dump(ast.parse(kept)) == ast.dump(ast.Module([node], []))
    except SyntaxError:  # the docstring shares its line with other code
        same = False
    return (kept if same else ast.unparse(node)).split("\n")
