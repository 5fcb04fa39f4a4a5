"""Median seconds of f16 convolutions in PyTorch, in CUDA graphs of 20 calls. Padding keeps the side at stride 1.

usage: torch-conv.py BATCH,CHANNELS,SIDE,FILTERS,KERNEL,STRIDE,DILATION,CHANNELS_LAST(0|1) ...        one line each
"""

import statistics
import sys

import torch
import torch.nn.functional as F

CALLS, SAMPLES = 20, 60
torch.backends.cudnn.benchmark = True


def seconds(n, c, h, k, r, stride, dilation, last):
    x = torch.randn(n, c, h, h, device="cuda", dtype=torch.float16)
    w = torch.randn(k, c, r, r, device="cuda", dtype=torch.float16)
    if last:
        x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    form = {"stride": stride, "dilation": dilation, "padding": dilation * (r - 1) // 2}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            F.conv2d(x, w, **form)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            F.conv2d(x, w, **form)
    times = []
    for _ in range(SAMPLES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / CALLS / 1000)
    return statistics.median(times[5:])


for layer in sys.argv[1:]:
    print(seconds(*map(int, layer.split(","))))
