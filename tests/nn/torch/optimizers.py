#!/usr/bin/env python3
"""Writes optimizers.json: where PyTorch's optimizers take a weight matrix and a bias in a few steps.

    python3 tests/nn/torch/optimizers.py > tests/nn/torch/optimizers.json

Values and gradients are the formulas below, so that the test can compute them too.
"""
import json
import math

import torch

ROWS, COLUMNS, STEPS = 4, 6, 7


def start(count, phase):
    return [math.sin(1.7 * i + phase) for i in range(count)]


def gradient(count, phase, step):
    return [math.cos(0.9 * i + 1.3 * step + phase) for i in range(count)]


def run(make):
    weight = torch.tensor(start(ROWS * COLUMNS, 0.0)).reshape(ROWS, COLUMNS).requires_grad_()
    bias = torch.tensor(start(ROWS, 1.0)).requires_grad_()
    optimizer = make(weight, bias)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = group.get("factor", 1.0) * 0.05 * (1 + step % 3)
        weight.grad = torch.tensor(gradient(ROWS * COLUMNS, 0.3, step)).reshape(ROWS, COLUMNS)
        bias.grad = torch.tensor(gradient(ROWS, 0.6, step))
        optimizer.step()
    return {"weight": weight.detach().flatten().tolist(), "bias": bias.detach().tolist()}


def groups(weight, bias, decay, bias_decay, factor):
    return [{"params": [weight], "weight_decay": decay},
            {"params": [bias], "weight_decay": bias_decay, "factor": factor}]


def both(optimizer, **options):
    return lambda w, b: optimizer(groups(w, b, 0.1, 0.0, 4.0), lr=1.0, **options)


CASES = {
    "sgd": lambda w, b: torch.optim.SGD([w, b], lr=1.0),
    "momentum": lambda w, b: torch.optim.SGD([w, b], lr=1.0, momentum=0.9, weight_decay=0.05),
    "nesterov": both(torch.optim.SGD, momentum=0.8, nesterov=True),
    "adam": lambda w, b: torch.optim.Adam([w, b], lr=1.0, weight_decay=0.05),
    "adam_betas": both(torch.optim.Adam, betas=(0.8, 0.95), eps=1e-4),
    "adamw": both(torch.optim.AdamW),
}


def muon(adjust):
    """torch.optim.Muon, iterating in double instead of bfloat16."""
    module = torch.optim._muon

    def iterate(grad, coefficients, steps, eps):
        a, b, c = coefficients
        x = grad.double()
        tall = x.size(0) > x.size(1)
        x = x.T if tall else x
        x = x / x.norm().clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return (x.T if tall else x).float()

    module._zeropower_via_newtonschulz = iterate
    return lambda w, b: torch.optim.Muon([w], lr=1.0, weight_decay=0.1, momentum=0.9, adjust_lr_fn=adjust)


def main():
    cases = dict(CASES)
    cases["muon_original"] = muon("original")
    cases["muon_match_adam"] = muon("match_rms_adamw")
    result = {"torch": torch.__version__.split("+")[0]}
    result.update({name: run(make) for name, make in cases.items()})
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
