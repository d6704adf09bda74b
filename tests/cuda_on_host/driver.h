// The device's context, for the stand-in of the runtime.
#pragma once

#include "cuda.h"

namespace dlaunch::cuda_on_host {

/// The one that the runtime uses.
CUcontext primary_context();
/// A thread that has no context has that one from now on, as after any call of the runtime that
/// needs one.
void need_context();

}  // namespace dlaunch::cuda_on_host
