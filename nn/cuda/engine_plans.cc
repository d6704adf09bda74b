#include "nn/cuda/engine_plans.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "nn/cuda/check.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::ptrdiff_t kSettings = 2;  // of one engine
constexpr std::int64_t kVeryMuch = std::int64_t{1} << 30;

// The second asks longer, the third knows what works at all.
constexpr std::array kModes{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};

// cuDNN takes 0.05 ms to hand out an engine's configuration, of which a mode may have 40. Of these
// the first few have one that can be taken, but for f32 without TF32, where the first two dozen are
// for tensor cores.
constexpr std::int64_t kFew = 8;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

std::vector<CudnnDescriptor> ask_heuristics(const CudnnDescriptor& graph,
                                            cudnnBackendHeurMode_t mode, std::int64_t most) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  heuristics.finalize();
  return heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                most);
}

template <typename Note>
bool has_note(const std::vector<Note>& notes, Note note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

/// Whether it multiplies what it has transformed, which costs f32 some of its bits.
bool transforms(const std::vector<cudnnBackendNumericalNote_t>& notes) {
  constexpr std::array kTransforms{CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD,
                                   CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                                   CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
                                   CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
  return std::ranges::any_of(kTransforms, [&](auto note) { return has_note(notes, note); });
}

bool suits(const CudnnDescriptor& engine, TensorCores tensor_cores) {
  const auto notes = engine.values<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return !has_note(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
         !has_note(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
         !has_note(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
         !(tensor_cores == TensorCores::kForbidden && transforms(notes)) &&
         (tensor_cores == TensorCores::kAllowed ||
          has_note(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ==
              (tensor_cores == TensorCores::kPreferred));
}

bool is_compiled_first(const CudnnDescriptor& engine) {
  return has_note(engine.values<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                            CUDNN_BEHAVIOR_NOTE_TYPE_COUNT),
                  CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
}

// A mode or an engine that fails, for whatever reason, is passed over: another may do. If none
// does, a lack of memory is what to tell: there may be one that does when there is some.
class Search {
 public:
  Search(cudnnHandle_t handle, const CudnnDescriptor& graph, TensorCores tensor_cores)
      : handle_(handle), graph_(graph), tensor_cores_(tensor_cores) {}

  /// Those of the first mode that has any.
  std::vector<EnginePlan> find(bool costly, std::size_t most) {
    for (const cudnnBackendHeurMode_t mode : kModes) {
      for (const std::int64_t asked : {kFew, kAll}) {
        if (asked == kFew && most > 1) continue;  // those are mostly settings of one engine
        auto found = take(ask(mode, asked), costly, most);
        if (!found.empty()) return found;
      }
    }
    return {};
  }

  /// Throws CudnnError, about what has failed.
  [[noreturn]] void fail() const {
    if (failure_ && failure_->out_of_memory()) throw *failure_;
    std::string text = "cuDNN has no engine that gives the same bits every time";
    if (failure_) text += std::string("; the last failure: ") + failure_->what();
    throw CudnnError(CUDNN_STATUS_NOT_SUPPORTED, text);
  }

 private:
  void note(const CudnnError& failure) {
    if (!failure_ || !failure_->out_of_memory()) failure_.emplace(failure);
  }

  std::vector<CudnnDescriptor> ask(cudnnBackendHeurMode_t mode, std::int64_t most) {
    try {
      return ask_heuristics(graph_, mode, most);
    } catch (const CudnnError& error) {
      note(error);
      return {};
    }
  }

  std::vector<EnginePlan> take(const std::vector<CudnnDescriptor>& configs, bool costly,
                               std::size_t most) {
    std::vector<EnginePlan> found;
    for (const CudnnDescriptor& config : configs) {
      if (found.size() == most) break;
      if (auto plan = try_engine(config, costly, found)) found.push_back(*std::move(plan));
    }
    return found;
  }

  std::optional<EnginePlan> try_engine(const CudnnDescriptor& config, bool costly,
                                       const std::vector<EnginePlan>& found) {
    try {
      return make_plan(config, costly, found);
    } catch (const CudnnError& error) {
      note(error);
      return {};
    }
  }

  std::optional<EnginePlan> make_plan(const CudnnDescriptor& config, bool costly,
                                      const std::vector<EnginePlan>& found) const {
    const CudnnDescriptor engine =
        config.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    const std::int64_t number = engine.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (std::ranges::count(found, number, &EnginePlan::engine) == kSettings) return {};
    if (!suits(engine, tensor_cores_)) return {};
    const bool compiled_first = is_compiled_first(engine);
    if (compiled_first && !costly) return {};
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    plan.finalize();
    const std::int64_t workspace = plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    if ((compiled_first || workspace > kVeryMuch) != costly) return {};
    return EnginePlan{std::move(plan), number, workspace};
  }

  cudnnHandle_t handle_;
  const CudnnDescriptor& graph_;
  const TensorCores tensor_cores_;
  std::optional<CudnnError> failure_;
};

}  // namespace

std::vector<EnginePlan> find_engines(cudnnHandle_t handle, const CudnnDescriptor& graph,
                                     TensorCores tensor_cores, std::size_t most) {
  if (tensor_cores == TensorCores::kPreferred) {
    std::vector<EnginePlan> found = Search(handle, graph, tensor_cores).find(false, most);
    if (!found.empty()) return found;
    tensor_cores = TensorCores::kAllowed;
  }
  Search search(handle, graph, tensor_cores);
  std::vector<EnginePlan> found = search.find(false, most);
  if (found.empty()) found = search.find(true, 1);
  if (found.empty()) search.fail();
  return found;
}

}  // namespace dlaunch::nn::cuda
