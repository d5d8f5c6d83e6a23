"""The residual networks."""

from __future__ import annotations

import sys

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.functional import interpolate
from torch.utils.flop_counter import FlopCounterMode

from tests.support.operations import Operations

CPU = torch.device("cpu")
both = pytest.mark.parametrize("name", ["resnet18", "resnet50"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gflop"), [("resnet18", 3.63), ("resnet50", 8.178)])
def test_full_preset_has_the_known_flops(name, gflop, make_workload):
    """The forward pass of one 224×224 image costs what is known of the network, within 1%."""
    workload = make_workload(name, "full")
    with FlopCounterMode(display=False) as counter, FakeTensorMode():
        workload.forward(workload.build(), workload.synthetic_batch(1, device=CPU))
    assert gflop == pytest.approx(counter.get_total_flops() / 1e9, rel=0.01)


@pytest.mark.parametrize(("name", "relus", "sums"), [("resnet18", 17, 8), ("resnet50", 49, 16)])
def test_sums_and_activations_overwrite_their_inputs(name, relus, sums, make_workload):
    """None of them allocates: ReLUs after every normalization but a sum's, sums of the blocks."""
    workload = make_workload(name, "tiny")
    module, batch = workload.build(), workload.synthetic_batch(2, device=CPU)
    with Operations() as operations:
        workload.forward(module, batch)
    assert operations.counts["relu_"] == relus
    assert operations.counts["add_"] >= sums
    assert not operations.counts.keys() & {"relu", "add"}


@both
def test_digits_become_three_equal_channels(name, make_workload):
    """Grey 8×8 images are scaled to 3×32×32, channels_last, all channels alike."""
    images, labels = torch.rand(2, 1, 8, 8), torch.tensor([0, 9])
    inputs = make_workload(name, "tiny").from_images(images, labels).inputs
    scaled = interpolate(images, size=(32, 32), mode="bilinear")
    assert inputs.shape == (2, 3, 32, 32)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert all(inputs[:, channel : channel + 1].equal(scaled) for channel in range(3))


def test_logits_in_half_give_a_loss_in_fp32(make_workload):
    """The loss is computed in fp32 whatever the model computes in."""
    workload = make_workload("resnet18", "tiny")
    batch = workload.synthetic_batch(2, device=CPU)
    loss = workload.loss(
        workload.build().to(torch.bfloat16), batch._replace(inputs=batch.inputs.bfloat16())
    )
    assert torch.float32 == loss.dtype


@both
def test_libraries_of_models_are_not_needed(name, make_workload, monkeypatch):
    """The networks are this project's: they are built and run without transformers."""
    for library in ("transformers", "diffusers"):
        monkeypatch.setitem(sys.modules, library, None)
    workload = make_workload(name, "tiny")
    logits = workload.forward(workload.build(), workload.synthetic_batch(2, device=CPU))
    assert logits.shape == (2, 10)


def of_normalization(name):
    """Names in the state of the normalization called `name`, torch's."""
    parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return [f"{name}.{part}" for part in parts]


def published_names(depths, convolutions, projected):
    """Names in the state of torchvision's network, in order.

    `convolutions` is their number in a block, `projected` the stages whose first block has a
    convolution in its shortcut.
    """
    names = ["conv1.weight", *of_normalization("bn1")]
    for stage, depth in enumerate(depths, start=1):
        for block in (f"layer{stage}.{number}" for number in range(depth)):
            for number in range(1, convolutions + 1):
                names += [f"{block}.conv{number}.weight", *of_normalization(f"{block}.bn{number}")]
            if stage in projected and block.endswith(".0"):
                names += [
                    f"{block}.downsample.0.weight",
                    *of_normalization(f"{block}.downsample.1"),
                ]
    return [*names, "fc.weight", "fc.bias"]


@pytest.mark.parametrize(
    ("name", "expected", "count"),
    [
        ("resnet18", published_names((2, 2, 2, 2), 2, {2, 3, 4}), 122),
        ("resnet50", published_names((3, 4, 6, 3), 3, {1, 2, 3, 4}), 320),
    ],
)
def test_state_has_the_published_names(name, expected, count, make_workload):
    """Parameters and buffers are called and ordered as in torchvision's checkpoints."""
    with FakeTensorMode():
        state = make_workload(name, "full").build().state_dict()
    assert (list(state), len(state)) == (expected, count)


def test_bottleneck_halves_the_image_in_its_wide_convolution(make_workload):
    """Version 1.5: the 3×3 convolution has the stride, and the 1×1 before it has none."""
    with FakeTensorMode():
        module = make_workload("resnet50", "full").build()
    strides = {
        name: layer.stride[0]
        for name, layer in module.named_modules()
        if isinstance(layer, torch.nn.Conv2d) and layer.stride[0] > 1
    }
    halved = [
        f"layer{stage}.0.{layer}" for stage in (2, 3, 4) for layer in ("conv2", "downsample.0")
    ]
    assert strides == {"conv1": 2, **dict.fromkeys(halved, 2)}


@both
def test_weights_start_as_published(name, make_workload):
    """Convolutions have the variance 2 / (outputs · kernel area), normalizations scale by one."""
    torch.manual_seed(0)
    module = make_workload(name, "full").build()
    for layer in module.modules():
        if isinstance(layer, torch.nn.Conv2d):
            expected = (2 / (layer.out_channels * layer.kernel_size[0] ** 2)) ** 0.5
            assert expected == pytest.approx(float(layer.weight.detach().std()), rel=0.05)
        elif isinstance(layer, torch.nn.BatchNorm2d):
            assert (set(layer.weight.tolist()), set(layer.bias.tolist())) == ({1.0}, {0.0})


@both
def test_nothing_leaves_the_memory_format(name, make_workload):
    """With model.channels_last every convolution gets and gives NHWC images."""
    workload = make_workload(name, "tiny", "model.channels_last=true")
    module = workload.build().to(memory_format=torch.channels_last)
    left = []

    def check(layer, inputs, output):
        is_nhwc = [i.is_contiguous(memory_format=torch.channels_last) for i in (*inputs, output)]
        if not all(is_nhwc):
            left.append(layer)

    for layer in module.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.BatchNorm2d | torch.nn.MaxPool2d):
            layer.register_forward_hook(check)
    workload.forward(module, workload.synthetic_batch(2, device=CPU))
    assert left == []


@both
def test_overwriting_changes_no_gradient(name, make_workload):
    """Sums and ReLUs in place give the gradients of the same network without."""
    workload = make_workload(name, "tiny")
    module = workload.build().double()
    batch = workload.synthetic_batch(2, device=CPU)
    images = batch.inputs.double()

    def block_output(block, hidden):
        layers = [block.get_submodule(n) for n, _ in block.named_children() if n != "downsample"]
        shortcut = hidden if block.downsample is None else block.downsample(hidden)
        for number, (convolve, normalize) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            hidden = normalize(convolve(torch.relu(hidden) if number else hidden))
        return torch.relu(hidden + shortcut)

    def plain(images):
        hidden = module.maxpool(torch.relu(module.bn1(module.conv1(images))))
        for stage in (module.layer1, module.layer2, module.layer3, module.layer4):
            for block in stage:
                hidden = block_output(block, hidden)
        return module.fc(hidden.mean((2, 3)))

    found = []
    for forward in (module, plain):
        module.zero_grad()
        logits = forward(images)
        logits.square().sum().backward()
        found.append((logits.detach(), [p.grad for p in module.parameters()]))
    torch.testing.assert_close(found[0], found[1])
