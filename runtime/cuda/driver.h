// What is asked of CUDA's driver itself. Its functions are looked for when they are first needed,
// so that programs also start where there is none.
#pragma once

#include <cuda.h>

#include <string_view>

#include "runtime/base/status.h"

namespace dlaunch {

/// nullptr: the driver has no function of that name, or there is no driver.
void* find_in_driver(const char* name);

/// What the thread uses; nullptr: no context.
CUcontext current_context();
void set_current_context(CUcontext context);

/// kIo "cuStreamBatchMemOp: CUDA_ERROR_NOT_SUPPORTED", or ok.
Status driver_status(CUresult result, std::string_view function);

}  // namespace dlaunch
