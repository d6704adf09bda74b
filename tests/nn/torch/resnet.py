#!/usr/bin/env python3
"""A residual network of basic blocks in PyTorch, with torchvision's names.

    resnet.py make WIDTHS BLOCKS SIDE STATE IO [imagenet]
                                      writes a state_dict, and images with their logits
    resnet.py check STATE IO          loads a state_dict and computes the logits again
    resnet.py torchvision SIDE STATE IO
                                      writes those of torchvision's resnet18; 77 without torchvision

The stem is the one for small images, or ImageNet's. The files tiny_resnet.safetensors and
tiny_resnet_io.safetensors are those of `make 4,8 1,1 8`, tiny_imagenet_resnet*.safetensors those of
`make 4,8 1,1 20 ... imagenet`, the references of nn/checkpoint's tests.
"""
import json
import struct
import sys

import torch
from torch import nn

DTYPES = {"F32": torch.float32, "I64": torch.int64}


class BasicBlock(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inner != width:
            self.downsample = nn.Sequential(nn.Conv2d(inner, width, 1, stride, bias=False),
                                            nn.BatchNorm2d(width))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet(nn.Module):
    def __init__(self, widths, blocks, classes, imagenet):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 7, 2, 3, bias=False) if imagenet else \
            nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.maxpool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        self.stages = len(widths)
        inner = widths[0]
        for i, (width, count) in enumerate(zip(widths, blocks)):
            stage = []
            for j in range(count):
                stage.append(BasicBlock(inner, width, 2 if i > 0 and j == 0 else 1))
                inner = width
            setattr(self, f"layer{i + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(inner, classes)

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


def save(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = next(key for key, value in DTYPES.items() if value == tensor.dtype)
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    with open(path, "rb") as file:
        text = file.read(struct.unpack("<Q", file.read(8))[0])
        data = file.read()
    tensors = {}
    for name, entry in json.loads(text).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(bytearray(data[begin:end]), dtype=DTYPES[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def write(network, side, state_path, io_path):
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # as if it had been trained
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)
            nn.init.normal_(module.running_mean, 0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    images = torch.randn(3, 3, side, side)
    save(state_path, network.state_dict())
    save(io_path, {"images": images, "logits": network.eval()(images).detach()})


def make(widths, blocks, side, state_path, io_path, stem="small"):
    torch.manual_seed(5)
    write(ResNet(widths, blocks, 10, stem == "imagenet"), side, state_path, io_path)


def make_torchvisions(side, state_path, io_path):
    try:
        import torchvision
    except ImportError:
        sys.exit(77)
    torch.manual_seed(5)
    write(torchvision.models.resnet18(num_classes=10), side, state_path, io_path)


def check(state_path, io_path):
    state, io = load(state_path), load(io_path)
    stages = sorted({name.split(".")[0] for name in state if name.startswith("layer")})
    blocks = [1 + max(int(name.split(".")[1]) for name in state if name.startswith(stage + "."))
              for stage in stages]
    widths = [state[f"{stage}.0.conv1.weight"].shape[0] for stage in stages]
    network = ResNet(widths, blocks, 10, state["conv1.weight"].shape[-1] == 7)
    network.load_state_dict(state)
    difference = (network.eval()(io["images"]) - io["logits"]).abs().max().item()
    print(f"largest difference of a logit: {difference:.3g}")
    return 0 if difference < 1e-4 else 1


def numbers(text):
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(numbers(sys.argv[2]), numbers(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
    elif sys.argv[1] == "torchvision":
        make_torchvisions(int(sys.argv[2]), *sys.argv[3:])
    else:
        sys.exit(check(*sys.argv[2:]))
