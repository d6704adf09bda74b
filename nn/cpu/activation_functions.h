// Activation functions of one element: the value at z, and the gradient of z from that of the
// value.
#pragma once

#include "nn/core/smooth_activations.h"
#include "nn/cpu/vector_math.h"

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
  static float value(float z) { return z * gelu_phi(vector_erf(z * kRootHalf)); }
  static float gradient(float z, float dy) {
    return dy * gelu_slope(z, gelu_phi(vector_erf(z * kRootHalf)), vector_exp(-0.5F * z * z));
  }
};

struct Silu {
  static float value(float z) { return z * silu_sigmoid(vector_exp(-z)); }
  static float gradient(float z, float dy) {
    return dy * silu_slope(z, silu_sigmoid(vector_exp(-z)));
  }
};

// No branch: 0 where z is above.
struct Celu {
  float alpha;
  float value(float z) const {
    const float below = z > 0.0F ? 0.0F : z;
    return (z > 0.0F ? z : 0.0F) + alpha * vector_expm1(below / alpha);
  }
  float gradient(float z, float dy) const {
    const float below = z > 0.0F ? 0.0F : z;
    return dy * vector_exp(below / alpha);
  }
};

}  // namespace dlaunch::nn::cpu
