#include "nn/cuda/conv2d.h"

#include <optional>
#include <string>

#include "nn/core/error.h"
#include "nn/cuda/check.h"
#include "nn/cuda/convolution_plan.h"
#include "nn/cuda/kernels.h"

namespace dlaunch::nn::cuda {
namespace {

// More geometries than any network has; reached only by programs that go through many shapes.
constexpr std::size_t kMostPlans = 512;

std::int64_t weight_count(const Conv2dGeometry& g) {
  return g.out * g.kernel_h * g.kernel_w * g.in;
}

// Weights in a type of 16 bits, as they were at `version`.
struct ConvertedWeights final : DerivedData {
  ConvertedWeights(CachingAllocator& memory, std::size_t bytes) : values(memory, bytes) {}
  ScratchMemory values;
  DType dtype = DType::kF32;  // none yet
  std::uint64_t version = 0;
};

std::int64_t input_count(const Conv2dGeometry& g) {
  return g.n * g.height * g.width * g.in;
}

// Activations as f32, in memory of their own.
class Widened {
 public:
  Widened(Device& device, std::int64_t count)
      : device_(device),
        count_(count),
        values_(device.memory(), static_cast<std::size_t>(count) * sizeof(float)) {}
  Widened(Device& device, std::int64_t count, ConstArrayRef from) : Widened(device, count) {
    convert(device, count, from, array());
  }

  ArrayRef array() const { return {values_.get(), DType::kF32}; }
  void narrow(ArrayRef to) const { convert(device_, count_, array(), to); }

 private:
  Device& device_;
  std::int64_t count_;
  ScratchMemory values_;
};

}  // namespace

// What cuDNN has for one geometry; a pass that it has no algorithm for is left out.
struct Convolutions::Plan {
  Plan(const Key& key, cudnnHandle_t handle, bool tf32)
      : shapes(key.geometry, key.dtype),
        forward(ForwardPass::find(handle, shapes, tf32)),
        backward_data(BackwardDataPass::find(handle, shapes, tf32)),
        backward_weights(BackwardWeightsPass::find(handle, shapes, tf32)) {}

  bool complete() const { return forward && backward_data && backward_weights; }

  ConvolutionShapes shapes;
  std::optional<ForwardPass> forward;
  std::optional<BackwardDataPass> backward_data;
  std::optional<BackwardWeightsPass> backward_weights;
};

Convolutions::Convolutions(Device& device, bool tf32) : device_(device), tf32_(tf32) {
  check(cudnnCreate(&handle_), "cudnnCreate");
  if (const cudnnStatus_t status = cudnnSetStream(handle_, device_.stream());
      status != CUDNN_STATUS_SUCCESS) {
    ignore(cudnnDestroy(handle_));
    check(status, "cudnnSetStream");
  }
}

Convolutions::~Convolutions() {
  plans_.clear();
  ignore(cudnnDestroy(handle_));
}

std::size_t Convolutions::KeyHash::operator()(const Key& key) const {
  const Conv2dGeometry& g = key.geometry;
  auto hash = static_cast<std::size_t>(key.dtype);
  for (const std::int64_t value : {g.n, g.height, g.width, g.in, g.out, g.kernel_h, g.kernel_w,
                                   g.stride_h, g.stride_w, g.pad_h, g.pad_w}) {
    hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(value);
  }
  return hash ^ (hash >> 29);
}

Convolutions::Plan& Convolutions::plan(const Conv2dGeometry& geometry, DType dtype) {
  if (plans_.size() >= kMostPlans) plans_.clear();
  const Key key{geometry, dtype};
  std::unique_ptr<Plan>& plan = plans_[key];
  if (!plan) plan = std::make_unique<Plan>(key, handle_, tf32_);
  return *plan;
}

/// Whether cuDNN does all passes in this type. Throws Error if it does not even in f32.
bool Convolutions::does(const Conv2dGeometry& geometry, DType dtype) {
  const Plan& made = plan(geometry, dtype);
  if (!made.complete() && dtype == DType::kF32)
    throw Error(made.shapes.describe("conv2d") + ": cuDNN has no deterministic algorithm for it");
  return made.complete();
}

/// The weights in the type that activations have.
const void* Convolutions::weights_in(DType dtype, const Conv2dGeometry& geometry,
                                     const WeightsRef& weights) {
  if (dtype == DType::kF32) return weights.data;
  const std::int64_t count = weight_count(geometry);
  if (!*weights.derived)
    *weights.derived = std::make_unique<ConvertedWeights>(
        device_.memory(), static_cast<std::size_t>(count) * size_of(dtype));
  auto& converted = static_cast<ConvertedWeights&>(**weights.derived);
  if (converted.version != weights.version || converted.dtype != dtype) {
    convert(device_, count, {weights.data, DType::kF32}, {converted.values.get(), dtype});
    converted.version = weights.version;
    converted.dtype = dtype;
  }
  return converted.values.get();
}

void Convolutions::forward(const Conv2dGeometry& geometry, ConstArrayRef x,
                           const WeightsRef& weights, const float* bias_or_null, ArrayRef y) {
  if (geometry.n == 0) return;
  if (!does(geometry, x.dtype)) {
    const Widened result(device_, geometry.output().size());
    forward(geometry, Widened(device_, input_count(geometry), x).array(), weights, bias_or_null,
            result.array());
    return result.narrow(y);
  }
  const Plan& made = plan(geometry, x.dtype);
  made.forward->run(handle_, device_, made.shapes, x.data, weights_in(x.dtype, geometry, weights),
                    y.data);
  if (bias_or_null != nullptr)
    add_to_rows(device_, geometry.n * geometry.out_height() * geometry.out_width(), geometry.out,
                bias_or_null, y);
}

void Convolutions::backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy,
                                 const WeightsRef& weights, ArrayRef dx) {
  if (geometry.n == 0) return;
  if (!does(geometry, dy.dtype)) {
    const Widened result(device_, input_count(geometry));
    backward_data(geometry, Widened(device_, geometry.output().size(), dy).array(), weights,
                  result.array());
    return result.narrow(dx);
  }
  const Plan& made = plan(geometry, dy.dtype);
  made.backward_data->run(handle_, device_, made.shapes, weights_in(dy.dtype, geometry, weights),
                          dy.data, dx.data);
}

void Convolutions::backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x,
                                    ConstArrayRef dy, float* dw, float* db_or_null) {
  if (geometry.n == 0) return;
  if (!does(geometry, x.dtype))
    return backward_weights(geometry, Widened(device_, input_count(geometry), x).array(),
                            Widened(device_, geometry.output().size(), dy).array(), dw, db_or_null);
  const Plan& made = plan(geometry, x.dtype);
  if (x.dtype == DType::kF32) {
    made.backward_weights->run(handle_, device_, made.shapes, x.data, dy.data, 1.0F, dw);
  } else {
    const std::int64_t count = weight_count(geometry);
    const ScratchMemory gradient(device_.memory(),
                                 static_cast<std::size_t>(count) * size_of(x.dtype));
    made.backward_weights->run(handle_, device_, made.shapes, x.data, dy.data, 0.0F,
                               gradient.get());
    accumulate(device_, count, {gradient.get(), x.dtype}, dw);
  }
  if (db_or_null != nullptr)
    accumulate_column_sums(device_, geometry.n * geometry.out_height() * geometry.out_width(),
                           geometry.out, dy, db_or_null);
}

}  // namespace dlaunch::nn::cuda
