"""Writes `web/messages.d.ts` from `hookviz/view/messages.py` and the settings.

Run ``make messages`` after a change of a message or a setting.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from hookviz.view import messages
from hookviz.view.settings import Settings

FILE = Path(__file__).parent.parent / "web" / "messages.d.ts"
PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", Any: "unknown"}
UNIONS = """\
type Without<Kind, Names extends PropertyKey> = Kind extends unknown ? Omit<Kind, Names> : never;

/** A question with its key. */
export type SentQuestion = {};

/** A question as it is asked; its key is added when it is sent. */
export type AnyQuestion = Without<SentQuestion, "key">;

/** A complete request. */
export type SentRequest = {};

/** A request before sending: with its bytes, without settings, count and questions. */
export type AnyRequest =
  & Without<SentRequest, "settings" | "moved" | "questions">
  & {{ bytes?: Uint8Array }};

/** A reply; some hold arrays alone. */
export type AnyReply = {} | (Reply & {{ ask: {} }});
"""
NOT_SENT = (Settings, "target")  # it may be any object: the facts have it in words
HEAD = "// Generated from hookviz/view/messages.py and settings.py by `make messages`.\n"


def type_of(hint, asked=False):
    """Return a Python type as one of TypeScript.

    A float of the kernel may be NaN or infinite, which JSON lacks: it arrives as null. The
    browser's questions and requests, for which `asked` is true, have finite numbers.

    >>> type_of(list[int] | None), type_of(tuple[float, messages.Finite]), type_of(dict[str, Any])
    ('number[] | null', '[number | null, number]', 'Record<string, unknown>')
    >>> type_of(float, asked=True)
    'number'
    """
    if hint == messages.Finite:
        return "number"
    if hint is float and not asked:
        return "number | null"
    origin, parts = get_origin(hint), [type_of(part, asked) for part in get_args(hint)]
    if hint is type(None):
        return "null"
    if origin in (Union, types.UnionType):
        nullable = "null" in parts
        return " | ".join("number" if nullable and p == "number | null" else p for p in parts)
    if origin is list:
        return f"({parts[0]})[]" if "|" in parts[0] else f"{parts[0]}[]"
    if origin is tuple:
        return f"[{', '.join(parts)}]"
    if origin is dict:
        return f"Record<{', '.join(parts)}>"
    return PLAIN.get(hint) or ("SentQuestion" if hint is messages.Question else hint.__name__)


def interface(kind):
    """Return the declaration of a dataclass or a named tuple."""
    hints = get_type_hints(kind, include_extras=True)
    asked = issubclass(kind, (messages.Question, messages.Request, Settings))
    base = next((each for each in kind.__bases__ if is_dataclass(each)), None)
    inherited = {each.name for each in fields(base)} if base is not None else set()
    lines = [f"export interface {kind.__name__}{f' extends {base.__name__}' if base else ''} {{"]
    bases = (messages.Question, messages.LayerPart, messages.Reply, messages.Request)
    for word, roots in (("ask", bases[:3]), ("set", bases[3:])):
        if issubclass(kind, roots) and kind not in bases:
            lines.append(f'  {word}: "{messages.word_of(kind)}";')
    if is_dataclass(kind):
        for each in fields(kind):
            if each.name not in inherited and (kind, each.name) != NOT_SENT:
                default = each.default is not MISSING or each.default_factory is not MISSING
                # The kernel leaves out only what is None; the browser may leave out any default.
                optional = default and (asked or each.default is None) and kind is not Settings
                name = each.name.rstrip("_")
                lines.append(f"  {name}{'?' * optional}: {type_of(hints[each.name], asked)};")
    else:
        lines += [f"  {name}: {type_of(hint)};" for name, hint in hints.items()]
    return "\n".join([*lines, "}"])


def kinds():
    """Yield the messages and their parts, each after those that it extends."""
    for kind in (Settings, *vars(messages).values()):
        if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
            yield kind


def text():
    """Return the whole file."""
    questions = " | ".join(kind.__name__ for kind in messages.QUESTIONS.values())
    requests = " | ".join(kind.__name__ for kind in messages.REQUESTS.values())
    answers = [kind for kind in kinds() if messages.Reply in kind.__bases__]
    words = {messages.word_of(kind) for kind in answers}
    plain = " | ".join(f'"{word}"' for word in messages.QUESTIONS if word not in words)
    replies = " | ".join(kind.__name__ for kind in answers)
    unions = UNIONS.format(questions, requests, replies, plain)
    return "\n".join([HEAD, *(f"{interface(kind)}\n" for kind in kinds()), unions])


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
