#include "runtime/cuda/cuda_status.h"

#include <string>

namespace dlaunch {

Status cuda_status(cudaError_t error, std::string_view function) {
  if (error == cudaSuccess) return Status();
  (void)cudaGetLastError();
  return Status(StatusCode::kIo, std::string(function) + ": " + cudaGetErrorString(error) + " (" +
                                     cudaGetErrorName(error) + ")");
}

}  // namespace dlaunch
