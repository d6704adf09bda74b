#include "nn/cpu/conv2d.h"

#include <optional>
#include <string>
#include <utility>

#include "nn/core/error.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/onednn.h"

namespace dlaunch::nn::cpu {
namespace {

using dnnl::memory;
using tag = dnnl::memory::format_tag;

// More geometries than any network has; reached only by programs that go through many shapes.
constexpr std::size_t kMostPlans = 512;

memory::desc f32(const memory::dims& dims, tag layout) {
  return {dims, memory::data_type::f32, layout};
}

ConvolutionDescriptors descriptors(const Conv2dGeometry& g, bool bias) {
  return {.x = f32({g.n, g.in, g.height, g.width}, tag::nhwc),
          .weights = f32({g.out, g.in, g.kernel_h, g.kernel_w}, tag::any),
          .bias = bias ? f32({g.out}, tag::x) : memory::desc(),
          .y = f32({g.n, g.out, g.out_height(), g.out_width()}, tag::nhwc),
          .strides = {g.stride_h, g.stride_w},
          .padding = {g.pad_h, g.pad_w}};
}

// A primitive, with its descriptor.
template <typename Primitive>
struct Prepared {
  explicit Prepared(const typename Primitive::primitive_desc& d) : description(d), primitive(d) {}
  typename Primitive::primitive_desc description;
  Primitive primitive;
};

std::string describe(const Conv2dGeometry& g) {
  return "input " + Shape{g.n, g.height, g.width, g.in}.to_string() + ", weights " +
         Shape{g.out, g.kernel_h, g.kernel_w, g.in}.to_string() + ", stride " +
         std::to_string(g.stride_h) + ", padding " + std::to_string(g.pad_h);
}

}  // namespace

// What oneDNN made for one geometry, each part when it was first needed.
struct Convolutions::Plan {
  Plan(const Conv2dGeometry& geometry, bool bias)
      : arguments(descriptors(geometry, bias)),
        plain_weights(
            f32({geometry.out, geometry.in, geometry.kernel_h, geometry.kernel_w}, tag::ohwi)) {}

  ConvolutionDescriptors arguments;
  memory::desc plain_weights;
  std::optional<Prepared<dnnl::convolution_forward>> forward;
  std::optional<Prepared<dnnl::convolution_backward_data>> backward_data;
  std::optional<Prepared<dnnl::convolution_backward_weights>> backward_weights;
  std::optional<dnnl::reorder> add_weights;  // from oneDNN's layout onto OHWI, adding
};

// Weights in a layout of oneDNN's, as they were at `version`.
struct Convolutions::Packed {
  memory::desc layout;
  std::uint64_t version = 0;
  std::unique_ptr<ScratchMemory> data;
};

namespace {

template <typename PackedForm>
struct PackedWeights : DerivedData {
  PackedForm forward;
  PackedForm backward_data;
};

template <typename PackedForm>
PackedWeights<PackedForm>& derived_from(const WeightsRef& weights) {
  if (!*weights.derived) *weights.derived = std::make_unique<PackedWeights<PackedForm>>();
  return static_cast<PackedWeights<PackedForm>&>(**weights.derived);
}

}  // namespace

Convolutions::Convolutions(CachingAllocator& allocator)
    : allocator_(allocator), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

Convolutions::~Convolutions() = default;

std::size_t Convolutions::KeyHash::operator()(const Key& key) const {
  const Conv2dGeometry& g = key.geometry;
  std::size_t hash = key.bias ? 1 : 0;
  for (const std::int64_t value : {g.n, g.height, g.width, g.in, g.out, g.kernel_h, g.kernel_w,
                                   g.stride_h, g.stride_w, g.pad_h, g.pad_w}) {
    hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(value);
  }
  return hash ^ (hash >> 29);
}

Convolutions::Plan& Convolutions::plan(const Conv2dGeometry& geometry, bool bias) {
  if (plans_.size() >= kMostPlans) plans_.clear();
  std::unique_ptr<Plan>& plan = plans_[{geometry, bias}];
  if (!plan) plan = std::make_unique<Plan>(geometry, bias);
  return *plan;
}

template <typename Function>
void Convolutions::guarded(const char* pass, const Conv2dGeometry& geometry,
                           const Function& function) {
  try {
    function();
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw Error(std::string(pass) + " of " + describe(geometry) + ": oneDNN: " + error.what());
  }
}

dnnl::memory Convolutions::memory(const dnnl::memory::desc& layout, const float* data) const {
  // oneDNN takes inputs through the same type as outputs, and does not write to them.
  return {layout, engine_,
          const_cast<float*>(data)};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

float* Convolutions::packed_weights(const WeightsRef& weights, Packed& packed,
                                    const dnnl::memory::desc& plain,
                                    const dnnl::memory::desc& wanted) {
  if (packed.data && packed.version == weights.version && packed.layout == wanted) {
    return static_cast<float*>(packed.data->get());
  }
  if (!packed.data || packed.layout != wanted) {
    packed.data = std::make_unique<ScratchMemory>(allocator_, wanted.get_size());
    packed.layout = wanted;
  }
  auto* data = static_cast<float*>(packed.data->get());
  dnnl::memory from = memory(plain, weights.data);
  dnnl::memory to = memory(wanted, data);
  dnnl::reorder(from, to).execute(stream_, from, to);
  packed.version = weights.version;
  return data;
}

void Convolutions::forward(const Conv2dGeometry& geometry, const float* x,
                           const WeightsRef& weights, const float* bias_or_null, float* y) {
  if (geometry.n == 0) return;
  guarded("conv2d", geometry, [&] {
    Plan& made = plan(geometry, bias_or_null != nullptr);
    if (!made.forward) made.forward.emplace(describe_forward(engine_, made.arguments));
    const auto& pd = made.forward->description;
    const float* packed = packed_weights(weights, derived_from<Packed>(weights).forward,
                                         made.plain_weights, pd.weights_desc());
    const ScratchMemory scratch(allocator_, pd.scratchpad_desc().get_size());
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, memory(made.arguments.x, x)},
        {DNNL_ARG_WEIGHTS, memory(pd.weights_desc(), packed)},
        {DNNL_ARG_DST, memory(made.arguments.y, y)},
        {DNNL_ARG_SCRATCHPAD,
         memory(pd.scratchpad_desc(), static_cast<const float*>(scratch.get()))}};
    if (bias_or_null != nullptr) {
      arguments[DNNL_ARG_BIAS] = memory(made.arguments.bias, bias_or_null);
    }
    made.forward->primitive.execute(stream_, arguments);
  });
}

void Convolutions::backward_data(const Conv2dGeometry& geometry, const float* dy,
                                 const WeightsRef& weights, float* dx) {
  if (geometry.n == 0) return;
  guarded("conv2d backward", geometry, [&] {
    Plan& made = plan(geometry, false);
    if (!made.backward_data) {
      made.backward_data.emplace(describe_backward_data(engine_, made.arguments));
    }
    const auto& pd = made.backward_data->description;
    const float* packed = packed_weights(weights, derived_from<Packed>(weights).backward_data,
                                         made.plain_weights, pd.weights_desc());
    const ScratchMemory scratch(allocator_, pd.scratchpad_desc().get_size());
    made.backward_data->primitive.execute(
        stream_, {{DNNL_ARG_DIFF_DST, memory(made.arguments.y, dy)},
                  {DNNL_ARG_WEIGHTS, memory(pd.weights_desc(), packed)},
                  {DNNL_ARG_DIFF_SRC, memory(made.arguments.x, dx)},
                  {DNNL_ARG_SCRATCHPAD,
                   memory(pd.scratchpad_desc(), static_cast<const float*>(scratch.get()))}});
  });
}

void Convolutions::backward_weights(const Conv2dGeometry& geometry, const float* x, const float* dy,
                                    float* dw, float* db_or_null) {
  if (geometry.n == 0) return;
  guarded("conv2d backward of the weights", geometry, [&] {
    Plan& made = plan(geometry, db_or_null != nullptr);
    if (!made.backward_weights) {
      made.backward_weights.emplace(describe_backward_weights(engine_, made.arguments));
    }
    const auto& pd = made.backward_weights->description;
    const ScratchMemory scratch(allocator_, pd.scratchpad_desc().get_size());
    const ScratchMemory weights_scratch(allocator_, pd.diff_weights_desc().get_size());
    dnnl::memory packed =
        memory(pd.diff_weights_desc(), static_cast<const float*>(weights_scratch.get()));
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, memory(made.arguments.x, x)},
        {DNNL_ARG_DIFF_DST, memory(made.arguments.y, dy)},
        {DNNL_ARG_DIFF_WEIGHTS, packed},
        {DNNL_ARG_SCRATCHPAD,
         memory(pd.scratchpad_desc(), static_cast<const float*>(scratch.get()))}};
    const std::size_t bias_bytes =
        db_or_null != nullptr ? static_cast<std::size_t>(geometry.out) * sizeof(float) : 0;
    const ScratchMemory bias(allocator_, bias_bytes);
    const auto* bias_data = static_cast<const float*>(bias.get());
    if (db_or_null != nullptr) {
      arguments[DNNL_ARG_DIFF_BIAS] = memory(made.arguments.bias, bias_data);
    }
    made.backward_weights->primitive.execute(stream_, arguments);
    dnnl::memory sum = memory(made.plain_weights, dw);
    if (!made.add_weights) {
      dnnl::post_ops adding;
      adding.append_sum(1.0F);
      dnnl::primitive_attr attributes;
      attributes.set_post_ops(adding);
      made.add_weights.emplace(dnnl::reorder::primitive_desc(packed, sum, attributes));
    }
    made.add_weights->execute(stream_, packed, sum);
    if (db_or_null != nullptr) axpy(geometry.out, 1.0F, bias_data, db_or_null);
  });
}

}  // namespace dlaunch::nn::cpu
