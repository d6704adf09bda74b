// The functions of include/cuda.h.
#include "tests/cuda_on_host/driver.h"

#include <map>
#include <string_view>

#include "cuda_runtime_api.h"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

struct CUctx_st {};

namespace dlaunch::cuda_on_host {
namespace {

thread_local CUcontext of_thread = nullptr;

}  // namespace

CUcontext primary_context() {
  static CUctx_st context;
  return &context;
}

void need_context() {
  if (of_thread == nullptr) of_thread = primary_context();
}

}  // namespace dlaunch::cuda_on_host

using dlaunch::cuda_on_host::of_thread;

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = of_thread;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  of_thread = context;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : nullptr;
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* found) {
  static const std::map<std::string_view, void*> functions = {
      {"cuCtxGetCurrent", reinterpret_cast<void*>(cuCtxGetCurrent)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(cuCtxSetCurrent)},
      {"cuGetErrorName", reinterpret_cast<void*>(cuGetErrorName)}};
  const auto entry = functions.find(name);
  const bool known = entry != functions.end();
  *function = known ? entry->second : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// NOLINTEND(readability-identifier-naming)
