"""The only table of the kinds of torch's operations.

Torch has about 1,500 operations (``torch.ops.aten``), nearly all of them variants of a few kinds.
Code that follows tensors through a model uses these kinds and the small sets at the end of this
file instead of lists of names.

Names are needed here because torch's own tags do not suffice: ``pointwise`` is missing from
``hardswish``, ``prelu`` and many in-place operations, and normalizations have no tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch


class Kind(Enum):
    """The kinds of operations, with descriptions of their results."""

    VIEW = "another view of the same memory"
    COPY = "the same values in new memory, maybe in another dtype or on another device"
    ELEMENTWISE = "each value from the values at the same position, after broadcasting"
    ACTIVATION = "an elementwise function of networks"
    DROPOUT = "elementwise: some values become zero at random, the others are scaled"
    NORMALIZATION = "values shifted and scaled by statistics"
    SOFTMAX = "values normalized to a sum of one along a dimension"
    CONVOLUTION = "a kernel that slides over maps"
    PRODUCT = "a product of matrices or vectors"
    ATTENTION = "a whole attention as one operation"
    RECURRENCE = "a recurrent layer or cell as one operation"
    POOLING = "maximum or mean of windows of each map"
    RESAMPLING = "interpolation of each map"
    LOOKUP = "values read, or written, at computed positions between or among pixels"
    REDUCTION = "all values along some dimensions become one, or a few statistics"
    SCAN = "each value from all those before it along a dimension"
    SORTING = "values in order of size, or the largest ones"
    SELECTION = "values picked, or replaced, by an index or a mask"
    REARRANGEMENT = "the same values at other positions; some may be repeated, dropped or zeroed"
    PADDING = "values with a border around them"
    CONCATENATION = "tensors joined along a dimension"
    FACTORY = "new values that depend on no input value"
    RANDOM = "new random values"
    LOSS = "a loss of predictions and targets"
    TRANSFORM = "a Fourier transform, a matrix decomposition, distances of all pairs"
    CONVERSION = "from or to a sparse, quantized or nested layout"
    QUERY = "a Python value, or a check"
    BACKWARD = "the gradient of another operation"
    UNKNOWN = "not in the table: from another library, or new in torch"


# Names as in `OperationType.name`: without the marks of variants and of libraries such as cuDNN.
_NAMES = {
    Kind.COPY: "clone to_copy copy lift_fresh_copy lift contiguous lazy_clone conj_copy "
    "copy_from conj_physical",
    # Torch does not tag these, or not all of their variants, as pointwise.
    Kind.ELEMENTWISE: "masked_fill floor_divide add_relu complex polar addcmul "
    "addcdiv lerp maximum minimum where rsub rshift lshift and or xor "
    "fake_quantize_per_tensor_affine_cachemask",
    Kind.ACTIVATION: "relu relu6 hardtanh clamp clamp_min clamp_max threshold leaky_relu prelu "
    "prelu_kernel rrelu rrelu_with_noise rrelu_with_noise_functional elu celu selu gelu silu mish "
    "hardswish hardsigmoid sigmoid tanh softplus log_sigmoid_forward hardshrink softshrink",
    Kind.DROPOUT: "dropout fused_dropout",
    Kind.NORMALIZATION: "batch_norm batch_norm_legit batch_norm_legit_no_training "
    "batch_norm_legit_functional batch_norm_with_update batch_norm_with_update_functional "
    "batch_norm_no_update quantized_batch_norm instance_norm "
    "group_norm layer_norm rms_norm fused_rms_norm renorm weight_norm_interface",
    Kind.SOFTMAX: "softmax log_softmax safe_softmax masked_softmax sparse_softmax "
    "sparse_log_softmax",
    Kind.CONVOLUTION: "convolution convolution_overrideable conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d conv_transpose3d conv_depthwise2d conv_depthwise3d "
    "convolution_transpose convolution_relu convolution_add_relu depthwise_convolution "
    "nnpack_spatial_convolution slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d "
    "slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d",
    Kind.PRODUCT: "mm bmm addmm baddbmm addbmm addmm_activation matmul linear mv "
    "addmv dot vdot addr outer einsum bilinear trilinear int_mm scaled_mm grouped_mm sspaddmm "
    "sparse_addmm sparse_mm sparse_sparse_matmul sparse_semi_structured_linear hspmm "
    "weight_int8pack_mm weight_int4pack_mm weight_int4pack_mm_for_cpu",
    Kind.ATTENTION: "multi_head_attention transformer_encoder_layer_fwd",
    Kind.RECURRENCE: "rnn_layer rnn lstm_mps lstm gru rnn_tanh rnn_relu "
    "lstm_cell gru_cell thnn_fused_lstm_cell thnn_fused_gru_cell quantized_lstm quantized_gru",
    Kind.LOOKUP: "grid_sampler_2d grid_sampler_2d_cpu_fallback grid_sampler_3d "
    "grid_sampler max_unpool2d max_unpool3d roi_align roi_pool ps_roi_align ps_roi_pool "
    "deform_conv2d nms isin bucketize searchsorted",
    Kind.REDUCTION: "sum mean amax amin max min prod var std var_mean std_mean any all argmax "
    "argmin logsumexp linalg_vector_norm linalg_norm norm median nanmedian mode kthvalue "
    "count_nonzero nansum nanmean aminmax trace dist histc histogram bincount segment_reduce "
    "foreach_norm foreach_max euclidean_dist is_all_true is_any_true",
    Kind.SCAN: "cumsum cumprod cummax cummin logcumsumexp",
    Kind.SORTING: "sort topk unique unique2 unique_dim unique_consecutive unique_dim_consecutive",
    Kind.SELECTION: "index unsafe_index index_select gather take masked_select embedding "
    "embedding_bag embedding_bag_forward_only embedding_renorm nonzero nonzero_static index_put "
    "unsafe_index_put index_put_impl index_copy index_fill index_add index_reduce scatter "
    "scatter_add scatter_reduce masked_scatter put unsafe_masked_index "
    "unsafe_masked_index_put_accumulate slice_scatter select_scatter diagonal_scatter "
    "as_strided_scatter",
    Kind.REARRANGEMENT: "flip roll rot90 repeat repeat_interleave tile pixel_shuffle "
    "pixel_unshuffle channel_shuffle im2col col2im tril triu diag_embed block_diag unfold_copy "
    "unsafe_split unsafe_split_with_sizes unsafe_view reshape reshape_copy "
    "transpose glu resize resize_as set combinations",
    Kind.PADDING: "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d",
    Kind.CONCATENATION: "cat stack chunk_cat rnn_flatten_weight",
    Kind.FACTORY: "empty empty_strided empty_permuted empty_quantized efficientzerotensor zeros "
    "ones full eye arange range linspace logspace scalar_tensor tril_indices triu_indices fill "
    "zero hann_window hamming_window bartlett_window blackman_window kaiser_window fft_fftfreq "
    "fft_rfftfreq new_zeros_with_same_feature_meta "
    "init_dropout_state from_file",
    Kind.RANDOM: "rand randn randint randperm bernoulli uniform normal normal_functional random "
    "exponential log_normal cauchy geometric multinomial poisson binomial standard_gamma "
    "sample_dirichlet",
    Kind.LOSS: "nll_loss nll_loss_forward nll_loss2d_forward mse_loss l1_loss smooth_l1_loss "
    "huber_loss binary_cross_entropy binary_cross_entropy_with_logits ctc_loss "
    "multi_margin_loss multilabel_margin_loss_forward soft_margin_loss kl_div",
    Kind.TRANSFORM: "affine_grid_generator fft_r2c fft_c2r fft_c2c cdist_forward pdist_forward "
    "cholesky_solve cholesky_inverse cholesky_solve_helper triangular_solve geqrf ormqr lu_unpack "
    "spsolve",
    Kind.CONVERSION: "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr "
    "to_sparse_bsc to_dense to_mkldnn sparse_coo_tensor sparse_compressed_tensor sparse_mask "
    "sparse_sum coalesced sparse_coo_tensor_with_dims_and_tensors sparse_coo_tensor_with_dims "
    "convert_indices_from_coo_to_csr convert_indices_from_csr_to_coo quantize_per_tensor "
    "quantize_per_tensor_dynamic quantize_per_channel dequantize int_repr to_padded_tensor "
    "nested_tensor_from_mask nested_tensor_from_tensor_list nested_from_padded "
    "transform_bias_rescale_qkv pack_padded_sequence",
    Kind.QUERY: "local_scalar_dense equal is_same_size nested_tensor_size nested_tensor_strides "
    "nested_tensor_storage_offsets nested_tensor_from_mask_left_aligned assert_async "
    "functional_assert_async record_stream amp_foreach_non_finite_check_and_unscale "
    "amp_update_scale use_cudnn_ctc_loss use_cudnn_rnn_flatten_weight use_miopen_ctc_loss",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


@dataclass(frozen=True)
class OperationType:
    """The properties of an operation that do not depend on its arguments.

    Attributes
    ----------
    name : str
        Torch's name without the marks of variants and libraries: ``"relu"`` for ``aten::relu_``,
        ``"batch_norm"`` for ``aten::native_batch_norm`` and ``aten::cudnn_batch_norm``.
    kind : Kind
    defaults : mapping of str to object
        The default values by the names of all arguments; those of cuDNN's have the usual names.
    mutates : bool
        True if it writes into an input tensor, or changes its shape.
    outs : frozenset of str
        The names of its ``out=`` arguments.
    writes : tuple of str
        The names of the arguments whose values it overwrites.
    of_shapes : bool
        True if the result depends on the shape of the input tensors, not on their values.
    forgets : bool
        True if it overwrites a tensor and uses none of its old values.
    reads_all : bool
        True if the values of all input tensors are in the result.
    tensors : tuple of bool
        Which arguments are tensors, or lists of them.
    lists : bool
        True if some are lists.
    """

    name: str
    kind: Kind
    defaults: Mapping[str, Any]
    mutates: bool
    outs: frozenset[str]
    writes: tuple[str, ...]
    of_shapes: bool
    forgets: bool
    reads_all: bool
    tensors: tuple[bool, ...]
    lists: bool


@cache
def operation_type(function: Any) -> OperationType:
    """Return the type of an operation.

    Examples
    --------
    >>> relu = operation_type(torch.ops.aten.relu_.default)
    >>> relu.name, relu.kind, relu.writes
    ('relu', <Kind.ACTIVATION: 'an elementwise function of networks'>, ('self',))
    """
    arguments = function._schema.arguments
    written = [a.name for a in arguments if a.alias_info and a.alias_info.is_write]
    name = plain_name(function.overloadpacket.__name__.strip("_"))
    kind, mutates = _kind(function, name), function._schema.is_mutable
    makes_new = kind in (Kind.FACTORY, Kind.RANDOM)
    of_shapes = makes_new and (name.endswith("_like") or name.startswith("new_"))
    outs = frozenset(argument.name for argument in arguments if argument.is_out)
    forgets = mutates and name in OVERWRITING
    return OperationType(
        name,
        kind,
        {str(_ARGUMENTS.get(each.name, each.name)): each.default_value for each in arguments},
        mutates,
        outs,
        () if torch.Tag.inplace_view in function.tags else tuple(written),
        of_shapes,
        forgets,
        reads_all=not (outs or of_shapes or forgets),
        tensors=tuple("Tensor" in str(each.type) for each in arguments),
        lists=any("List[" in str(each.type) for each in arguments if "Tensor" in str(each.type)),
    )


@cache
def is_composite(function: Any) -> bool:
    """Return True if torch composes an operation of others, which have the derivatives.

    Examples
    --------
    >>> is_composite(torch.ops.aten.conv2d.default), is_composite(torch.ops.aten.relu.default)
    (True, False)
    """
    key = "CompositeImplicitAutograd"
    return torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), key)


def plain_name(name: str) -> str:
    """Return the name of an operation without that of the library which computes it.

    Examples
    --------
    >>> plain_name("native_batch_norm"), plain_name("cudnn_batch_norm")
    ('batch_norm', 'batch_norm')
    """
    return re.sub("^(native|cudnn|miopen|mkldnn|mps)_", "", name)


_ARGUMENTS = {"epsilon": "eps", "exponential_average_factor": "momentum"}
"""The names of arguments in cuDNN's and MIOpen's operations -> those in torch's own."""


def _kind(function: Any, name: str) -> Kind:
    if "_backward" in name:
        return Kind.BACKWARD
    if function.is_view or torch.Tag.inplace_view in function.tags:
        return Kind.VIEW
    if name in ("max", "min") and function._overloadname == "other":
        return Kind.ELEMENTWISE
    if name in _KINDS:
        return _KINDS[name]
    if _is_tagged_pointwise(function) or name.startswith(("special_", "bitwise_")):
        return Kind.ELEMENTWISE
    if name.startswith("scaled_dot_product") or name.endswith("_attention_forward"):
        return Kind.ATTENTION
    if "_pool" in name:
        return Kind.POOLING
    if name.startswith("upsample_"):
        return Kind.RESAMPLING
    if name.endswith("_like") or name.startswith("new_"):
        return Kind.RANDOM if name.startswith("rand") else Kind.FACTORY
    if name.startswith("linalg_"):
        return Kind.TRANSFORM
    if name.endswith("_copy"):  # a view's result in new memory, as torch.export has it
        return Kind.REARRANGEMENT
    return Kind.UNKNOWN


def _is_tagged_pointwise(function: Any) -> bool:
    # Some in-place and out= variants lack the tag of the plain operation.
    plain = getattr(torch.ops.aten, function.overloadpacket.__name__.rstrip("_"), None)
    variants = () if plain is None else (getattr(plain, overload) for overload in plain.overloads())
    return any(torch.Tag.pointwise in overload.tags for overload in (function, *variants))


ELEMENTWISE_KINDS = frozenset((Kind.COPY, Kind.ELEMENTWISE, Kind.ACTIVATION, Kind.DROPOUT))
"""Kinds whose result values are each computed from the input values at their position.

Softmax and layer norm are not elementwise. A batch norm with running statistics is, but that
depends on its arguments: see `uses_running_statistics`."""

LAYER_KINDS = frozenset((Kind.CONVOLUTION, Kind.PRODUCT))
"""Kinds that sum products of their input with weights."""

BATCH_NORMS = frozenset(name for name in _KINDS if "batch_norm" in name)
"""The batch norms of all devices and export formats. An instance norm runs as one of them."""

RECTIFIERS = frozenset(("relu", "threshold", "relu6", "hardtanh", "clamp_min", "clamp"))
"""Activations that may set everything below a bound to the bound."""

CLAMPS = frozenset(("clamp", "clamp_min", "clamp_max", "relu6", "hardtanh"))
"""Activations with a derivative of 0 outside of an interval, whose ends are arguments."""

STEPS = frozenset(("round", "floor", "ceil", "trunc", "sign", "sgn", "heaviside"))
"""Elementwise operations whose derivative is 0 everywhere."""

PROBABILITIES = frozenset(("softmax", "safe_softmax"))
"""Softmaxes that return probabilities, not their logarithms."""

OVERWRITING = frozenset(
    [
        "copy",
        "fill",
        "zero",
        "uniform",
        "normal",
        "random",
        "exponential",
        "log_normal",
        "cauchy",
        "geometric",
        "bernoulli",
    ]
)
"""Operations whose in-place variant uses none of the old values."""

UNINITIALIZED = frozenset(
    ["empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"]
)
"""Factories whose result holds arbitrary memory until something is written."""

FACTORS: dict[str, tuple[str, str]] = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "matmul": ("self", "other"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "dot": ("self", "tensor"),
}
"""The arguments that a matrix product multiplies."""


def name_of_hardtanh(low: float, high: float) -> str:
    """Return ``"relu6"`` for the bounds 0 and 6: torch computes it as a hardtanh."""
    return "relu6" if (low, high) == (0, 6) else "hardtanh"


def uses_running_statistics(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return True if a batch norm normalizes by its running statistics.

    Otherwise it normalizes by the batch's own statistics, and samples influence each other.
    """
    if arguments.get("running_mean") is None:
        return False
    # Only the variants for inference have no such argument and do not train.
    return not arguments.get("training", name not in _FOR_INFERENCE)


_FOR_INFERENCE = frozenset(
    ("batch_norm_legit_no_training", "batch_norm_no_update", "quantized_batch_norm")
)
