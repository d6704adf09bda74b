#include "nn/cuda/convolution_plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "nn/cuda/check.h"
#include "nn/cuda/device_timer.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::size_t kMostMeasured = 10;  // at least five engines, if there are so many
constexpr std::size_t kRuns = 3;
constexpr double kMiB = 1 << 20;

void* checked_address(const void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % kTensorAlignment != 0)
    throw Error("a tensor's address is no multiple of 16 bytes");
  return const_cast<void*>(address);  // cuDNN's type for what it reads, too
}

CudnnDescriptor make_call(const ConvolutionArrays& arrays, void* workspace) {
  CudnnDescriptor call(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  call.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
           std::array<std::int64_t, 3>{kFirstTensor, kSecondTensor, kResultTensor});
  call.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
           std::array{checked_address(arrays.first), checked_address(arrays.second),
                      checked_address(arrays.result)});
  call.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  call.finalize();
  return call;
}

/// Whether the device has memory for its workspace, which the allocator then keeps.
bool has_room(Device& device, const EnginePlan& engine) {
  try {
    const ScratchMemory workspace(device.memory(), static_cast<std::size_t>(engine.workspace));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The least of a few runs, in seconds; infinite if it cannot run after all.
double measure(cudnnHandle_t handle, Device& device, const EnginePlan& engine,
               const ConvolutionArrays& arrays) {
  if (!has_room(device, engine)) return std::numeric_limits<double>::infinity();
  const ScratchMemory workspace(device.memory(), static_cast<std::size_t>(engine.workspace));
  std::array<std::unique_ptr<DeviceTimer>, kRuns> timers;
  for (auto& timer : timers) timer = make_device_timer(device.stream());
  double least = std::numeric_limits<double>::infinity();
  try {
    const CudnnDescriptor call = make_call(arrays, workspace.get());
    const auto run = [&] {
      check(cudnnBackendExecute(handle, engine.plan.get(), call.get()), "cudnnBackendExecute");
    };
    run();  // loads its kernels
    // Queued together, so that the device does not wait for the host within a measurement.
    for (const auto& timer : timers) {
      timer->start();
      run();
      timer->stop();
    }
    for (const auto& timer : timers) least = std::min(least, timer->seconds());
  } catch (const CudnnError&) {
    // Another engine may do; if none does, the first one says so again when it is needed.
  }
  return least;
}

std::size_t weight_bytes(const Convolution& convolution) {
  const Conv2dGeometry& g = convolution.geometry;
  return static_cast<std::size_t>(g.out * g.kernel_h * g.kernel_w * g.in) *
         size_of(convolution.dtype);
}

struct Fastest {
  std::size_t number;
  double seconds;
};

std::size_t least_workspace(const std::vector<EnginePlan>& engines) {
  return static_cast<std::size_t>(std::ranges::min_element(engines, {}, &EnginePlan::workspace) -
                                  engines.begin());
}

/// If none can be measured, that with the least workspace, in infinite time.
Fastest find_fastest(cudnnHandle_t handle, Device& device, const Convolution& convolution,
                     const std::vector<EnginePlan>& engines, ConvolutionArrays arrays) {
  std::optional<ScratchMemory> sums;  // not those that the result has yet to be added to
  if (convolution.accumulates()) {
    sums.emplace(device.memory(), weight_bytes(convolution));
    arrays.result = sums->get();
  }
  Fastest best{least_workspace(engines), std::numeric_limits<double>::infinity()};
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const double seconds = measure(handle, device, engines[i], arrays);
    if (seconds < best.seconds) best = {i, seconds};
  }
  return best;
}

/// The heuristics' first choice for halves may be an engine without tensor cores (1x1 windows of
/// stride 2). It may also be right: they multiply 8 channels at a time. Measurements tell.
TensorCores tensor_cores_for(const Convolution& convolution, bool tf32, bool measured) {
  constexpr std::int64_t kChannels = 8;
  const Conv2dGeometry& g = convolution.geometry;
  if (convolution.dtype == DType::kF32)
    return tf32 ? TensorCores::kAllowed : TensorCores::kForbidden;
  return measured || std::min(g.in, g.out) < kChannels ? TensorCores::kAllowed
                                                       : TensorCores::kPreferred;
}

std::string describe(const EnginePlan& engine) {
  return fmt::format("engine {}, {:.1f} MiB of workspace", engine.engine,
                     static_cast<double>(engine.workspace) / kMiB);
}

}  // namespace

ConvolutionPlan ConvolutionPlan::choose(cudnnHandle_t handle, Device& device,
                                        const Convolution& convolution, bool tf32, bool autotune,
                                        const ConvolutionArrays& arrays) {
  const bool measured = autotune && !device.pools().recording();
  const CudnnDescriptor graph = make_operation_graph(handle, convolution);
  const auto find = [&](bool several) {
    return find_engines(handle, graph, tensor_cores_for(convolution, tf32, several),
                        several ? kMostMeasured : 1);
  };
  std::vector<EnginePlan> engines = find(measured);
  if (!measured) {
    std::size_t chosen = 0;
    if (!has_room(device, engines.front())) {
      engines = find(true);
      chosen = least_workspace(engines);
    }
    std::string text = describe(engines[chosen]);
    return ConvolutionPlan(std::move(engines[chosen]), std::move(text));
  }
  const Fastest best = find_fastest(handle, device, convolution, engines, arrays);
  std::string text = fmt::format("{}, {:.4f} ms; the fastest of {}", describe(engines[best.number]),
                                 best.seconds * 1e3, engines.size());
  return ConvolutionPlan(std::move(engines[best.number]), std::move(text));
}

void ConvolutionPlan::run(cudnnHandle_t handle, Device& device,
                          const ConvolutionArrays& arrays) const {
  const ScratchMemory workspace(device.memory(), static_cast<std::size_t>(chosen_.workspace));
  const CudnnDescriptor call = make_call(arrays, workspace.get());
  check(cudnnBackendExecute(handle, chosen_.plan.get(), call.get()), "cudnnBackendExecute");
}

}  // namespace dlaunch::nn::cuda
