// Activation functions of one element: the value at z, and the gradient of z from that of the
// value.
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

struct Gelu {
  __device__ static float value(float z) { return z * gelu_phi(erff(z * kRootHalf)); }
  __device__ static float gradient(float z, float dy) {
    return dy * gelu_slope(z, gelu_phi(erff(z * kRootHalf)), expf(-0.5F * z * z));
  }
};

struct Silu {
  __device__ static float value(float z) { return z * silu_sigmoid(expf(-z)); }
  __device__ static float gradient(float z, float dy) {
    return dy * silu_slope(z, silu_sigmoid(expf(-z)));
  }
};

struct Celu {
  float alpha;
  __device__ float value(float z) const { return z < 0.0F ? alpha * expm1f(z / alpha) : z; }
  __device__ float gradient(float z, float dy) const {
    return z > 0.0F ? dy : dy * expf(z / alpha);
  }
};

}  // namespace dlaunch::nn::cuda
