"""Seconds of one f16 convolution in PyTorch, stride 1 and full padding: the median of CUDA graphs of 20 calls.

usage: torch-conv.py BATCH CHANNELS SIDE FILTERS FILTER CHANNELS_LAST(0|1)
"""

import statistics
import sys

import torch
import torch.nn.functional as F

n, c, h, k, r, last = map(int, sys.argv[1:])
torch.backends.cudnn.benchmark = True
x = torch.randn(n, c, h, h, device="cuda", dtype=torch.float16)
w = torch.randn(k, c, r, r, device="cuda", dtype=torch.float16)
if last:
    x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
CALLS, SAMPLES = 20, 60

stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(5):
        F.conv2d(x, w, padding=r // 2)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(CALLS):
        F.conv2d(x, w, padding=r // 2)
times = []
for _ in range(SAMPLES):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    times.append(begin.elapsed_time(end) / CALLS / 1000)
print(statistics.median(times[5:]))
