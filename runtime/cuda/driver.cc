#include "runtime/cuda/driver.h"

#include <cuda_runtime_api.h>

#include <string>

namespace dlaunch {
namespace {

// The version of the driver's interface that this is written against.
constexpr unsigned kInterface = 12'000;

}  // namespace

void* find_in_driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, kInterface, cudaEnableDefault, &found);
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) return function;
  (void)cudaGetLastError();
  return nullptr;
}

CUcontext current_context() {
  static const auto get =
      reinterpret_cast<decltype(&cuCtxGetCurrent)>(find_in_driver("cuCtxGetCurrent"));
  CUcontext context = nullptr;
  const bool found = get != nullptr && get(&context) == CUDA_SUCCESS;
  return found ? context : nullptr;
}

void set_current_context(CUcontext context) {
  static const auto set =
      reinterpret_cast<decltype(&cuCtxSetCurrent)>(find_in_driver("cuCtxSetCurrent"));
  if (set != nullptr) (void)set(context);
}

Status driver_status(CUresult result, std::string_view function) {
  if (result == CUDA_SUCCESS) return Status();
  static const auto name_of =
      reinterpret_cast<decltype(&cuGetErrorName)>(find_in_driver("cuGetErrorName"));
  const char* name = nullptr;
  const bool named =
      name_of != nullptr && name_of(result, &name) == CUDA_SUCCESS && name != nullptr;
  return Status(StatusCode::kIo,
                std::string(function) + ": " + (named ? name : "error " + std::to_string(result)));
}

}  // namespace dlaunch
