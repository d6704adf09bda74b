// The CPU backend: oneDNN for convolutions and matrix products, own vectorised loops for the rest.
#pragma once

#include <memory>

#include "nn/core/backend.h"

namespace dlaunch::nn {

/// Kernels run on OMP_NUM_THREADS threads.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace dlaunch::nn
