
import torch_ext

CALLS = 20


def step(what):
    """Said at once: after a crash, the last line is where it was."""
    print(f"{torch_ext.NAME}: {what}", file=sys.stderr, flush=True)


def drawn(whole):
    """Inputs as the kernel reads them: small integers, of which every sum is exact, or numbers of a normal distribution."""
    made = []
    for which, (_, dtype, sizes, _) in enumerate(torch_ext.INPUTS):
        own = getattr(torch, dtype)
        values = torch.randint(0 if dtype.startswith("u") else -3, 4, sizes, device="cuda").to(torch.float64)
        if not whole and own.is_floating_point:
            values = torch.randn(sizes, device="cuda", dtype=torch.float64)
        made.append(torch_ext.laid_out(which, values.to(own)))
    return made


def captured(function, calls=1):
    """A graph of calls, and the last result within it."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            result = function()
    return graph, result


def seconds(function):
    """Of a call: the median of graphs of calls."""
    graph, _ = captured(function, CALLS)
    times = []
    for _ in range(25):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / CALLS / 1000)
    return sorted(times[5:])[10]


def expect(right, what):
    if not right:
        print(f"{torch_ext.NAME}: {what}")
        sys.exit(4)


def main():
    torch.manual_seed(1)
    operator = torch_ext.operator
    step("drawing inputs on the GPU")
    exact = drawn(whole=True)
    torch.cuda.synchronize()
    step("the first call")
    eager = operator(*exact)
    torch.cuda.synchronize()
    step("the second call")
    expect(torch.equal(eager, operator(*exact)), "two calls differ")
    step("a CUDA graph")
    graph, within = captured(lambda: operator(*exact))
    within.zero_()
    graph.replay()
    torch.cuda.synchronize()
    expect(torch.equal(eager, within), "a call in a CUDA graph differs")
    step("wrong inputs")
    for wrong in ([exact[0][:0], *exact[1:]], [exact[0].cpu(), *exact[1:]], [exact[0].to(torch.complex64), *exact[1:]]):
        try:
            operator(*wrong)
        except (RuntimeError, NotImplementedError):
            continue
        expect(False, "a wrong input is not refused")
    for check in ("test_schema", "test_faketensor", "test_autograd_registration"):
        step(f"opcheck {check}")
        torch.library.opcheck(operator.default, tuple(exact), test_utils=check)
    step("timing")
    said = f"{torch_ext.NAME}: the same in a CUDA graph, {seconds(lambda: operator(*exact)) * 1e6:.2f} us a call"
    if of_torch is None:
        print(f"{said}; PyTorch has no operator of its own to compare with")
        return
    step("PyTorch's operator")
    doubles = of_torch(*(t.double() for t in exact))
    expect(doubles.shape == eager.shape, f"its output has the shape {list(eager.shape)}, PyTorch's {list(doubles.shape)}")
    expect(torch.equal(doubles.to(eager.dtype), eager), "small integers give other sums than PyTorch's operator on doubles")
    if not all(t.is_floating_point() for t in exact):
        print(f"{said}; equal to PyTorch's operator on small integers")
        return
    step("random data")
    inputs = drawn(whole=False)
    own, other = operator(*inputs).double(), of_torch(*inputs).double()
    doubles = of_torch(*(t.double() for t in inputs))
    far, torch_far = ((x - doubles).abs().max().item() for x in (own, other))
    expect(far <= 4 * torch_far + 1e-2 * doubles.abs().max().item(), f"it is off by {far:.3g}, PyTorch's operator by {torch_far:.3g}")
    print(f"{said}, PyTorch's {seconds(lambda: of_torch(*inputs)) * 1e6:.2f} us; equal on small integers, off by {far:.3g} on random"
          f" data where PyTorch's is by {torch_far:.3g}")


main()
step("all is done")
