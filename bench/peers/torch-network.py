"""A network of automap on a GPU beside the same network in PyTorch, in one process, samples in turns.

usage: torch-network.py REQUEST.json        {"model": "x.onnx", "package": "folder", "name": "resnet18", "forms": [...], "rounds": 30, "seconds": 0.02}
With "warm": true it only prepares the forms.

The model is read by the package `onnx` and its nodes become calls of PyTorch in half precision, images in channels_last; weights are the model's. Forms:

    eager              the nodes as they stand, captured in one CUDA graph
    eager, folded      batch norms multiplied into the convolutions first, attention as scaled_dot_product_attention
    compile MODE       the folded network by torch.compile, constants frozen; in a CUDA graph where the mode makes none by itself

A line of JSON for each form, as it ends: seconds of both, and how far the outputs of each are from the network in f32 (tf32 off).
"""

import importlib
import json
import math
import statistics
import sys
import time

import numpy
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

with open(sys.argv[1]) as file:
    request = json.load(file)
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
model = onnx.load(request["model"]).graph
constants = {t.name: torch.from_numpy(numpy.array(numpy_helper.to_array(t))) for t in model.initializer}

GIVEN = [i.name for i in model.input if i.name not in constants]
RESULTS = [o.name for o in model.output]


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


class Node:
    def __init__(self, op, inputs, outputs, attributes):
        self.op, self.inputs, self.outputs, self.attributes = op, inputs, outputs, attributes


def nodes_of():
    return [Node(n.op_type, list(n.input), list(n.output), attributes(n)) for n in model.node]


def folded(nodes, known):
    """Folds batch norms into convolutions, and makes attention one call."""
    makers = {n.outputs[0]: n for n in nodes}
    uses = {}
    for n in nodes:
        for name in n.inputs:
            uses[name] = uses.get(name, 0) + 1
    gone = set()
    for n in nodes:
        conv = makers.get(n.inputs[0]) if n.op == "BatchNormalization" else None
        if conv is not None and conv.op == "Conv" and uses[conv.outputs[0]] == 1:
            scale, bias, mean, variance = (known[name].double() for name in n.inputs[1:5])
            factor = scale / torch.sqrt(variance + n.attributes.get("epsilon", 1e-5))
            weight = known[conv.inputs[1]].double()
            before = known[conv.inputs[2]].double() if len(conv.inputs) > 2 else 0
            w, b = conv.inputs[1] + ".folded", conv.outputs[0] + ".bias"
            known[w] = (weight * factor.reshape(-1, *[1] * (weight.dim() - 1))).float()
            known[b] = ((before - mean) * factor + bias).float()
            conv.inputs, conv.outputs = [conv.inputs[0], w, b], n.outputs
            makers[n.outputs[0]] = conv
            gone.add(id(n))
    for n in nodes:
        soft = makers.get(n.inputs[0]) if n.op == "MatMul" else None
        scaled = makers.get(soft.inputs[0]) if soft is not None and soft.op == "Softmax" else None
        scores = makers.get(scaled.inputs[0]) if scaled is not None and scaled.op == "Mul" else None
        if scores is None or scores.op != "MatMul" or scaled.inputs[1] not in known:
            continue
        n.op, n.attributes = "Attention", {"scale": float(known[scaled.inputs[1]])}
        n.inputs = [*scores.inputs, n.inputs[1]]
        gone.update(id(each) for each in (soft, scaled, scores))
    return [n for n in nodes if id(n) not in gone]


def pads(a, rank):
    both = list(a.get("pads", [0] * 2 * rank))
    assert both[:rank] == both[rank:], "uneven padding"
    return both[:rank]


class Net(torch.nn.Module):
    def __init__(self, nodes, known, dtype, device):
        super().__init__()
        self.nodes = nodes
        self.whole = {}
        read = {name for n in nodes for name in n.inputs}
        self.names = {}
        for name, value in known.items():
            if name not in read:
                continue
            if not value.is_floating_point():
                self.whole[name] = value.tolist()
                continue
            held = value.to(device=device, dtype=dtype)
            if held.dim() == 4:
                held = held.contiguous(memory_format=torch.channels_last)
            self.names[name] = f"c{len(self.names)}"
            self.register_parameter(self.names[name], torch.nn.Parameter(held, requires_grad=False))

    def forward(self, *inputs):
        values = dict(zip(GIVEN, inputs))
        for name, own in self.names.items():
            values[name] = getattr(self, own)
        for n in self.nodes:
            made = self.call(n, values)
            for name, value in zip(n.outputs, made if isinstance(made, (list, tuple)) else [made]):
                values[name] = value
        return tuple(values[name] for name in RESULTS)

    def call(self, n, values):
        a, get = n.attributes, lambda i: values[n.inputs[i]]
        known = lambda i: self.whole[n.inputs[i]]
        x = get(0) if n.inputs[0] in values else None
        match n.op:
            case "Conv":
                bias = get(2) if len(n.inputs) > 2 else None
                return F.conv2d(x, get(1), bias, a.get("strides", 1), pads(a, 2), a.get("dilations", 1), a.get("group", 1))
            case "BatchNormalization":
                return F.batch_norm(x, get(3), get(4), get(1), get(2), eps=a.get("epsilon", 1e-5))
            case "Relu":
                return F.relu(x)
            case "Sigmoid":
                return torch.sigmoid(x)
            case "Tanh":
                return torch.tanh(x)
            case "Gelu":
                return F.gelu(x)
            case "MaxPool":
                return F.max_pool2d(x, a["kernel_shape"], a.get("strides"), pads(a, 2))
            case "AveragePool":
                return F.avg_pool2d(x, a["kernel_shape"], a.get("strides"), pads(a, 2), count_include_pad=bool(a.get("count_include_pad", 0)))
            case "GlobalAveragePool":
                return F.adaptive_avg_pool2d(x, 1)
            case "Flatten":
                return torch.flatten(x, a.get("axis", 1))
            case "Gemm":
                weight = get(1) if a.get("transB") else get(1).t()
                return F.linear(x, weight, get(2) if len(n.inputs) > 2 else None)
            case "MatMul":
                return torch.matmul(x, get(1))
            case "Attention":
                return F.scaled_dot_product_attention(x, get(1).transpose(-1, -2), get(2), scale=a["scale"])
            case "Add":
                return x + get(1)
            case "Mul":
                return x * get(1)
            case "Softmax":
                return F.softmax(x, a.get("axis", -1))
            case "LayerNormalization":
                return F.layer_norm(x, x.shape[-1:], get(1), get(2), a.get("epsilon", 1e-5))
            case "Reshape":
                return x.reshape(known(1))
            case "Transpose":
                return x.permute(a["perm"])
            case "Concat":
                return torch.cat([values[name] for name in n.inputs], a["axis"])
            case "Split":
                return torch.chunk(x, len(n.outputs), a.get("axis", 0))
            case "Squeeze":
                return x.squeeze(tuple(known(1))) if len(n.inputs) > 1 else x.squeeze()
            case "Slice":
                for begin, end, axis in zip(known(1), known(2), known(3)):
                    x = x.narrow(axis, begin, min(end, x.shape[axis]) - begin)
                return x
            case "Gather":
                return F.embedding(get(1).long(), x)
        raise NotImplementedError(n.op)


def inputs_of(dtype):
    random = torch.Generator().manual_seed(1)
    made = []
    for i in model.input:
        if i.name in constants:
            continue
        shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
        if i.type.tensor_type.elem_type == onnx.TensorProto.INT32:
            made.append(torch.randint(0, 2, shape, generator=random, dtype=torch.int32).cuda())
        else:
            made.append((4 * torch.rand(shape, generator=random) - 2).half().cuda().to(dtype))
    return made


def last(x):
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def graphed(run):
    """A function that replays `run` as a CUDA graph, and its result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, [o.clone() for o in out]


def sample(call, calls):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / calls


def in_turns(ours, theirs):
    sides = (ours, theirs)
    calls = [max(3, min(200, int(request["seconds"] / max(1e-6, sample(side, 10))))) for side in sides]
    samples = ([], [])
    for round in range(request["rounds"]):
        for side in (0, 1) if round % 2 == 0 else (1, 0):
            samples[side].append(sample(sides[side], calls[side]))
    return samples


def quantiles(samples):
    ordered = sorted(samples)
    return [ordered[len(ordered) // 4], statistics.median(ordered), ordered[3 * len(ordered) // 4]]


def distance(outputs, exact):
    """|out - exact| / |exact| over all outputs together."""
    above = sum(float((o.double() - e.double()).square().sum()) for o, e in zip(outputs, exact))
    return (above / sum(float(e.double().square().sum()) for e in exact)) ** 0.5


def tell(**facts):
    """Prints a line of JSON. Infinities and NaN become null."""
    known = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in facts.items()}
    print(json.dumps(known), flush=True)


def form_of(name, half):
    """A function that runs the form once, and its outputs."""
    known = dict(constants)
    nodes = nodes_of()
    if name != "eager":
        nodes = folded(nodes, known)
    net = Net(nodes, known, torch.float16, "cuda").eval()
    if not name.startswith("compile"):
        return graphed(lambda: net(*half))
    import torch._inductor.config as inductor

    inductor.freezing = True
    mode = name.split(" ", 1)[1]
    torch.compiler.reset()
    compiled = torch.compile(net, mode=None if mode == "default" else mode)
    run = lambda: compiled(*half)
    if mode == "default":
        return graphed(run)
    for _ in range(4):
        out = run()
    torch.cuda.synchronize()
    return run, [o.clone() for o in out]


@torch.inference_mode()
def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    exact = Net(nodes_of(), dict(constants), torch.float32, "cuda").eval()(*inputs_of(torch.float32))
    half = inputs_of(torch.float16)
    tell(kind="library", torch=torch.__version__, cudnn=torch.backends.cudnn.version(), gpu=torch.cuda.get_device_name())

    # Fills the caches of PyTorch's compilers, for a process that times later.
    if request.get("warm"):
        for name in request["forms"]:
            form_of(name, [last(x) for x in half])
        return

    # 1. Ours, by the package's own module.
    sys.path.insert(0, request["package"])
    net = importlib.import_module(f"{request['name']}_torch").Network()
    out = net.outputs()
    net(*half, out=out)
    torch.cuda.synchronize()
    ours_off = distance(out, exact)
    pointers = [t.data_ptr() for t in [*half, *out]]
    stream = torch.cuda.current_stream().cuda_stream
    ours = lambda: net.launch(net.handle, *pointers, stream)
    begun = time.perf_counter()
    for _ in range(200):
        net(*half, out=out)
    torch.cuda.synchronize()
    tell(kind="ours", seconds=sample(ours, 100), module=(time.perf_counter() - begun) / 200, off=ours_off)

    # 2. Each form in turns with it.
    shaped = [last(x) for x in half]
    for name in request["forms"]:
        begun = time.perf_counter()
        try:
            call, outputs = form_of(name, shaped)
            prepared = time.perf_counter() - begun
            off = distance(outputs, exact)
            a, b = in_turns(ours, call)
            tell(kind="form", form=name, ours=quantiles(a), theirs=quantiles(b), off=off, prepared=prepared)
        except Exception as error:
            tell(kind="form", form=name, failed=f"{type(error).__name__}: {error}"[:500])


main()
