// Initial values of weights.
#pragma once

#include "nn/core/random.h"
#include "nn/core/tensor.h"

namespace dlaunch::nn {

/// How a layer's weights begin.
enum class Initialisation {
  kUniform,        // kaiming_uniform with a = sqrt(5), torch's default: U(+-1 / sqrt(fan_in))
  kUnitDeviation,  // kUniform, divided by the values' own deviation
  kDirac,          // kUniform, but the first `in` outputs begin as the inputs of the same number
  kKaimingFanOut,  // normal with deviation sqrt(2 / fan_out) (He et al. 2015), for residual nets
};

/// A new tensor of weights [out, ..., in]; fan_in is the number of elements per output, fan_out
/// that per input. All ranks that draw from equal generators get equal values.
Tensor make_weights(Backend& backend, const Shape& shape, Initialisation initialisation,
                    Generator& generator);

/// A bias of `out` elements from U(+-1 / sqrt(fan_in)), torch's default.
Tensor make_bias(Backend& backend, std::int64_t out, std::int64_t fan_in, Generator& generator);

}  // namespace dlaunch::nn
