"""The command line: ``hookviz page resnet34 photo.jpg -o view.html``, ``hookviz survey …``."""

from __future__ import annotations

import argparse
import importlib
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from inspect import signature
from pathlib import Path
from typing import Any

EXAMPLES = """\
examples:
  hookviz page --demo -o view.html
      the demo model and one of its pictures: nothing is downloaded
  hookviz page resnet34 photo.jpg -o view.html
      a torchvision model with its default weights
  hookviz page timm:convnext_tiny photo.jpg --layers "stages.*.conv_dw" -o view.html
      a timm model, and its layers that match
  hookviz page --demo --network -o view.html
      the page runs the network: drop other pictures on it, silence channels
  hookviz page mypackage.nets:build photo.jpg --weights trained.pt --target 3 -o view.html
      the model that your function returns, with your state dict, and the gradient of class 3

The page is one file. It opens in any browser, needs no network and sends nothing: layers by the
ribbon, the slider or the arrow keys up and down; channels by a click on a tile or left and right;
exact values under the pointer; Ctrl + wheel and drag to zoom all pictures together.
"""

SURVEY = """\
examples:
  hookviz survey resnet18 pictures/ -o survey.npz
      the pictures in a folder at which each channel of each convolution is largest
  hookviz survey resnet18 pictures/ --shard 0/2 --device cuda:0 -o part-0.npz
      the first half of them; in Python, hookviz.load("part-0.npz") + hookviz.load("part-1.npz")
  hookviz survey --demo pictures/ --layers "layer3.*" -k 16 --skip -o survey.npz
      the demo model; pictures that cannot be read are named and left out

Subfolders are the classes, if all pictures are in subfolders. hookviz.load("survey.npz") reads the
file in Python.
"""


DIAGNOSE = """\
examples:
  hookviz diagnose mypackage.nets:check
      check() returns (model, inputs) or (model, inputs, target); the exit status is 1 if an error
      is found, and 2 if the model could not be examined
  hookviz diagnose mypackage.nets:check --json --fail-on warning --ignore "saturated:head.*"
      as JSON; the exit status is also 1 for a warning
"""


class CommandError(Exception):
    """A user's error, in a sentence with its cure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status: 0, or 2 after an error.

    ``diagnose`` returns 1 if a finding is at least as severe as ``--fail-on``.
    """
    options = parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:  # the user's code must not choose the status, which says something
        tell(f"hookviz: the code called sys.exit({ended.code!r}) before hookviz had ended.")
        return 2
    except (CommandError, ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        tell(f"hookviz: {error}")
        return 2
    except Exception:  # a fault of hookviz; Python would end with 1
        traceback.print_exc()
        return 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    from . import __version__

    whole = argparse.ArgumentParser(
        prog="hookviz",
        description="See every feature map of any PyTorch network.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"hookviz {__version__}")
    commands = whole.add_subparsers(required=True, metavar="command")
    one = commands.add_parser(
        "page",
        help="write a model's feature maps and gradients as one HTML page",
        description="Run a model once on a picture and write all its layers as one page.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = model_options(one, "a picture", "view.html")
    add(
        "--target",
        help="the score of the gradient: a class by name or number, one against another "
        "('ball - moon'), or a number in the output ('output[\"out\"][0, 15].mean()'); the top "
        "prediction if left out",
    )
    add("--demo", action="store_true", help="the demo model, and its picture if none is given")
    add("--title", help="the page's title")
    add("--max-bytes", type=float, default=10e6, metavar="N", help="its maximum size (10e6)")
    add("--network", action="store_true", help="the page runs the network: other pictures, edits")
    add(
        "--precision",
        choices=["float32", "float16", "int8"],
        default="float32",
        help="of the weights of --network (float32)",
    )
    one.set_defaults(run=page)
    survey_parser(commands)
    diagnose_parser(commands)
    return whole


def model_options(one: argparse.ArgumentParser, inputs: str, output: str) -> Callable[..., Any]:
    """Add the options of model, inputs and output; return the function that adds more."""
    add = one.add_argument
    add("model", nargs="?", help="a torchvision name, timm:NAME, or package.module:function")
    add("inputs", nargs="?", help=inputs)
    add("-o", "--output", default=output, help=f"the file to write ({output})")
    add("--weights", help='a file of weights (a state dict), or "none" for random ones')
    add("--layers", nargs="+", metavar="PATTERN", help='such as "layer4.*" (all convolutions)')
    return add


def survey_parser(commands: Any) -> None:
    """Add the options of a survey."""
    one = commands.add_parser(
        "survey",
        help="find the top pictures of each channel in a folder",
        description="Run a model over a folder of pictures; write each channel's top pictures.",
        epilog=SURVEY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.set_defaults(run=survey)
    add = model_options(one, "a folder of pictures", "survey.npz")
    add("--demo", action="store_true", help="the demo model")
    add("-k", type=int, default=9, help="pictures kept for each channel (9)")
    add("--batch-size", type=int, default=32, metavar="N", help="pictures in a batch (32)")
    add("--workers", type=int, default=0, metavar="N", help="processes that read pictures (0)")
    add("--skip", action="store_true", help="skip pictures that cannot be read")
    add(
        "--shard",
        type=part_of,
        metavar="I/N",
        help="part I of N, counted from 0: such as 0/2 and 1/2",
    )
    add("--device", help="such as cuda:1; a GPU if there is one")


def part_of(text: str) -> tuple[int, int]:
    """Return the part and the number of parts that ``"0/2"`` names."""
    part, _, parts = text.partition("/")
    try:
        return int(part), int(parts)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N, such as 0/2") from None


def diagnose_parser(commands: Any) -> None:
    """Add the options of a diagnosis."""
    one = commands.add_parser(
        "diagnose",
        help="find faults of a model, for scripts and CI",
        description="Run a model once, forward and backward, and report its faults.",
        epilog=DIAGNOSE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.set_defaults(run=diagnose)
    add = one.add_argument
    add("function", help="package.module:function, which returns (model, inputs[, target])")
    add("--json", action="store_true", help="print the findings as JSON")
    add(
        "--fail-on",
        choices=["error", "warning", "note"],
        default="error",
        help="exit with 1 for a finding of this severity or worse (error)",
    )
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="KIND[:LAYER]",
        help="findings to leave out",
    )


def diagnose(options: argparse.Namespace) -> int:
    """Print the findings; return 1 if they are as bad as ``--fail-on``."""
    from . import diagnose as diagnosed

    made = called(options.function)
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise CommandError(
            f"{options.function} returned a value of type {type(made).__name__}: return "
            "(model, inputs) or (model, inputs, target)."
        )
    pairs = [each.partition(":") for each in options.ignore]
    ignore = [(kind, pattern or "*") for kind, _, pattern in pairs]
    with redirect_stdout(sys.stderr):  # standard output is for the result alone
        found = diagnosed(*made, ignore=ignore)
    print(found.to_json() if options.json else found.text())
    return int(bool(found.worst(options.fail_on)))


def page(options: argparse.Namespace) -> None:
    """Write a page."""
    from .draw.document import check_size
    from .files import check_folder

    check_folder(options.output)
    check_size(options.max_bytes)
    if options.precision != "float32" and not options.network:
        raise CommandError("--precision is that of a page with --network: give both.")
    model, inputs, weights = chosen(options)
    # Imported late, since importing torch takes seconds and the errors above do not need it.
    from . import explore
    from .tables import counted

    tell("running the model …")
    explorer = explore(model, inputs, options.target, layers=options.layers, weights=weights)
    explorer.to_html(
        options.output,
        max_bytes=options.max_bytes,
        title=options.title,
        network=options.network,
        precision=options.precision,
    )
    size = Path(options.output).stat().st_size
    tell(f"{options.output}: {size / 1e6:.1f} MB, {counted(len(explorer.cache), 'layer')}")


def survey(options: argparse.Namespace) -> None:
    """Write a survey, or a part of it."""
    from .files import check_folder, check_pictures

    check_folder(options.output)
    folder = options.inputs or options.model if options.demo else options.inputs
    if not folder or not (options.model or options.demo):
        raise CommandError("give a model and a folder, or --demo; see hookviz survey --help.")
    check_pictures(folder)
    import torch

    from . import demo_model
    from . import survey as survey_of
    from .hooking.arguments import check_device

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(device)
    torch.manual_seed(0)  # random weights must be the same for each part
    model, weights = (demo_model(), None) if options.demo else model_of(options)
    result = survey_of(
        model.to(device),
        folder,
        options.layers,
        k=options.k,
        batch_size=options.batch_size,
        num_workers=options.workers,
        weights=weights,
        on_error="skip" if options.skip else "raise",
        shard=options.shard,
    )
    result.save(options.output)
    tell(f"{options.output}: {result.title}")


def chosen(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Return the model, the picture, and torchvision's weights if known."""
    name, picture = options.model, options.inputs
    if options.demo:
        from . import demo_images, demo_model

        given = picture or name  # with --demo the first word is the picture
        return demo_model(), given or demo_images()[6], None
    if not name or not picture:
        raise CommandError("give a model and a picture, or --demo; see hookviz page --help.")
    check_file(picture, "one picture")
    model, weights = model_of(options)
    return model, picture, weights


def check_file(path: str, what: str) -> None:
    """Raise a `CommandError` unless there is such a file."""
    if not Path(path).is_file():
        wrong = f"{path!r} is a folder" if Path(path).is_dir() else f"missing file {path!r}"
        raise CommandError(f"{wrong}: give the path of {what}.")


def model_of(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the named model in eval mode, and torchvision's weights if known."""
    from .models import pretrained, timm_model

    name, weights = options.model, None
    kind, _, rest = name.partition(":")
    tell(f"loading {name} …")
    if kind == "timm":
        model = timm_model(rest, trained=options.weights is None)
    elif rest:
        model = built(name)
    elif options.weights is None:
        model, weights = pretrained(name)
    else:
        import torchvision

        build = torchvision.models.get_model_builder(name)
        names = {"weights", "weights_backbone"}  # the backbone's would be downloaded by default
        model = build(**dict.fromkeys(names & {*signature(build).parameters}))
    if options.weights not in (None, "none"):
        load(model, options.weights)
    return model.eval(), weights


def built(path: str) -> Any:
    """Return a user's model, ``"package.module:name"``, or the model that a function makes."""
    from torch import nn

    found = imported(path)
    model = found if isinstance(found, nn.Module) else called(path)
    if not isinstance(model, nn.Module):
        raise CommandError(f"{path} gave a value of type {type(model).__name__}, not a model.")
    return model


def called(path: str) -> Any:
    """Call a user's function."""
    function = imported(path)
    with _reported(f"{path} raised"):
        return function()


def imported(path: str) -> Any:
    """Import a user's function."""
    module, _, name = path.partition(":")
    if not name or "/" in module or module.endswith(".py"):
        raise CommandError(f"{path!r} is not package.module:function, such as mynets:build.")
    sys.path.insert(0, "")
    with _reported(f"{path} cannot be imported:"):
        return getattr(importlib.import_module(module), name)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Run the user's code: its output goes to standard error, its exception becomes a sentence."""
    from .run.errors import first_sentence

    try:
        with redirect_stdout(sys.stderr):
            yield
    except Exception as error:
        raise CommandError(f"{what} {type(error).__name__}: {first_sentence(error)}.") from error


def load(model: Any, path: str) -> None:
    """Load a file's weights into a model."""
    import torch

    check_file(path, "a file of weights")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError):
        raise CommandError(
            f"{path!r} has no weights that can be read without running code."
        ) from None
    try:
        model.load_state_dict(state.get("state_dict", state) if isinstance(state, dict) else state)
    except (RuntimeError, TypeError) as error:
        why = " ".join(str(error).split())
        raise CommandError(f"the weights in {path!r} do not fit the model: {why:.300}") from None


def tell(words: str) -> None:
    from .tables import visible

    print(visible(words), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
