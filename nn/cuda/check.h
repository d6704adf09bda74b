// The one place where a status of CUDA's libraries becomes an Error.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>

#include "nn/core/error.h"

namespace dlaunch::nn::cuda {

/// What cuDNN has refused, or what has failed in it.
class CudnnError : public Error {
 public:
  CudnnError(cudnnStatus_t status, const std::string& text) : Error(text), status_(status) {}
  /// Whether it is only that cuDNN has nothing for this: the shape, the layout, the type, ...
  bool not_supported() const {
    return CUDNN_STATUS_CATEGORY(status_) == CUDNN_STATUS_NOT_SUPPORTED;
  }
  /// Whether it might go well another time.
  bool out_of_memory() const {
    return status_ == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           status_ == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  }

 private:
  cudnnStatus_t status_;
};

/// Throws Error "WHAT: LIBRARY: TEXT" unless `status` is success. `what` names the operation.
void check(cudaError_t status, const char* what);
void check(cublasStatus_t status, const char* what);
/// As these; a CudnnError, with what cuDNN says about its last error.
void check(cudnnStatus_t status, const char* what);

/// For destructors, in which nothing can be done about a failure: the process is about to end, or
/// the failure has been or will be reported by a call that is checked.
template <typename Status>
void ignore(Status /*status*/) {}

}  // namespace dlaunch::nn::cuda
