// The kernel groups that the CUDA backend is put together from. The device must outlive them.
#pragma once

#include <memory>

#include "nn/core/norm_kernels.h"
#include "nn/core/optimizer_kernels.h"
#include "nn/cuda/device.h"
#include "nn/cuda/staging.h"

namespace dlaunch::nn::cuda {

std::unique_ptr<NormKernels> make_norm_kernels(Device& device);  // norm_kernels.cc
std::unique_ptr<OptimizerKernels> make_optimizer_kernels(Device& device,
                                                         Staging& staging);  // optimizer_kernels.cu

}  // namespace dlaunch::nn::cuda
