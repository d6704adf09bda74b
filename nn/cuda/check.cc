#include "nn/cuda/check.h"

#include <algorithm>
#include <array>

namespace dlaunch::nn::cuda {
namespace {

std::string describe(const std::string& what, const char* library, const std::string& text) {
  return what + ": " + library + ": " + text;
}

/// In one line; empty if there is nothing to say. cuDNN forgets it.
std::string last_error_of_cudnn() {
  std::array<char, 512> message{};
  cudnnGetLastErrorString(message.data(), message.size());
  std::string text = message.data();
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  ignore(cudaGetLastError());  // it is told here, once
  throw Error(
      describe(what, "CUDA",
               std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")"));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(describe(what, "cuBLASLt", cublasLtGetStatusString(status)));
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::string text = cudnnGetErrorString(status);
  if (const std::string more = last_error_of_cudnn(); !more.empty()) text += " (" + more + ")";
  throw CudnnError(status, describe(what, "cuDNN", text));
}

}  // namespace dlaunch::nn::cuda
