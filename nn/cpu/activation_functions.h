// Activation functions of one element: the value at z, and the gradient of z from that of the
// value.
#pragma once

#include <cmath>

#include "nn/core/smooth_activations.h"

namespace dlaunch::nn::cpu {

struct NoActivation {
  static float value(float z) { return z; }
  static float gradient(float /*z*/, float dy) { return dy; }
};

struct Relu {
  // A NaN stays one.
  static float value(float z) { return z < 0.0F ? 0.0F : z; }
  static float gradient(float z, float dy) { return z > 0.0F ? dy : 0.0F; }
};

struct Gelu {
  static float value(float z) { return z * gelu_phi(std::erf(z * kRootHalf)); }
  static float gradient(float z, float dy) {
    return dy * gelu_slope(z, gelu_phi(std::erf(z * kRootHalf)), std::exp(-0.5F * z * z));
  }
};

struct Silu {
  static float value(float z) { return z * silu_sigmoid(std::exp(-z)); }
  static float gradient(float z, float dy) {
    return dy * silu_slope(z, silu_sigmoid(std::exp(-z)));
  }
};

}  // namespace dlaunch::nn::cpu
