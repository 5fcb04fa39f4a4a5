# NAME, INPUTS and OUTPUTS stand above: of each tensor its name, its type and its shape.

import ctypes
import os
import weakref

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def library_path():
    for folder in ("build", ""):
        path = os.path.join(HERE, folder, f"lib{NAME}.so")
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"lib{NAME}.so is not built: sh {os.path.join(HERE, 'build.sh')}")


class Network(torch.nn.Module):
    """Runs the network's library on the current stream: tensors of PyTorch in and out, no copy of them is made.

    A call allocates its outputs unless `out` has them. The library keeps one CUDA graph for each of the last eight sets of addresses, so that a program
    that calls it with the same tensors again pays one launch.
    """

    def __init__(self, device="cuda", library=None):
        super().__init__()
        self.device = torch.device(device)
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.library = ctypes.CDLL(library or library_path())
        self.message = getattr(self.library, f"{NAME}_message")
        self.message.restype = ctypes.c_char_p
        self.launch = getattr(self.library, f"{NAME}_run")
        self.launch.argtypes = [ctypes.c_void_p] * (len(INPUTS) + len(OUTPUTS) + 2)
        made = ctypes.c_void_p()
        with torch.cuda.device(self.device):
            self.check(getattr(self.library, f"{NAME}_create")(ctypes.byref(made), 0))
        self.handle = made
        # Also called when the interpreter ends, before what it calls is gone.
        destroy = getattr(self.library, f"{NAME}_destroy")
        destroy.argtypes = [ctypes.c_void_p]
        weakref.finalize(self, destroy, made)
        # Looked up once: a call of a small network takes less time than these.
        self.tensors = [(name, getattr(torch, dtype), torch.Size(shape)) for name, dtype, shape in [*INPUTS, *OUTPUTS]]

    def check(self, code):
        if code:
            raise RuntimeError(f"{NAME}: {self.message(code).decode()}")

    def outputs(self):
        return [torch.empty(shape, dtype=dtype, device=self.device) for _, dtype, shape in self.tensors[len(INPUTS) :]]

    def forward(self, *inputs, out=None):
        if len(inputs) != len(INPUTS):
            raise TypeError(f"{NAME} takes {len(INPUTS)} inputs, got {len(inputs)}")
        out = self.outputs() if out is None else list(out)
        if len(out) != len(OUTPUTS):
            raise TypeError(f"{NAME} has {len(OUTPUTS)} outputs, got room for {len(out)}")
        pointers = []
        for tensor, (name, dtype, shape) in zip([*inputs, *out], self.tensors):
            if tensor.shape != shape or tensor.dtype != dtype or tensor.device != self.device:
                raise ValueError(f"{NAME}: {name} is {dtype}{list(shape)} on {self.device}, got {tensor.dtype}{list(tensor.shape)} on {tensor.device}")
            if not tensor.is_contiguous():
                raise ValueError(f"{NAME}: {name} must lie row-major: call contiguous()")
            pointer = tensor.data_ptr()
            if pointer % 16:
                raise ValueError(f"{NAME}: {name} must begin at a multiple of 16 bytes: call clone()")
            pointers.append(pointer)
        pointers.append(torch.cuda.current_stream(self.device).cuda_stream)
        if torch.cuda.current_device() == self.device.index:
            self.check(self.launch(self.handle, *pointers))
        else:
            with torch.cuda.device(self.device):
                self.check(self.launch(self.handle, *pointers))
        return out[0] if len(out) == 1 else tuple(out)
