"""Seconds of the operators of bench/suites in PyTorch, each in several forms.

usage: torch-operators.py < CASES        a JSON list of {"id", "op", "params", "dtype"}; a line of JSON a case as it ends

Types are f16, bf16, tf32 (float32 with allow_tf32), s8 (int8, sums in int32) and e4m3 (float8_e4m3fn, products only: torch._scaled_mm with scales of 1
and results in bf16, by sums of few bits and by those of f32). Products in s8 are torch._int_mm; of convolutions in s8 PyTorch has
no kernel on a GPU, and its own words are among the failed forms.

The first form of an operator has the layout that automap is given (images NCHW, filters KCRS, matrices row-major); the others are what a
user could write instead: channels last, another function, one convolution for several. A time is the median of CUDA graphs of 20
calls that follow 0.1 s of the same, since a device whose power is capped is faster after a pause than it stays. Inputs lie in the last cache where they
fit; cuDNN chooses by measuring (benchmark mode); nothing is compiled (torch.compile).
"""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

CALLS, SAMPLES, SETTLE_SECONDS = 20, 25, 0.1
torch.backends.cudnn.benchmark = True


torch.backends.cudnn.allow_tf32 = True
torch.backends.cuda.matmul.allow_tf32 = True
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "s8": torch.int8, "e4m3": torch.float8_e4m3fn}
dtype = torch.float16


def tensor(*shape):
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, device="cuda", dtype=dtype)
    if dtype == torch.float8_e4m3fn:
        return torch.randn(*shape, device="cuda").to(dtype)
    return torch.randn(*shape, device="cuda", dtype=dtype)


def last(x):
    return x.contiguous(memory_format=torch.channels_last_3d if x.dim() == 5 else torch.channels_last)


def both(f, x, w, **how):
    """A convolution in either layout."""
    xl, wl = last(x), last(w)
    return {"NCHW": lambda: f(x, w, **how), "channels last": lambda: f(xl, wl, **how)}


def scaled(p):
    """cuBLASLt takes its right factor transposed only."""
    x, t, one = tensor(p["m"], p["k"]), tensor(p["n"], p["k"]), torch.ones((), device="cuda")
    how = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
    return {
        "_scaled_mm, fast accumulation": lambda: torch._scaled_mm(x, t.t(), use_fast_accum=True, **how),
        "_scaled_mm": lambda: torch._scaled_mm(x, t.t(), use_fast_accum=False, **how),
    }


def scaled_in_blocks(p):
    """Scales of groups of 128 of each row, and of blocks of 128 x 128, as cuBLASLt takes them: rows, and sums, innermost."""
    m, n, k, block = p["m"], p["n"], p["k"], 128
    x, t = tensor(m, k), tensor(n, k)
    s, of = torch.rand(k // block, m, device="cuda").t(), torch.rand(n // block, k // block, device="cuda").t()
    how = {"scale_a": s, "scale_b": of, "out_dtype": torch.bfloat16}
    return {"_scaled_mm, scales of blocks": lambda: torch._scaled_mm(x, t.t(), **how), **scaled(p)}


def matmul(p):
    if dtype == torch.float8_e4m3fn:
        return scaled(p)
    x, w, t = tensor(p["m"], p["k"]), tensor(p["k"], p["n"]), tensor(p["n"], p["k"])
    mm, name = (torch._int_mm, "_int_mm") if dtype == torch.int8 else (torch.mm, "mm")
    return {name: lambda: mm(x, w), f"{name}, right factor transposed": lambda: mm(x, t.t())}


def matvec(p):
    x, v = tensor(p["m"], p["k"]), tensor(p["k"])
    column = v[:, None].contiguous()
    return {"mv": lambda: torch.mv(x, v), "mm with one column": lambda: x @ column}


def conv1d(p):
    x, w = tensor(p["n"], p["c"], p["l"]), tensor(p["k"], p["c"], p["r"])
    xl, wl = last(x[:, :, None]), last(w[:, :, None])
    how = {"stride": p["stride"], "padding": p["pad"], "dilation": p["dilation"]}
    flat = {"stride": (1, p["stride"]), "padding": (0, p["pad"]), "dilation": (1, p["dilation"])}
    return {"conv1d": lambda: F.conv1d(x, w, **how), "conv2d, channels last": lambda: F.conv2d(xl, wl, **flat)}


def conv2d(p):
    x, w = tensor(p["n"], p["c"], p["h"], p["w"]), tensor(p["k"], p["c"] // p["groups"], p["r"], p["s"])
    how = {"stride": p["stride"], "padding": p["pad"], "dilation": p["dilation"], "groups": p["groups"]}
    return both(F.conv2d, x, w, **how)


def conv3d(p):
    x = tensor(p["n"], p["c"], p["d"], p["h"], p["w"])
    w = tensor(p["k"], p["c"], p["t"], p["r"], p["s"])
    how = {"stride": (p["stride_d"], p["stride"], p["stride"]), "padding": (p["pad_d"], p["pad"], p["pad"])}
    return both(F.conv3d, x, w, **how)


def transposed(p):
    x, w = tensor(p["n"], p["c"], p["h"], p["w"]), tensor(p["c"], p["k"], p["r"], p["s"])
    return both(F.conv_transpose2d, x, w, stride=p["stride"], padding=p["pad"])


def depthwise(p):
    x, w = tensor(p["n"], p["c"], p["h"], p["w"]), tensor(p["c"] * p["m"], 1, p["r"], p["s"])
    return both(F.conv2d, x, w, stride=p["stride"], padding=p["pad"], dilation=p["dilation"], groups=p["c"])


def capsule(p):
    """All capsules as one convolution: its output lies with the capsule beside the channel, not innermost."""
    x, w = tensor(p["n"], p["c"], p["h"], p["w"]), tensor(p["k"] * p["caps"], p["c"], p["r"], p["s"])
    parts = [tensor(p["k"], p["c"], p["r"], p["s"]) for _ in range(p["caps"])]
    how = {"stride": p["stride"], "padding": p["pad"]}
    apart = {"one a capsule, stacked": lambda: torch.stack([F.conv2d(x, part, **how) for part in parts], -1)}
    return {**both(F.conv2d, x, w, **how), **apart}


def batched(p):
    """Filters of each image: images as groups of one."""
    n = p["n"]
    x, w = tensor(1, n * p["c"], p["h"], p["w"]), tensor(n * p["k"], p["c"], p["r"], p["s"])
    images = [tensor(1, p["c"], p["h"], p["w"]) for _ in range(n)]
    filters = [tensor(p["k"], p["c"], p["r"], p["s"]) for _ in range(n)]
    how = {"stride": p["stride"], "padding": p["pad"]}
    apart = {"one an image": lambda: [F.conv2d(a, b, **how) for a, b in zip(images, filters)]}
    return {**both(F.conv2d, x, w, **how, groups=n), **apart}


def grouped_fc(p):
    n, g = p["n"], p["groups"]
    inputs, outputs = p["i"] // g, p["o"] // g
    x, w = tensor(n, p["i"], 1, 1), tensor(p["o"], inputs, 1, 1)
    xb, wb = tensor(g, n, inputs), tensor(g, inputs, outputs)
    return {"conv2d of one pixel, groups": lambda: F.conv2d(x, w, groups=g), "bmm": lambda: torch.bmm(xb, wb)}


def mean(p):
    x = tensor(p["n"], p["c"], p["h"], p["w"])
    xl = last(x)
    return {"NCHW": lambda: x.mean(dim=(0, 2, 3)), "channels last": lambda: xl.mean(dim=(0, 2, 3))}


def variance(p):
    """Of the given mean, as the operator; and by var, which works the mean out as well."""
    x, m = tensor(p["n"], p["c"], p["h"], p["w"]), tensor(p["c"])
    shaped = m[None, :, None, None]
    xl = last(x)
    forms = {
        "var": lambda t: t.var(dim=(0, 2, 3), unbiased=False),
        "mean of squares": lambda t: (t - shaped).square().mean(dim=(0, 2, 3)),
    }
    return {
        f"{name}, {layout}": (lambda f=f, t=t: f(t)) for name, f in forms.items() for layout, t in (("NCHW", x), ("channels last", xl))
    }


def scan(p):
    x = tensor(p["m"], p["n"])
    triangle = torch.ones(p["n"], p["n"], device="cuda", dtype=dtype).triu()
    return {"cumsum": lambda: torch.cumsum(x, 1), "mm with a triangle": lambda: x @ triangle}


FORMS = {
    **{"smm": scaled_in_blocks, "gmm": matmul, "gmv": matvec, "c1d": conv1d, "c2d": conv2d, "grp": conv2d, "dil": conv2d, "c3d": conv3d},
    **{"t2d": transposed, "dep": depthwise, "cap": capsule, "bcv": batched, "gfc": grouped_fc},
    **{"men": mean, "var": variance, "scn": scan},
}


def seconds(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times, settled = [], time.perf_counter() + SETTLE_SECONDS
    while len(times) < SAMPLES:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if time.perf_counter() > settled:
            times.append(begin.elapsed_time(end) / CALLS / 1000)
    return statistics.median(times)


print(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}), flush=True)
for case in json.load(sys.stdin):
    forms, failed = {}, {}
    dtype = DTYPES[case.get("dtype", "f16")]
    for name, call in FORMS[case["op"]](case["params"]).items():
        try:
            forms[name] = seconds(call)
        except Exception as error:
            failed[name] = str(error).split("\n")[0][:120]
            torch.cuda.synchronize()
    print(json.dumps({"id": case["id"], "forms": forms, "failed": failed}), flush=True)
    torch.cuda.empty_cache()
