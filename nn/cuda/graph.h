// Recording over CUDA graphs.
//
// The stream is captured in the relaxed mode, in which other calls on this and other threads stay
// allowed: cudaMalloc here, and what threads of communicators do. Streams that wait for the
// captured one belong to the graph until it waits for them again.
#pragma once

#include <functional>
#include <memory>

#include "nn/core/backend.h"
#include "nn/cuda/device.h"
#include "nn/cuda/staging.h"

namespace dlaunch::nn::cuda {

/// As Backend::record; if it fails, nobody may go on with what `work` was to write. The device must
/// outlive the recording. Throws Error.
std::unique_ptr<Recording> record_graph(Device& device, Staging& staging,
                                        const std::function<void()>& work);

}  // namespace dlaunch::nn::cuda
