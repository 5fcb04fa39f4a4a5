"""PyTorch's convolution of one image by one filter (cuDNN's choice of several), a line of JSON for each.

    python torch-filters.py 8192 3:f16 9:tf32

Results are compared with a convolution of the same numbers in f64, on a part of the image. Times are medians of 15 by events.
"""

import json
import sys

import torch
import torch.nn.functional as F

ROUNDS, WARM, PART = 15, 3, 512


def milliseconds(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def timed(side, case):
    k, dtype = case.split(":")
    k = int(k)
    kind = torch.float16 if dtype == "f16" else torch.float32
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    image = torch.randint(-3, 4, (1, 1, side, side), device="cuda").to(kind)
    filters = torch.randint(-1, 2, (1, 1, k, k), device="cuda").to(kind)
    convolve = lambda: F.conv2d(image, filters, padding=k // 2)
    for _ in range(WARM):
        got = convolve()
    torch.cuda.synchronize()
    corner = slice(0, PART)
    right = F.conv2d(image[..., : PART + k, : PART + k].double(), filters.double(), padding=k // 2)[..., corner, corner]
    wrong = int((got[..., corner, corner].double() != right).sum())
    ms = sorted(milliseconds(convolve) for _ in range(ROUNDS))[ROUNDS // 2]
    print(json.dumps({"kind": "torch", "case": f"filter {k}", "dtype": dtype, "ms": ms, "wrong": wrong, "torch": torch.__version__}), flush=True)


torch.backends.cudnn.benchmark = True
for case in sys.argv[2:]:
    try:
        timed(int(sys.argv[1]), case)
    except Exception as error:  # a peer that cannot run a case is left out of the table
        print(json.dumps({"kind": "no torch", "case": case, "because": str(error)[:300]}), flush=True)
