"""A recommendation model's interaction in PyTorch: cat, bmm, index, cat, singly and together, eager and as CUDA graph.

usage: torch-interaction.py SAMPLES bf16|f16 ROUNDS

Prints a line of JSON: median seconds of each form, each step and a copy of the vectors; the error from f32 (no TF32).
"""

import json
import statistics
import sys

import torch

SAMPLES, ROUNDS = int(sys.argv[1]), int(sys.argv[3])
DTYPE = {"bf16": torch.bfloat16, "f16": torch.float16}[sys.argv[2]]
VECTORS, WIDTH = 27, 128
CALLS = 5

torch.manual_seed(1)
d = torch.rand(SAMPLES, 1, WIDTH, device="cuda", dtype=torch.float32).sub_(0.5).to(DTYPE)
e = torch.rand(SAMPLES, VECTORS - 1, WIDTH, device="cuda", dtype=torch.float32).sub_(0.5).to(DTYPE)
rows, columns = torch.tril_indices(VECTORS, VECTORS, -1, device="cuda")
dense = d[:, 0]

x = torch.cat([d, e], 1)
squares = torch.bmm(x, x.transpose(1, 2))
pairs = squares[:, rows, columns]

STEPS = {
    "cat0": lambda: torch.cat([d, e], 1),
    "product": lambda: torch.bmm(x, x.transpose(1, 2)),
    "index": lambda: squares[:, rows, columns],
    "cat1": lambda: torch.cat([dense, pairs], 1),
}


def interaction():
    all_vectors = torch.cat([d, e], 1)
    all_pairs = torch.bmm(all_vectors, all_vectors.transpose(1, 2))
    return torch.cat([dense, all_pairs[:, rows, columns]], 1)


def seconds(call):
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        for _ in range(CALLS):
            call()
        ended.record()
        torch.cuda.synchronize()
        times.append(begun.elapsed_time(ended) / 1e3 / CALLS)
    return statistics.median(times)


def graphed(call):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


few = min(SAMPLES, 512)
torch.backends.cuda.matmul.allow_tf32 = False
exact = torch.bmm(x[:few].float(), x[:few].float().transpose(1, 2))[:, rows, columns]
off = (interaction()[:few, WIDTH:].float() - exact).abs().max().item()
with torch.no_grad():
    answer = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "eager": seconds(interaction),
        "graph": seconds(graphed(interaction)),
        "steps": {name: seconds(step) for name, step in STEPS.items()},
        "copy": seconds(lambda: x.clone()),
        "off": off,
    }
print(json.dumps(answer))
