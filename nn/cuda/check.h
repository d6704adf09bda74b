// The one place where a status of CUDA's libraries becomes an Error.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>

namespace dlaunch::nn::cuda {

/// Throws Error "WHAT: CUDA: TEXT" unless `status` is success. `what` names the operation.
void check(cudaError_t status, const char* what);
void check(cublasStatus_t status, const char* what);
void check(cudnnStatus_t status, const std::string& what);

/// For destructors, in which nothing can be done about a failure: the process is about to end, or
/// the failure has been or will be reported by a call that is checked.
template <typename Status>
void ignore(Status /*status*/) {}

}  // namespace dlaunch::nn::cuda
