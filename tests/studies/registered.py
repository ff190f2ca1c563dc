"""Operations registered with torch, which allows that once: a search for doctests imports again."""

import torch

LIBRARY = torch.library.Library("hookviz_tests", "FRAGMENT")


def lstm(x, weight, stride, buffer, hx, cx, mode, size, projected, layers, batch_first, *rest):
    dropout, train, both, _, _ = rest
    made = torch.lstm(x, (hx, cx), weight, True, layers, dropout, train, both, batch_first)
    return *made, x.new_empty(0), x.new_empty(0)


# On a GPU a whole LSTM is one operation. It has no kernel for the CPU, so this one stands in.
CUDNN = torch.library.Library("aten", "IMPL")

if not hasattr(torch.ops.hookviz_tests, "strange"):
    LIBRARY.define("strange(Tensor y) -> Tensor")
    LIBRARY.impl("strange", lambda y: y.flip(-1).clone(), "CompositeExplicitAutograd")
    CUDNN.impl("_cudnn_rnn", lstm, "CPU")

strange = torch.ops.hookviz_tests.strange.default
cudnn_rnn = torch.ops.aten._cudnn_rnn.default
