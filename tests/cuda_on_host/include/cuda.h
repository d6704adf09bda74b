// In place of CUDA's header of this name: contexts of the driver (tests/cuda_on_host/driver.cc). A
// thread has the device's, or none.
#pragma once

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};
using CUcontext = struct CUctx_st*;

CUresult cuCtxGetCurrent(CUcontext* context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuGetErrorName(CUresult error, const char** name);

// NOLINTEND(readability-identifier-naming)
