"""Products of uneven groups: automap's kernels in turns with PyTorch's, in one process.

usage: torch-grouped.py < CASES     a JSON list of what bench/gpu/grouped-products.ts found; a line of JSON a case as it ends

A kernel's result is compared with that of a product of floats for each group; rows of no group must be 0.
Times are medians of CUDA graphs of several calls, one graph of each after another. Inputs lie in the last cache where they fit.
"""

import ctypes
import json
import statistics
import sys

import torch

SAMPLES = 25


def drawn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def kernel_of(case, tensors):
    """automap's kernel on tensors in the order of its arguments."""
    library = ctypes.CDLL(case["file"])
    workspace = torch.zeros(max(case["workspaceBytes"], 1), device="cuda", dtype=torch.uint8)
    pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
    place = ctypes.c_void_p(workspace.data_ptr())

    def called(function):
        def call():
            error = function(place, pointers, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            if error != 0:
                raise RuntimeError(f"CUDA error {error}")

        call.kept = (workspace, tensors)
        return call

    called(library.automap_prepare)()
    torch.cuda.synchronize()
    return called(library.automap_launch)


def rows_of(case):
    """The rows of the padded input that are tokens of each group, and those that its kernel computes: a tile is computed whole."""
    starts, ends, start = [], [], 0
    for expert, size in enumerate(case["sizes"]):
        if case["form"] == "counted":
            start = expert * case["most"]
        starts.append(start)
        whole = -(-size // case["rows"]) * case["rows"]
        ends.append(start + (size if case["form"] == "counted" else whole))
        start += whole
    return [slice(s, s + size) for s, size in zip(starts, case["sizes"])], [slice(s, e) for s, e in zip(starts, ends)]


def graph_of(call, calls):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def seconds(graph, calls):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls / 1000


def measured(case):
    n, k, sizes = case["n"], case["k"], case["sizes"]
    padded = case["tiles"] * case["rows"] if case["form"] == "tiled" else case["experts"] * case["most"]
    a, w, out = drawn(padded, k), drawn(case["experts"], n, k) * k**-0.5, drawn(padded, n)
    deciding = torch.tensor(case["group" if case["form"] == "tiled" else "count"], device="cuda", dtype=torch.int32)
    places, computed = rows_of(case)
    rows = torch.cat([a[p] for p in places])
    offsets = torch.tensor(sizes, device="cuda").cumsum(0).to(torch.int32)
    ends = offsets.tolist()
    results = torch.empty(len(rows), n, device="cuda", dtype=torch.bfloat16)
    parts = [(rows[e - s : e], w[g].t(), results[e - s : e]) for g, (s, e) in enumerate(zip(sizes, ends)) if s > 0]
    makers = {
        "automap": lambda: kernel_of(case, [out, a, w, deciding]),
        "_grouped_mm": lambda: lambda: torch._grouped_mm(rows, w.transpose(-2, -1), offs=offsets),
        "mm of each group": lambda: lambda: [torch.mm(x, y, out=to) for x, y, to in parts],
    }
    useful = 2 * sum(sizes) * n * k
    calls = max(2, min(50, int(4e-3 * 4e14 / useful)))
    graphs, failed, wrong = {}, {}, None
    for name, make in makers.items():
        try:
            graphs[name] = graph_of(make(), calls)
        except Exception as error:
            failed[name] = str(error).split("\n")[0][:200]
            torch.cuda.synchronize()
    if "automap" in graphs:
        graphs["automap"].replay()
        expected = torch.zeros(padded, n, device="cuda")
        for g, p in enumerate(computed):
            expected[p] = a[p].float() @ w[g].float().t()
        wrong = int((~((out.float() - expected).abs() <= 0.02 + 0.01 * expected.abs())).sum())
    times = {name: [] for name in graphs}
    for i in range(SAMPLES + 3):
        for name in graphs if i % 2 == 0 else reversed(graphs):
            times[name].append(seconds(graphs[name], calls))
    medians = {name: statistics.median(all[3:]) for name, all in times.items()}
    return {"kind": "timed", "case": case["id"], "useful": useful, "seconds": medians, "failed": failed, "wrong": wrong}


cases = json.load(sys.stdin)
print(json.dumps({"kind": "peers", "torch": torch.__version__, "device": torch.cuda.get_device_name()}), flush=True)
for case in cases:
    print(json.dumps(measured(case)), flush=True)
    torch.cuda.empty_cache()
