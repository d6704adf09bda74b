#include "nn/cuda/check.h"

#include "nn/core/error.h"

namespace dlaunch::nn::cuda {
namespace {

[[noreturn]] void fail(const std::string& what, const char* library, const std::string& text) {
  throw Error(what + ": " + library + ": " + text);
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fail(what, "CUDA",
       std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")");
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(what, "cuBLAS", cublasGetStatusString(status));
}

void check(cudnnStatus_t status, const std::string& what) {
  if (status != CUDNN_STATUS_SUCCESS) fail(what, "cuDNN", cudnnGetErrorString(status));
}

}  // namespace dlaunch::nn::cuda
