// The convolutions of cuDNN's stand-in: what the descriptors of an operation say, and its
// computation by the CPU backend.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nn/core/backend.h"
#include "tests/cuda_on_host/cudnn_object.h"

namespace dlaunch::cuda_on_host {

/// Throw Refusal.
void check_tensor(const CudnnObject& tensor);
void check_windows(const CudnnObject& windows);

struct HostConvolution {
  /// Throws Refusal if the operation's parts do not fit together.
  explicit HostConvolution(const CudnnObject& operation);

  /// Now. `tensors` are those that uids() names. In TF32, operands in f32 are rounded to it.
  void run(nn::Backend& cpu, const std::array<void*, 3>& tensors, bool in_tf32) const;

  cudnnBackendDescriptorType_t pass;
  nn::Conv2dGeometry geometry{};
  DType dtype = DType::kF32;
  float beta = 0;
  std::array<std::int64_t, 3> uids{};        // of x or dx, of the weights or dw, of y or dy
  std::array<std::int64_t, 3> alignments{};  // bytes

 private:
  std::array<std::size_t, 3> sizes() const;
};

}  // namespace dlaunch::cuda_on_host
