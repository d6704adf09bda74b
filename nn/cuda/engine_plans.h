// How an operation graph is computed: cuDNN has several engines for one, which its heuristics put
// in an order and which say what they do to numbers. Of those that give what is promised here, the
// first ones.
//
// What is promised: the same bits every time, so recorded steps too have those of others; sums in
// f32; operands as they are given, but in TF32 if that is allowed.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nn/cuda/cudnn_descriptor.h"

namespace dlaunch::nn::cuda {

/// What engines may do with tensor cores, which multiply f32 in TF32.
enum class TensorCores : std::uint8_t {
  kForbidden,
  kAllowed,
  kPreferred,  // others only if there is none on them that is ready at once
};

/// An engine that is ready to run.
struct EnginePlan {
  CudnnDescriptor plan;
  std::int64_t engine;     // cuDNN's number for it
  std::int64_t workspace;  // bytes
};

/// One to `most` of them, those first that are expected to be fastest. An engine that has to be
/// compiled first, which takes long, or that needs very much memory is there only if no other is;
/// one that is there more than once, with other settings, twice at most, for the first dozen may
/// all be one engine's. Throws CudnnError, which is not_supported() if there is no engine.
std::vector<EnginePlan> find_engines(cudnnHandle_t handle, const CudnnDescriptor& graph,
                                     TensorCores tensor_cores, std::size_t most);

}  // namespace dlaunch::nn::cuda
