// The CPU backend: oneDNN for convolutions and matrix products, own vectorised loops for the rest.
#pragma once

#include <memory>

#include "nn/core/backend.h"

namespace dlaunch::nn {

struct CpuOptions {
  /// 3x3 convolutions by Winograd's algorithm: faster, less exact (nn/cpu/conv2d.h).
  bool winograd = false;
};

/// Kernels run on OMP_NUM_THREADS threads.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace dlaunch::nn
