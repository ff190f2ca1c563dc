"""How captured tensors are kept: copied as they are at that moment, within a budget of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .records import CapturedTensor, statistics


class Copies:
    """Copies of tensors, until the budget is spent; from then on statistics.

    ``device``, ``dtype`` and ``max_bytes`` as in `hookviz.capture`.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        max_bytes: int | None = None,
    ) -> None:
        if max_bytes is not None and max_bytes < 0:
            raise ValueError(f"max_bytes={max_bytes} is negative: give a number of bytes, or None.")
        if device is not None:
            try:
                torch.empty(0, device=device)
            except (RuntimeError, AssertionError) as error:
                reason = str(error).partition("\n")[0]
                raise ValueError(
                    f"device={str(device)!r} cannot be used ({reason}): give 'cpu', or leave it "
                    "out."
                ) from None
        self.device, self.dtype, self.max_bytes = device, dtype, max_bytes
        self._reserved = 0

    def take(self, layer: str, path: str, tensor: Tensor) -> CapturedTensor:
        """Copy a tensor as it is now, and set room aside for its gradient."""
        needs = tensor.numel() * self._kept_as(tensor).itemsize * (1 + tensor.requires_grad)
        taken = CapturedTensor(layer, path, tensor.shape, tensor.dtype, needs, self.max_bytes)
        if self.max_bytes is None or self._reserved + needs <= self.max_bytes:
            self._reserved += needs
            taken.keep(self.copy(tensor))
        else:
            taken.keep(statistics(tensor))
        return taken

    def take_gradient(self, taken: CapturedTensor, gradient: Tensor) -> None:
        """Copy the gradient that has arrived at a tensor; the latest counts."""
        taken.keep_gradient(self.copy(gradient) if taken.kept else statistics(gradient))

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy that nothing else holds, detached."""
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor = _unwrapped(tensor)
        # Within inference_mode a copy would be an inference tensor, of little use outside.
        with torch.inference_mode(False):
            kept_as = self._kept_as(tensor)
            if self.device is None and kept_as == tensor.dtype:
                return tensor.detach().clone()  # quantized ones know of no other way
            return tensor.detach().to(self.device, kept_as, copy=True)

    def are(self, tensors: Sequence[Tensor], taken: Sequence[CapturedTensor]) -> bool:
        """Whether tensors have just the values that were taken."""
        return all(
            each.kept and each.shape == tensor.shape and torch.equal(self.copy(tensor), each.value)
            for tensor, each in zip(tensors, taken, strict=False)
        )

    def _kept_as(self, tensor: Tensor) -> torch.dtype:
        return self.dtype if self.dtype and tensor.is_floating_point() else tensor.dtype


def is_batched(tensor: Tensor) -> bool:
    """Whether torch.vmap runs, and this stands for many."""
    return torch._C._functorch.is_batchedtensor(tensor)


def _unwrapped(tensor: Tensor) -> Tensor:
    """What torch.func's transforms have wrapped: they leave nothing in a wrapper that gets out."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if is_batched(tensor):
            raise RuntimeError(
                "Within torch.vmap a layer returns one sample of many and its values cannot be "
                "captured: run the model on the whole batch, or capture outside of vmap."
            )
        tensor = functorch.get_unwrapped(tensor)
    return tensor
