#!/usr/bin/env python3
"""Recipes of configs/, step by step, against networks and optimizers written in PyTorch from the published descriptions.

    recipes.py DTRAIN CONFIGS WORK

trains each recipe for a few steps with DTRAIN, on a handful of images that all are in every step, in fp32 and without
augmentation, and makes every step again in double, from the checkpoint before it. Exit code 1 if they differ by more than
rounding, 77 without torch.
"""
import json
import os
import struct
import subprocess
import sys
import warnings
import zlib

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("no torch")
    sys.exit(77)

IMAGES, CLASSES, STEPS = 16, 4, 5
MEAN, STD = (0.5, 0.45, 0.4), (0.25, 0.2, 0.3)


def write_png(path, pixels):
    """`pixels`: bytes of 32 x 32 RGB."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[row * 96:(row + 1) * 96] for row in range(32))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
                   + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_images(folder):
    """Smooth random images, in folders of classes; returns them normalised, NCHW, and their labels."""
    images, labels = [], []
    for index in range(IMAGES):
        coarse = torch.rand(1, 3, 5, 5, dtype=torch.float64)
        image = (F.interpolate(coarse, size=32, mode="bicubic").clamp(0, 1)[0] * 255).round()
        label = index % CLASSES
        for split in ("train", "test"):
            path = os.path.join(folder, split, f"c{label}")
            os.makedirs(path, exist_ok=True)
            write_png(os.path.join(path, f"{index}.png"), bytes(image.permute(1, 2, 0).to(torch.uint8).flatten().tolist()))
        images.append(image)
        labels.append(label)
    mean, std = (torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (torch.stack(images) / 255 - mean) / std, torch.tensor(labels)


def load(path):
    """The tensors of a safetensors file of floats, in double."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[slice(*entry["data_offsets"])]), dtype=torch.float32)
            .double().reshape(entry["shape"]) for name, entry in header.items()
            if entry["dtype"] == "F32" and entry["data_offsets"][0] < entry["data_offsets"][1]}


class GhostNorm(nn.Module):
    """Each image a part of its own, as there are no more images than parts."""

    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return F.instance_norm(x, eps=1e-5) + self.bias.view(1, -1, 1, 1)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def conv(before, after, kernel):
    return nn.Conv2d(before, after, kernel, padding="same", bias=False)


def whitening(kernel, padding, bias, filters):
    layer = nn.Conv2d(3, filters, kernel, padding=padding, bias=bias)
    layer.weight.requires_grad_(False)
    return layer


class Airbench(nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten, channels = whitening(2, 0, True, 24), 24
        for group, width in enumerate((64, 256, 256), 1):
            for index, before in enumerate((channels, width), 1):
                norm = nn.BatchNorm2d(width, eps=1e-12, momentum=0.4)
                norm.weight.requires_grad_(False)
                self.add_module(f"group{group}_conv{index}", conv(before, width, 3))
                self.add_module(f"group{group}_norm{index}", norm)
            channels = width
        self.head = nn.Linear(256, CLASSES, bias=False)

    def forward(self, x):
        x = F.gelu(self.whiten(x))
        for group in (1, 2, 3):
            layer = [getattr(self, f"group{group}_{name}") for name in ("conv1", "norm1", "conv2", "norm2")]
            x = F.gelu(layer[1](F.max_pool2d(layer[0](x), 2)))
            x = F.gelu(layer[3](layer[2](x)))
        return self.head(F.max_pool2d(x, 3).flatten(1)) / 256


class Speedrun(nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten, channels = whitening(2, 0, True, 24), 24
        for group, (width, middle, first, a, b) in enumerate(((64, 64, 3, 1, 1), (256, 192, 3, 3, 1), (768, 512, 2, 3, 3)), 1):
            self.add_module(f"group{group}_conv", conv(channels, width, first))
            self.add_module(f"group{group}_norm", nn.BatchNorm2d(width))
            pair = Residual()
            for name, before, after, kernel in (("a", width, middle, a), ("b", middle, width, b)):
                pair.add_module(f"conv_{name}", conv(before, after, kernel))
                pair.add_module(f"norm_{name}", nn.BatchNorm2d(after))
                pair.add_module(f"silu_{name}", nn.SiLU())
            self.add_module(f"group{group}", pair)
            channels = width
        self.head = nn.Linear(768, CLASSES, bias=False)

    def forward(self, x):
        x = F.silu(self.whiten(x))
        for group in (1, 2, 3):
            x = F.max_pool2d(getattr(self, f"group{group}_conv")(x), 2)
            x = getattr(self, f"group{group}")(F.silu(getattr(self, f"group{group}_norm")(x)))
        return self.head(x.amax((2, 3)) + x.mean((2, 3))) * (1.25 / 9)


class BagOfTricks(nn.Module):
    def __init__(self):
        super().__init__()
        self.whitening = whitening(3, 1, False, 27)
        for name, before, after, kernel in (("stem", 27, 64, 1), ("layer1", 64, 128, 3), ("layer2", 128, 256, 3),
                                            ("layer3", 256, 512, 3)):
            self.add_module(name + "_conv", conv(before, after, kernel))
            self.add_module(name + "_norm", GhostNorm(after))
        for name, width in (("residual1", 128), ("residual2", 512)):
            pair = Residual()
            for part in ("a", "b"):
                pair.add_module(part + "_conv", conv(width, width, 3))
                pair.add_module(part + "_norm", GhostNorm(width))
                pair.add_module(part + "_celu", nn.CELU(0.3))
            self.add_module(name, pair)
        self.fc = nn.Linear(512, CLASSES, bias=False)

    def block(self, name, x, pool=True):
        x = getattr(self, name + "_conv")(x)
        return F.celu(getattr(self, name + "_norm")(F.max_pool2d(x, 2) if pool else x), 0.3)

    def forward(self, x):
        x = self.block("stem", self.whitening(x), pool=False)
        x = self.residual1(self.block("layer1", x))
        x = self.residual2(self.block("layer3", self.block("layer2", x)))
        return self.fc(F.max_pool2d(x, 4).flatten(1)) * 0.125


def orthogonal(matrix):
    """Newton and Schulz, three times."""
    x = matrix.flatten(1)
    x = x / (x.norm() + 1e-7)
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    for _ in range(3):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.T if tall else x).reshape(matrix.shape)


def muon_step(weights, gradient, velocity, rate):
    velocity.mul_(0.6).add_(gradient)
    weights.mul_(len(weights) ** 0.5 / weights.norm())
    weights.sub_(orthogonal(gradient + 0.6 * velocity), alpha=rate)


def nesterov_step(weights, gradient, velocity, rate, decay, momentum):
    gradient = gradient + decay * weights
    velocity.mul_(momentum).add_(gradient)
    weights.sub_(gradient + momentum * velocity, alpha=rate)


def airbench_step(name, weights, gradient, velocity, step):
    """Upstream sums the loss over 2,000 images and decays by 0.004 over the rate; here losses are means."""
    left = 1 - step / STEPS
    if weights.dim() == 4:
        muon_step(weights, gradient, velocity, 0.24 * left)
    else:
        rate = 0.67 if name.startswith("head") else 0.053
        fades = max(0, 1 - step / 3) if name.startswith("whiten") else left
        nesterov_step(weights, gradient, velocity, rate * 2000 * fades, 0.004 / rate / 2000, 0.85)


def speedrun_step(name, weights, gradient, velocity, step):
    """A quarter of the steps warm up; here that is a fraction of a step more than one."""
    share = step / 1.25 if step < 1.25 else (STEPS - step) / (STEPS - 1.25)
    if weights.dim() == 4:
        muon_step(weights, gradient, velocity, 0.18 * share)
    else:
        nesterov_step(weights, gradient, velocity, 1.38 * share, 5e-4 if name.startswith("head") else 0, 0.9)


def bag_step(name, weights, gradient, velocity, step):
    """Upstream sums the loss over 512 images, with rates to 2e-3; biases go 64 times as fast."""
    factor = step / 2 if step < 2 else 1 - 0.9 * (step - 2) / 6 if step < 8 else 0.1
    rate = 2e-3 * 512 * factor
    if name.endswith("bias"):
        nesterov_step(weights, gradient, velocity, 64 * rate, 0.004 / 512, 0.9)
    else:
        nesterov_step(weights, gradient, velocity, rate, 0.256 / 512, 0.9)


# configuration: network, label smoothing, step, what is set differently
RECIPES = {
    "cifar10_airbench94": (Airbench, 0.2, airbench_step, ["optimizer.iteration_type=fp32"]),
    "cifar100_speedrun": (Speedrun, 0.25, speedrun_step,
                          ["optimizer.iteration_type=fp32", "data.resize_sides=[]", "data.resize_until=[]",
                           f"schedule.point_epochs=[0,1.25,{STEPS}]"]),
    "cifar10_resnet_bag_of_tricks": (BagOfTricks, 0.2, bag_step, ["ema.decay=0"]),
}


def train(dtrain, configs, work, name, more):
    """Runs dtrain; returns the checkpoints' tensors and the losses."""
    out = os.path.join(work, name)
    sets = ["data.set=folder", f"data.directory={work}/images", f"data.mean={list(MEAN)}", f"data.std={list(STD)}",
            "data.crop_padding=0", "data.crop_scope=image", "data.pad_mode=zero", "data.flip=false", f"train.epochs={STEPS}",
            f"train.global_batch_size={IMAGES}", "train.max_steps=0", "train.compute_type=fp32", "train.validate_every=0",
            "checkpoint.every_steps=1", f"checkpoint.keep={STEPS}", f"output.directory={out}", "output.log_every=1", *more]
    if name == "cifar10_airbench94":
        sets.append(f"schedule.point_epochs=[0,{STEPS}]")
    words = [word for text in sets for word in ("--set", text)]
    subprocess.run([dtrain, os.path.join(configs, name + ".json"), *words], check=True, stdout=subprocess.DEVNULL)
    folder = os.path.join(out, "checkpoints")
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        losses = [line["loss"] for line in map(json.loads, file) if line["event"] == "step"]
    return [load(os.path.join(folder, file)) for file in sorted(os.listdir(folder))], losses


def compare(dtrain, configs, work, name, images, labels):
    """The greatest error of a parameter after a step by the distance that it moved, and of a loss by itself."""
    make, smoothing, update, more = RECIPES[name]
    states, losses = train(dtrain, configs, work, name, more)
    network, worst, worst_loss = make().double(), (0.0, ""), 0.0
    trained = {key: weights for key, weights in network.named_parameters() if weights.requires_grad}
    for step in range(1, STEPS):
        before, after = states[step - 1], states[step]
        unknown = [key for key in network.state_dict() if key in before and before[key].shape != network.state_dict()[key].shape]
        assert not unknown and all(key in before for key in trained), f"{name}: other parameters: {unknown}"
        network.load_state_dict({key: value for key, value in before.items() if not key.startswith("optimizer.")}, strict=False)
        loss = F.cross_entropy(network.train()(images), labels, label_smoothing=smoothing)
        network.zero_grad()
        loss.backward()
        worst_loss = max(worst_loss, abs(loss.item() - losses[step]) / loss.item())
        for key, weights in trained.items():
            velocity = before["optimizer.velocity." + key].clone()
            with torch.no_grad():
                update(key, weights, weights.grad, velocity, step)
            moved = (after[key] - before[key]).norm().item()
            error = (after[key] - weights).norm().item() / (moved + 1e-6)
            worst = max(worst, (error, f"{key}, step {step + 1}"))
        for key, value in network.state_dict().items():
            if key.endswith(("running_mean", "running_var")):
                error = ((after[key] - value).norm() / value.norm()).item()
                worst = max(worst, (error, f"{key}, step {step + 1}"))
    print(f"{name}: {len(trained)} parameters, worst error {worst[0]:.1e} ({worst[1]}), of losses {worst_loss:.1e}")
    # Newton and Schulz make directions great that are nearly nothing, and so their rounding.
    return worst[0] < 0.03 and worst_loss < 1e-4


def main():
    dtrain, configs, work = sys.argv[1:]
    warnings.filterwarnings("ignore", message="Using padding='same'")
    torch.set_num_threads(1)
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    print(f"seed {torch.initial_seed()}")
    images, labels = make_images(os.path.join(work, "images"))
    return 0 if all([compare(dtrain, configs, work, name, images, labels) for name in RECIPES]) else 1


if __name__ == "__main__":
    sys.exit(main())
