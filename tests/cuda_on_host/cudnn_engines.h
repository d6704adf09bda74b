// The engines of cuDNN's stand-in, which all compute the same, but say different things about
// themselves. Those that must not be taken come first; if one is, it fails. Tests see which have
// run, and say which one is slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/cuda_on_host/cudnn_convolution.h"

namespace dlaunch::cuda_on_host {

/// Their numbers, in the order in which the heuristics name them.
enum EngineNumber : std::int64_t {
  kNonDeterministic,
  kReducedSums,
  kConvertsOperands,
  kCompiled,     // at run time
  kRefuses,      // when its plan is finalised
  kTensorCores,  // the first one that is to be taken for halves and TF32
  kLarge,        // workspace
  kPlain,        // the first one that is to be taken for f32
  kTransforms,   // not to be taken for f32, not even where engines are measured
  kOtherPlain,
  kFallback,  // only by the mode of this name, and only where the others have nothing
};

// Most geometries have all engines but the last, each with some settings: the heuristics name all
// engines, then all again. These strides and heights of kernels are others.
constexpr int kSettings = 3;
constexpr std::int64_t kStrideOfPlain = 2;  // where one without tensor cores comes first
constexpr std::int64_t kStrideOfFallback = 3;
constexpr std::int64_t kHeightOfTensorCores = 7;  // whose settings all come before other engines
constexpr std::int64_t kHeightOfCompiled = 5;     // of what may be taken, only that
constexpr std::int64_t kHeightOfLarge = 6;        // likewise in f32
constexpr std::int64_t kHeightOfNone = 8;

struct HostEngine {
  EngineNumber number;
  std::vector<cudnnBackendNumericalNote_t> numerical_notes;
  std::vector<cudnnBackendBehaviorNote_t> behavior_notes;
  std::size_t workspace;

  bool may_be_taken() const { return number >= kCompiled; }
  std::size_t workspace_now() const;
};

/// In the order of the heuristics. Throws Refusal if there is none in this mode.
std::vector<const HostEngine*> engines_for(const HostConvolution& convolution,
                                           cudnnBackendHeurMode_t mode);

constexpr std::size_t kGreedy = std::size_t{512} << 20;

/// What tests see and say.
struct EngineControl {
  std::vector<EngineNumber> planned;   // in order; compiled, if they have to be
  std::vector<EngineNumber> executed;  // in order
  std::vector<std::int64_t> asked;     // how many configurations, at most, in order
  std::int64_t slow = -1;              // the engine that takes a second of the device's time
  std::int64_t greedy = -1;            // that has a workspace of kGreedy
  std::int64_t without_memory = -1;    // whose plan finds none
};
EngineControl& engine_control();

}  // namespace dlaunch::cuda_on_host
