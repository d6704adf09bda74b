// The kernel groups that the CPU backend is put together from.
#pragma once

#include <memory>

#include "nn/core/norm_kernels.h"
#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {

std::unique_ptr<NormKernels> make_cpu_norm_kernels();            // norm_kernels.cc
std::unique_ptr<OptimizerKernels> make_cpu_optimizer_kernels();  // optimizer_kernels.cc

}  // namespace dlaunch::nn
