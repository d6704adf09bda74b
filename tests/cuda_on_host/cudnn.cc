// The functions of include/cudnn.h, strict where cuDNN may be generous: what is not exactly as it
// has to be is refused, with a reason.
#include "cudnn.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nn/core/backend.h"
#include "nn/cpu/cpu_backend.h"
#include "tests/cuda_on_host/cudnn_engines.h"
#include "tests/cuda_on_host/cudnn_object.h"
#include "tests/cuda_on_host/queue.h"

// NOLINTBEGIN(readability-identifier-naming): the names are cuDNN's

struct cudnnContext {
  cudaStream_t stream = nullptr;
  std::shared_ptr<dlaunch::nn::Backend> cpu = dlaunch::nn::make_cpu_backend();
};

namespace dlaunch::cuda_on_host {
namespace {

struct Library {
  std::mutex mutex;  // held throughout every function
  std::string last_error;
  int handles = 0;
  int descriptors = 0;
};

Library& library() {
  static Library the_one;
  return the_one;
}

/// What a function returns that does this.
template <typename Function>
cudnnStatus_t status_of(const Function& function) {
  const std::scoped_lock lock(library().mutex);
  try {
    function();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal& refusal) {
    library().last_error = refusal.what();
    return refusal.status();
  }
}

std::shared_ptr<CudnnObject>& object_of(cudnnBackendDescriptor_t descriptor) {
  require(descriptor != nullptr, "no descriptor");
  return static_cast<CudnnReference*>(descriptor)->object;
}

const CudnnObject& finalised(cudnnBackendDescriptor_t descriptor,
                             cudnnBackendDescriptorType_t type) {
  const CudnnObject& object = *object_of(descriptor);
  require(object.type() == type, "a descriptor of another type");
  require(object.finalised(), "a descriptor is not finalised",
          CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  return object;
}

HostConvolution convolution_in(const CudnnObject& graph) {
  return HostConvolution(*graph.object(CUDNN_ATTR_OPERATIONGRAPH_OPS));
}

void check_graph(const CudnnObject& graph) {
  const HostConvolution convolution = convolution_in(graph);
  const nn::Conv2dGeometry& g = convolution.geometry;
  require(convolution.dtype == DType::kF32 || (g.in % 2 == 0 && g.out % 2 == 0),
          "halves in odd numbers of channels", CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
}

const CudnnObject& engine_config_of(const CudnnObject& plan) {
  return *plan.object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
}

void plan(const HostEngine& engine) {
  engine_control().planned.push_back(engine.number);
  require(engine.number != engine_control().without_memory, "4096 bytes were wanted",
          CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
  require(engine.number != kRefuses, "this engine does not do it after all",
          CUDNN_STATUS_NOT_SUPPORTED);
}

/// What is checked of an object that has all its attributes.
void check_whole(const CudnnObject& object) {
  switch (object.type()) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return check_tensor(object);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return check_windows(object);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return (void)HostConvolution(object);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return check_graph(object);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return (void)engines_for(
          convolution_in(*object.object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)),
          object.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return plan(*engine_config_of(object).engine);
    default:
      return;
  }
}

template <typename T>
std::int64_t hand_out(const std::vector<T>& values, std::int64_t most, void* elements) {
  const auto count = std::min(most, static_cast<std::int64_t>(values.size()));
  std::copy_n(values.begin(), count, static_cast<T*>(elements));
  return static_cast<std::int64_t>(values.size());
}

/// Fills descriptors of the type `type` that are there already, with configured or bare engines.
/// Returns how many; without a place for any, more than it would fill, as cuDNN may.
std::int64_t hand_out_engines(const std::vector<const HostEngine*>& engines,
                              const std::shared_ptr<const CudnnObject>& graph,
                              cudnnBackendDescriptorType_t type, std::int64_t most,
                              void* elements) {
  constexpr std::size_t kNeverFilled = 2;
  if (most == 0) return static_cast<std::int64_t>(engines.size() + kNeverFilled);
  const auto count = std::min(static_cast<std::size_t>(most), engines.size());
  for (std::size_t i = 0; i < count; ++i) {
    auto& object = object_of(static_cast<cudnnBackendDescriptor_t*>(elements)[i]);
    require(object->type() == type && !object->finalised(), "a descriptor that cannot be filled");
    object = std::make_shared<CudnnObject>(type, *engines[i], graph);
  }
  return static_cast<std::int64_t>(count);
}

/// Returns how many there are.
std::int64_t get(const CudnnObject& object, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, std::int64_t most, void* elements) {
  const auto require_type = [&](cudnnBackendDescriptorType_t of,
                                cudnnBackendAttributeType_t wanted) {
    require(object.type() == of && type == wanted, "not an attribute of that descriptor and type");
  };
  require(object.finalised(), "a descriptor is read that is not finalised",
          CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      require_type(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
      if (most > 0) engine_control().asked.push_back(most);
      const auto& graph = object.object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      return hand_out_engines(
          engines_for(convolution_in(*graph),
                      object.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)),
          graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, most, elements);
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      require_type(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
      return hand_out_engines({object.engine}, object.graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR, most,
                              elements);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      require_type(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_TYPE_NUMERICAL_NOTE);
      return hand_out(object.engine->numerical_notes, most, elements);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      require_type(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_TYPE_BEHAVIOR_NOTE);
      return hand_out(object.engine->behavior_notes, most, elements);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      require_type(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_TYPE_INT64);
      return hand_out(std::vector{std::int64_t{object.engine->number}}, most, elements);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      require_type(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_INT64);
      return hand_out(
          std::vector{static_cast<std::int64_t>(engine_config_of(object).engine->workspace_now())},
          most, elements);
    default:
      throw Refusal(CUDNN_STATUS_BAD_PARAM,
                    "attribute " + std::to_string(name) + " cannot be read");
  }
}

/// The addresses that the variant pack has for the convolution's tensors, and for no others.
std::array<void*, 3> tensors_of(const HostConvolution& convolution, const CudnnObject& pack) {
  const auto uids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::array<void*, 3> tensors{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = std::find(uids.begin(), uids.end(), convolution.uids[i]);
    require(found != uids.end(), "an address is missing");  // three ids for three tensors
    tensors[i] = pointers[static_cast<std::size_t>(found - uids.begin())];
    require(
        tensors[i] != nullptr && reinterpret_cast<std::uintptr_t>(tensors[i]) %
                                         static_cast<std::uintptr_t>(convolution.alignments[i]) ==
                                     0,
        "an address is not aligned as was said", CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  }
  return tensors;
}

void execute(cudnnHandle_t handle, const CudnnObject& plan, const CudnnObject& pack) {
  constexpr std::size_t kMostFilled = std::size_t{1} << 20;
  constexpr std::chrono::seconds kSlow{1};
  require(plan.one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) == handle, "another handle");
  const HostEngine& engine = *engine_config_of(plan).engine;
  require(engine.may_be_taken(), "an engine that breaks what nn promises",
          CUDNN_STATUS_EXECUTION_FAILED);
  const HostConvolution convolution = convolution_in(*engine_config_of(plan).graph);
  const auto tensors = tensors_of(convolution, pack);
  auto* const workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const std::size_t bytes = engine.workspace_now();
  require(workspace != nullptr || bytes == 0, "no workspace");
  engine_control().executed.push_back(engine.number);
  const bool slow = engine_control().slow == engine.number;
  const bool in_tf32 = engine.number == kTensorCores && convolution.dtype == DType::kF32;
  queue().add(handle->stream, [=, cpu = handle->cpu] {
    if (bytes > 0) std::memset(workspace, 0xff, std::min(bytes, kMostFilled));
    convolution.run(*cpu, tensors, in_tf32);
    if (slow) queue().pass_time(kSlow);
  });
}

}  // namespace
}  // namespace dlaunch::cuda_on_host

using namespace dlaunch::cuda_on_host;  // NOLINT(google-build-using-namespace)

const char* cudnnGetErrorString(cudnnStatus_t status) {
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM) return "a bad parameter";
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return "not supported";
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) return "out of memory";
  return status == CUDNN_STATUS_SUCCESS ? "success" : "execution failed";
}

void cudnnGetLastErrorString(char* message, std::size_t max_size) {
  const std::scoped_lock lock(library().mutex);
  std::snprintf(message, max_size, "%s", library().last_error.c_str());
  library().last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  const std::scoped_lock lock(library().mutex);
  ++library().handles;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  const std::scoped_lock lock(library().mutex);
  if (--library().handles == 0 && library().descriptors != 0) {
    std::fprintf(stderr, "cuDNN's stand-in: %d descriptors were not destroyed\n",
                 library().descriptors);
    std::abort();
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new CudnnReference{std::make_shared<CudnnObject>(type)};
  const std::scoped_lock lock(library().mutex);
  ++library().descriptors;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<CudnnReference*>(descriptor);
  const std::scoped_lock lock(library().mutex);
  --library().descriptors;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return status_of([&] {
    CudnnObject& object = *object_of(descriptor);
    require(!object.finalised(), "a descriptor is finalised twice");
    object.require_all();
    check_whole(object);
    object.finalise();
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* elements) {
  return status_of([&] { object_of(descriptor)->set(name, type, count, elements); });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t most,
                                       std::int64_t* count, void* elements) {
  return status_of([&] {
    require(most == 0 || elements != nullptr, "no place for elements");
    *count = get(*object_of(descriptor), name, type, most, elements);
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  return status_of([&] {
    execute(handle, finalised(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            finalised(variant_pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  });
}

// NOLINTEND(readability-identifier-naming)
