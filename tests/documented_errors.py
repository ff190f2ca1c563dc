"""Provoke each message that docs/troubleshooting.md explains, for test_docs.py."""

import copy
import warnings

import torch
from torch import nn

import hookviz

SEEN_ELSEWHERE = [  # messages that appear only on a GPU or in a browser
    "OutOfMemoryError: CUDA out of memory.",
    "Error displaying widget: model not found",
    "Loading widget…",
    "A Jupyter widget could not be displayed because the widget state could not be found.",
    "Explorer(children=(HTML(value=…",
]

PROVOKED = []
"""Functions that raise an error or return a message that a user sees."""


def provoked(function):
    PROVOKED.append(function)
    return function


def error_text(provocation):
    """Return the error as a user sees it, ``"ValueError: …"``, or else the function's result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", r"The \.grad attribute|Full backward hook|.*max_bytes")
        try:
            text = provocation()
        except Exception as error:
            message = error.args[0] if isinstance(error, KeyError) else str(error)
            return f"{type(error).__name__}: {message}"
    assert isinstance(text, str), f"{provocation.__name__} did not raise"
    return text


def convolutions(*, inplace=False):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace), nn.Conv2d(4, 4, 3), nn.Flatten())


X = torch.rand(1, 3, 8, 8)


def captured():
    model = convolutions()
    with hookviz.capture(model) as cache:
        model(X).sum().backward()
    return cache


# PyTorch's own


@provoked
def full_backward_hook_and_in_place():
    model = convolutions(inplace=True)
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model(X)


@provoked
def modified_by_an_inplace_operation():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


@provoked
def does_not_require_grad():
    model = convolutions().requires_grad_(False)
    model(X).sum().backward()


@provoked
def second_backward():
    score = convolutions()(X).sum()
    score.backward()
    score.backward()


@provoked
def only_for_scalars():
    convolutions()(X).backward()


@provoked
def leaf_in_place():
    nn.ReLU(inplace=True)(torch.ones(2, requires_grad=True))


@provoked
def hook_on_a_tensor_without_gradient():
    X.register_hook(print)


@provoked
def grad_of_a_non_leaf():
    y = torch.ones(2, requires_grad=True) * 2
    y.sum().backward()
    assert y.grad is None


def full_backward_hook_without_input_gradient():
    model = convolutions()
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model(X).sum().backward()


if torch.__version__.startswith("2.4."):  # torch 2.4 does not warn
    SEEN_ELSEWHERE.append(
        "UserWarning: Full backward hook is firing when gradients are computed with respect to "
        "module outputs since no inputs require gradients."
    )
else:
    provoked(full_backward_hook_without_input_gradient)


@provoked
def not_used_in_the_graph():
    x = X.clone().requires_grad_()
    torch.autograd.grad(torch.ones(1, requires_grad=True).sum(), x)


@provoked
def numpy_of_a_tensor_that_requires_grad():
    convolutions()(X).numpy()


@provoked
def numpy_of_bfloat16():
    X.bfloat16().numpy()


@provoked
def inference_tensor_in_backward():
    with torch.inference_mode():
        x = torch.ones(1, 3, 8, 8)
    convolutions()(x)


@provoked
def deepcopy_of_a_result():
    copy.deepcopy(convolutions()(X))


@provoked
def wrong_channels():
    convolutions()(torch.rand(1, 1, 8, 8))


@provoked
def wrong_type():
    convolutions()(X.double())


@provoked
def hook_on_a_script_module():
    torch.jit.script(convolutions()).register_forward_hook(lambda module, args, output: None)


@provoked
def trace_with_backward_hooks():
    model = convolutions()
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    torch.jit.trace(model, X)


# Messages of hookviz that are put together, so that no string of the package has them


@provoked
def no_such_type():
    hookviz.capture(hookviz.demo_model(), nn.LSTM)


@provoked
def does_not_fit():
    hookviz.explore(convolutions(), torch.rand(1, 1, 8, 8))


@provoked
def no_scores():
    return explored_facts(nn.Sequential(nn.Conv2d(3, 4, 3)))


def explored_facts(model):
    summary = hookviz.explore(model, X).frame.summary
    return next(fact for fact in summary if fact.startswith("no "))


@provoked
def no_such_heatmap():
    hookviz.heatmap(captured()["0"], "gradcam2")


@provoked
def no_such_attribution():
    hookviz.attribute(convolutions(), X, 0, method="lrp")


@provoked
def no_such_key_of_the_output():
    hookviz.explore(convolutions(), X, target=hookviz.output["out"][0, 3])


@provoked
def not_one_number_of_the_output():
    hookviz.explore(convolutions(), X, target=hookviz.output[0])


@provoked
def not_one_number():
    hookviz.explore(convolutions(), X, target=lambda out: out)


@provoked
def inputs_not_kept():
    return captured()["0"].input
