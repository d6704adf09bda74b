// Activation functions of one element: the value at z, and the gradient of z from that of the
// value.
//
// Exponentials and quotients are the device's quick ones, for f32 too: exp2f() is an instruction
// and three for its smallest results, __fdividef() is two, and neither is wrong by more than 2 ulp.
// Memory feeds an H100 or H200 4 bytes, an element of 16 bits read and one written, in the time of
// 25 to 35 instructions; expf() and a rounded quotient are 20, with a branch, erff() and expm1f()
// 24 and 30. Rounding z log2(e) included, exp(z) is wrong by 2.4e-7 + 7e-8 |z| of itself, so values
// of SiLU are by 6e-7 + 7e-8 |z| at most, those of GELU by 1.5e-6 (below 0 and 7e-8 z z more) and
// those of CELU by 3e-6: what is lost in adding up ten floats, and a hundredth of what f16 rounds.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "nn/core/smooth_activations.h"

namespace dlaunch::nn::cuda {

struct NoActivation {
  __device__ static float value(float z) { return z; }
  __device__ static float gradient(float /*z*/, float dy) { return dy; }
};

struct Relu {
  // A NaN stays one.
  __device__ static float value(float z) { return z < 0.0F ? 0.0F : z; }
  __device__ static float gradient(float z, float dy) { return z > 0.0F ? dy : 0.0F; }
};

/// exp(z)
__device__ inline float quick_exp(float z) {
  return exp2f(z * 1.44269504F);
}

struct Gelu {
  __device__ static float value(float z) { return z * phi(z, bell(z)); }
  __device__ static float gradient(float z, float dy) {
    const float exponential = bell(z);
    return dy * gelu_slope(z, phi(z, exponential), exponential);
  }

 private:
  /// exp(-z z / 2)
  __device__ static float bell(float z) { return exp2f(z * (z * -0.72134752F)); }
  __device__ static float phi(float z, float exponential) {
    const float reciprocal = __fdividef(1.0F, fabsf(z) + kTailShift);
    const float tail = normal_tail(reciprocal, exponential);
    return z > 0.0F ? 1.0F - tail : tail;
  }
};

struct Silu {
  __device__ static float value(float z) { return z * sigmoid(z); }
  __device__ static float gradient(float z, float dy) { return dy * silu_slope(z, sigmoid(z)); }

 private:
  __device__ static float sigmoid(float z) { return __fdividef(1.0F, 1.0F + quick_exp(-z)); }
};

// No branch: 0 where z is above.
struct Celu {
  float alpha;
  float inverse;  // of alpha

  explicit Celu(float of_alpha) : alpha(of_alpha), inverse(1.0F / of_alpha) {}

  __device__ float value(float z) const {
    const float scaled = below(z);
    return (z > 0.0F ? z : 0.0F) + alpha * expm1_below_zero(scaled, quick_exp(scaled));
  }
  __device__ float gradient(float z, float dy) const { return dy * quick_exp(below(z)); }

 private:
  __device__ float below(float z) const { return (z > 0.0F ? 0.0F : z) * inverse; }
};

}  // namespace dlaunch::nn::cuda
