#include "tests/cuda_on_host/cudnn_engines.h"

#include <algorithm>

namespace dlaunch::cuda_on_host {
namespace {

constexpr std::size_t kSmall = 1000;
constexpr std::size_t kTooLarge = (std::size_t{1} << 30) + 1;

const std::vector<HostEngine>& all_engines() {
  static const std::vector<HostEngine> engines{
      {kNonDeterministic,
       {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
       {},
       0},
      {kReducedSums, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}, 0},
      {kConvertsOperands, {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, {}, 0},
      {kCompiled, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, kSmall},
      {kRefuses, {}, {}, 0},
      {kTensorCores, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, kSmall},
      {kLarge, {}, {}, kTooLarge},
      {kPlain, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, {}, kSmall},
      {kTransforms,
       {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4},
       {},
       kSmall},
      {kOtherPlain, {}, {CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API}, 0},
      {kFallback, {}, {}, kSmall},
  };
  return engines;
}

bool does(const HostEngine& engine, const nn::Conv2dGeometry& geometry) {
  switch (geometry.kernel_h) {
    case kHeightOfCompiled:
      return engine.number <= kRefuses;
    case kHeightOfLarge:
      return engine.number <= kLarge && engine.number != kCompiled;
    case kHeightOfNone:
      return engine.number <= kRefuses && engine.number != kCompiled;
    default:
      return engine.number != kFallback;
  }
}

}  // namespace

std::size_t HostEngine::workspace_now() const {
  return engine_control().greedy == number ? kGreedy : workspace;
}

std::vector<const HostEngine*> engines_for(const HostConvolution& convolution,
                                           cudnnBackendHeurMode_t mode) {
  const bool falls_back = convolution.geometry.stride_h == kStrideOfFallback;
  require(!falls_back || mode != CUDNN_HEUR_MODE_A, "mode A does not know this stride",
          CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
  std::vector<const HostEngine*> engines;
  for (int setting = 0; setting < kSettings; ++setting) {
    for (const HostEngine& engine : all_engines()) {
      const bool known = mode == CUDNN_HEUR_MODE_FALLBACK
                             ? falls_back && engine.number == kFallback
                             : !falls_back && does(engine, convolution.geometry);
      if (known) engines.push_back(&engine);
    }
  }
  if (convolution.geometry.kernel_h == kHeightOfTensorCores) {
    std::stable_partition(engines.begin(), engines.end(),
                          [](const HostEngine* engine) { return engine->number <= kTensorCores; });
  }
  if (convolution.geometry.stride_h == kStrideOfPlain) {
    std::stable_partition(engines.begin(), engines.end(),
                          [](const HostEngine* engine) { return engine->number == kOtherPlain; });
  }
  return engines;
}

EngineControl& engine_control() {
  static EngineControl control;
  return control;
}

}  // namespace dlaunch::cuda_on_host
