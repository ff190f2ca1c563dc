"""The command line: ``hookviz page resnet34 photo.jpg -o view.html``."""

from __future__ import annotations

import argparse
import importlib
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXAMPLES = """\
examples:
  hookviz page --demo -o view.html
      the demo model and one of its pictures: nothing is downloaded
  hookviz page resnet34 photo.jpg -o view.html
      a torchvision model with its default weights
  hookviz page timm:convnext_tiny photo.jpg --layers "stages.*.conv_dw" -o view.html
      a timm model, and of its layers those that match
  hookviz page mypackage.nets:build photo.jpg --weights trained.pt --target 3 -o view.html
      what a function of yours returns, with a state dict of yours, and the gradient of class 3

The page is one file. It opens in any browser, needs no network and sends nothing: layers by the
ribbon, the slider or the arrow keys up and down; channels by a click on a tile or left and right;
exact values under the pointer; wheel and drag to zoom all pictures together.
"""


class CommandError(Exception):
    """What a user can mend, in a sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, or 2 where the user can mend what went wrong."""
    options = parser().parse_args(arguments)
    try:
        page(options)
    except KeyboardInterrupt:
        return 130
    except (CommandError, ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        print(f"hookviz: {error}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, and what they mean."""
    from . import __version__

    whole = argparse.ArgumentParser(
        prog="hookviz",
        description="See every feature map of any PyTorch convnet.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"hookviz {__version__}")
    commands = whole.add_subparsers(required=True, metavar="command")
    one = commands.add_parser(
        "page",
        help="write a model's feature maps and gradients as one HTML page",
        description="Run a model once on a picture and write all that its layers did as one page.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = one.add_argument
    add("model", nargs="?", help="a torchvision name, timm:NAME, or package.module:function")
    add("image", nargs="?", help="a picture")
    add("-o", "--output", default="view.html", help="the file to write (view.html)")
    add("--weights", help='a file of weights (a state dict), or "none" for random ones')
    add("--layers", nargs="+", metavar="PATTERN", help='such as "layer4.*"; all convolutions')
    add("--target", help="class name or number for the gradient; the top prediction")
    add("--demo", action="store_true", help="the demo model, and its picture if none is given")
    add("--title", help="of the page")
    add("--max-mb", type=float, default=10.0, metavar="MB", help="how large it may be (10)")
    return whole


def page(options: argparse.Namespace) -> None:
    """Write the page that was asked for."""
    model, image, weights = chosen(options)
    target: Any = options.target
    if target is not None and target.lstrip("-").isdigit():
        target = int(target)
    tell("running the model …")
    from .export.page import write_page
    from .run.session import Session
    from .view.settings import Settings, first_layer
    from .view.view import View

    session = Session(model, image, weights=weights)

    def run(goal: Any) -> Any:
        return session.run(goal, layers=options.layers)

    done = run(target)
    view = View(Settings(first_layer(done.cache), target=target), session, done)
    bar = Bar()
    text = write_page(view, run, max_bytes=1e6 * options.max_mb, title=options.title, tick=bar.tick)
    bar.end()
    Path(options.output).write_text(text, encoding="utf-8")
    tell(f"{options.output}: {len(text) / 1e6:.1f} MB, {len(done.cache)} layers")


def chosen(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The model, the picture, and torchvision's weights where they are known."""
    from . import demo_images, demo_model, pretrained

    name, image, weights = options.model, options.image, None
    if options.demo:
        given = image or name  # with --demo the first word is the picture
        return demo_model(), given or demo_images()[6], None
    if not name or not image:
        raise CommandError("give a model and a picture, or --demo; see hookviz page --help.")
    if not Path(image).is_file():
        raise CommandError(f"there is no file {image!r}: give the path of a picture.")
    kind, _, rest = name.partition(":")
    tell(f"loading {name} …")
    if kind == "timm":
        model = timm_model(rest, pretrained=options.weights is None)
    elif rest:
        model = built(kind, rest)
    elif options.weights is None:
        model, weights = pretrained(name)
    else:
        model = untrained(name)
    if options.weights not in (None, "none"):
        load(model, options.weights)
    return model.eval(), image, weights


def untrained(name: str) -> Any:
    """A torchvision model with random weights."""
    import torchvision

    from .hooking.select import close_names

    names = torchvision.models.list_models()
    if name not in names:
        raise CommandError(f"torchvision has no model {name!r}; {close_names(name, names)}.")
    return torchvision.models.get_model(name, weights=None)


def timm_model(name: str, pretrained: bool) -> Any:
    """A timm model."""
    try:
        import timm
    except ImportError:
        raise CommandError(f"timm:{name} needs timm: pip install timm.") from None
    return timm.create_model(name, pretrained=pretrained)


def built(module: str, name: str) -> Any:
    """What a function of the user's returns."""
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CommandError(f"{module}:{name} cannot be imported: {error}.") from None
    from torch import nn

    model = found if isinstance(found, nn.Module) else found()
    if not isinstance(model, nn.Module):
        raise CommandError(f"{module}:{name} gave a {type(model).__name__}, not a model.")
    return model


def load(model: Any, path: str) -> None:
    """Put a file's weights into a model."""
    import torch

    if not Path(path).is_file():
        raise CommandError(f"there is no file {path!r} of weights.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError):
        raise CommandError(f"{path!r} holds no weights that can be read as data alone.") from None
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError) as error:
        first = str(error).strip().split("\n")
        why = (first[1] if len(first) > 1 else first[0]).strip()
        raise CommandError(f"the weights in {path!r} do not fit the model: {why}") from None


def tell(words: str) -> None:
    print(words, file=sys.stderr)


class Bar:
    """How much is done, in one line of a terminal; a file gets nothing."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()

    def tick(self, share: float) -> None:
        """Say it, 0 to 1."""
        if self.on:
            full = round(30 * share)
            print(
                f"\r{'█' * full}{'░' * (30 - full)} {100 * share:3.0f} %", end="", file=sys.stderr
            )

    def end(self) -> None:
        """Leave the line."""
        if self.on:
            print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
