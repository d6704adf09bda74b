// CudnnHandle: the owner of a handle of cuDNN, through which one thread at a time calls it.
#pragma once

#include <cudnn.h>

#include "nn/cuda/check.h"

namespace dlaunch::nn::cuda {

class CudnnHandle {
 public:
  /// On the thread's device; what it executes runs on `stream`. Throws CudnnError.
  explicit CudnnHandle(cudaStream_t stream) {
    check(cudnnCreate(&handle_), "cudnnCreate");
    if (const cudnnStatus_t status = cudnnSetStream(handle_, stream);
        status != CUDNN_STATUS_SUCCESS) {
      ignore(cudnnDestroy(handle_));
      check(status, "cudnnSetStream");
    }
  }
  ~CudnnHandle() { ignore(cudnnDestroy(handle_)); }
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

}  // namespace dlaunch::nn::cuda
