
import pathlib

import torch
from torch.utils import cpp_extension

_HERE = pathlib.Path(__file__).resolve().parent
_BUILT = _HERE / "build" / "torch"


def _load():
    """Compiles the operator, or finds it compiled, and registers it."""
    _BUILT.mkdir(parents=True, exist_ok=True)
    sources = [str(_HERE / source) for source in SOURCES]
    name = NAME + "_torch"
    if cpp_extension.is_ninja_available():
        cpp_extension.load(name=name, sources=sources, extra_cflags=["-O2"], extra_cuda_cflags=CUDA_FLAGS,
                           build_directory=str(_BUILT), is_python_module=False)
        return
    from setuptools import setup

    flags = {"cxx": ["-O2"], "nvcc": CUDA_FLAGS}
    build = cpp_extension.BuildExtension.with_options(use_ninja=False, no_python_abi_suffix=True)
    setup(name=name, ext_modules=[cpp_extension.CUDAExtension(name, sources, extra_compile_args=flags)],
          cmdclass={"build_ext": build},
          script_args=["-q", "build_ext", "--build-lib", str(_BUILT), "--build-temp", str(_BUILT / "objects")])
    torch.ops.load_library(str(_BUILT / (name + ".so")))


def laid_out(which, tensor):
    """A copy of a tensor in the strides of an input, which its number or its name says; the tensor itself where it has them."""
    names = [row[0] for row in INPUTS]
    name, dtype, sizes, strides = INPUTS[names.index(which) if isinstance(which, str) else which]
    if tensor.dtype != getattr(torch, dtype):
        raise TypeError(f"{name} has elements of {tensor.dtype}, the kernel reads torch.{dtype}")
    if list(tensor.shape) != sizes:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}, the kernel was made for {sizes}")
    if all(size == 1 or own == wanted for size, own, wanted in zip(sizes, tensor.stride(), strides)):
        return tensor
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


_load()
operator = getattr(torch.ops.automap, NAME)
