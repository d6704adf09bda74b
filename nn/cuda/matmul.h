// Matrix products through cuBLAS, in f32 (or TF32 where that is asked for), bf16 or f16.
#pragma once

#include <cublas_v2.h>

#include <optional>

#include "nn/core/backend.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

/// Used by the device's thread. The device must outlive it.
class Matmul {
 public:
  /// Throws Error.
  Matmul(Device& device, bool tf32);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  void run(const MatmulArguments& arguments);

 private:
  void prepare();

  Device& device_;
  cublasComputeType_t compute_type_;
  // Given once, so that cuBLAS allocates none and the same products give the same bits.
  std::optional<ScratchMemory> workspace_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace dlaunch::nn::cuda
