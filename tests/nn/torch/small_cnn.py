#!/usr/bin/env python3
"""The scores of the small CNN (nn/models/small_cnn.h) in PyTorch, for weights and images that are made by a formula.

    small_cnn.py > small_cnn.json

The test fills a file of torch's layout by the same formula: element i of the tensor with index k in `SHAPES`.
"""
import json
import math

import torch
from torch.nn import functional as F

HEIGHT, WIDTH, IMAGES, CLASSES = 8, 10, 2, 10
SHAPES = {
    "conv1.weight": (32, 3, 3, 3), "conv1.bias": (32,), "conv2.weight": (32, 32, 3, 3), "conv2.bias": (32,),
    "fc1.weight": (128, 32 * 2 * 3), "fc1.bias": (128,), "bn1.running_mean": (128,), "bn1.running_var": (128,),
    "fc2.weight": (CLASSES, 128), "fc2.bias": (CLASSES,), "images": (IMAGES, 3, HEIGHT, WIDTH),
}


def filled(name, k):
    """Sines; variances are above 0, weights so small that values keep their size from layer to layer."""
    shape = SHAPES[name]
    scale = 1 / math.sqrt(math.prod(shape[1:])) if name.endswith("weight") else 1
    values = [scale * math.sin(0.37 * i + 1e-5 * i * i + k) for i in range(math.prod(shape))]
    tensor = torch.tensor(values, dtype=torch.float64).float().double().reshape(shape)
    return 1.5 + tensor if name.endswith("running_var") else tensor


def main():
    t = {name: filled(name, k) for k, name in enumerate(SHAPES)}
    x = F.relu(F.conv2d(t["images"], t["conv1.weight"], t["conv1.bias"]))
    x = F.max_pool2d(F.relu(F.conv2d(x, t["conv2.weight"], t["conv2.bias"])), 2)
    x = F.linear(torch.flatten(x, 1), t["fc1.weight"], t["fc1.bias"])
    x = F.relu(F.batch_norm(x, t["bn1.running_mean"], t["bn1.running_var"]))
    scores = F.linear(x, t["fc2.weight"], t["fc2.bias"])
    print(json.dumps({"scores": scores.tolist()}))


if __name__ == "__main__":
    main()
