"""Names of methods and functions of torch, by what they do to the memory of a tensor."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATTRIBUTES", "CASTS", "COPIES", "HOST_RESULTS", "JOINS", "NEW_ARRAYS", "SIZES", "TENSOR_RESULTS", "VIEWS", "WAITS",
]  # fmt: skip

CASTS: Final = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
}
SIZES: Final = {
    "float32": 4, "float": 4, "float64": 8, "double": 8, "float16": 2, "half": 2, "bfloat16": 2, "uint8": 1, "int8": 1,
    "bool": 1, "int16": 2, "int32": 4, "int": 4, "int64": 8, "long": 8,
}  # fmt: skip
"""Bytes of an element, by the names of ``torch.dtype``."""

COPIES: Final = frozenset({"cuda", "xpu", "mps", "npu", "hpu"})
"""Methods that copy to a device."""

WAITS: Final = frozenset({"item", "tolist", "cpu"})
"""Methods that wait for the device and return what is on the host."""

ATTRIBUTES: Final = frozenset(
    {
        "shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "layout", "itemsize", "nbytes", "names",
        "is_leaf", "grad_fn",
    }
)  # fmt: skip
"""Attributes of a tensor that are no tensors."""

HOST_RESULTS: Final = frozenset(
    {
        "size", "dim", "numel", "nelement", "stride", "element_size", "is_contiguous", "is_pinned", "data_ptr", "type",
        "get_device", "is_floating_point", "is_complex", "storage_offset", "ndimension", "keys",
    }
)  # fmt: skip
"""Methods of a tensor that return no tensor, and wait for nothing."""

VIEWS: Final = frozenset(
    {"view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as", "detach", "requires_grad_"}
)
"""Methods that return the same memory in the same order."""

TENSOR_RESULTS: Final = frozenset(
    {
        "abs", "add", "argmax", "argmin", "clamp", "clone", "contiguous", "cos", "cumsum", "detach", "div", "eq", "exp",
        "expand", "flatten", "ge", "gt", "le", "log", "log_softmax", "lt", "mean", "mm", "mul", "ne", "neg", "norm",
        "permute", "pow", "prod", "relu", "reshape", "sigmoid", "sin", "softmax", "sqrt", "square", "squeeze", "std",
        "sub", "sum", "t", "tanh", "transpose", "unsqueeze", "var", "view", "bool", "long", "int", "float", "double",
        "half", "logsumexp", "matmul", "argsort", "masked_fill", "nonzero", "all", "any", "isnan", "isfinite",
    }
)  # fmt: skip
"""Methods and functions of torch that return a tensor where their argument is."""

JOINS: Final = frozenset(
    {
        "torch.stack", "torch.cat", "torch.concat", "numpy.stack", "numpy.concatenate",
        "torch.utils.data.default_collate", "torch.nn.utils.rnn.pad_sequence",
        "torch.utils.data._utils.collate.default_collate",
    }
)  # fmt: skip
"""Functions that make a batch of samples, by their full names."""

NEW_ARRAYS: Final = frozenset(
    f"numpy.{name}"
    for name in ("array", "stack", "concatenate", "zeros", "ones", "empty", "full", "load", "vstack", "hstack")
)
"""Functions that return a new array, which nobody else has."""
