#include "nn/cpu/conv2d.h"

#include <optional>
#include <string>
#include <utility>

#include "nn/core/error.h"
#include "nn/core/widened.h"
#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/weight_gradient_matmul.h"

namespace dlaunch::nn::cpu {
namespace {

using dnnl::memory;
using tag = dnnl::memory::format_tag;

// More geometries than any network has; reached only by programs that go through many shapes.
constexpr std::size_t kMostPlans = 512;

constexpr std::int64_t kBlock = 16;  // channels of the layout that Winograd's algorithm needs

memory::desc f32(const memory::dims& dims, tag layout) {
  return {dims, memory::data_type::f32, layout};
}

ConvolutionDescriptors descriptors(const Conv2dGeometry& g, DType dtype, bool bias, tag layout) {
  const memory::dims weights{g.out, g.in, g.kernel_h, g.kernel_w};
  const auto type = onednn_type(dtype);
  return {.x = {{g.n, g.in, g.height, g.width}, type, layout},
          .weights = {weights, type, tag::any},
          .weights_gradient = f32(weights, tag::any),
          .bias = bias ? f32({g.out}, tag::x) : memory::desc(),
          .y = {{g.n, g.out, g.out_height(), g.out_width()}, type, layout},
          .strides = {g.stride_h, g.stride_w},
          .padding = {g.pad_h, g.pad_w}};
}

std::optional<ConvolutionDescriptors> winograd_descriptors(const Conv2dGeometry& g, DType dtype,
                                                           bool bias) {
  if (dtype != DType::kF32 || g.kernel_h != 3 || g.kernel_w != 3 || g.stride_h != 1 ||
      g.stride_w != 1 || g.in % kBlock != 0 || g.out % kBlock != 0) {
    return {};
  }
  ConvolutionDescriptors d = descriptors(g, dtype, bias, tag::nChw16c);
  d.algorithm = dnnl::algorithm::convolution_winograd;
  return d;
}

// Two of oneDNN 2.6's kernels for bf16 compute something else, found by comparison with f64 over
// thousands of shapes. They are not used, on whichever CPU and by whichever version.

/// For an odd number of 1x1 filters, with some numbers of pixels: most of the data's gradient.
bool has_wrong_data_gradient(const Conv2dGeometry& g, DType dtype) {
  return dtype == DType::kBF16 && g.kernel_h == 1 && g.kernel_w == 1 && g.out % 2 != 0;
}

/// Where rows are shorter than the stride: it reads memory that nobody has written.
bool has_wrong_weights_gradient(const Conv2dGeometry& g, DType dtype) {
  return dtype == DType::kBF16 && g.width < g.stride_w;
}

std::string describe(const Conv2dGeometry& g) {
  return "input " + g.input().to_string() + ", weights " +
         Shape{g.out, g.kernel_h, g.kernel_w, g.in}.to_string() + ", stride " +
         std::to_string(g.stride_h) + ", padding " + std::to_string(g.pad_h);
}

}  // namespace

// What oneDNN made for one geometry, each part when it was first needed.
struct Convolutions::Plan {
  Plan(const Key& key, ConvolutionAlgorithm algorithm)
      : direct(descriptors(key.geometry, key.dtype, key.bias, tag::nhwc)),
        plain_weights(
            f32({key.geometry.out, key.geometry.in, key.geometry.kernel_h, key.geometry.kernel_w},
                tag::ohwi)) {
    if (algorithm != ConvolutionAlgorithm::kWinograd) return;
    winograd = winograd_descriptors(key.geometry, key.dtype, key.bias);
    own_winograd = winograd_applies(key.geometry, key.dtype);
  }

  /// The primitive in `place`, made now if it was not yet; oneDNN does not have every algorithm for
  /// every pass and shape.
  template <typename Primitive, typename Describe>
  Prepared<Primitive>& prepared(std::optional<Prepared<Primitive>>& place,
                                const dnnl::engine& engine, const Describe& describe) const {
    if (place) return *place;
    if (winograd) {
      try {
        return place.emplace(describe(engine, *winograd));
      } catch (const dnnl::error&) {  // NOLINT(bugprone-empty-catch): the direct one will do
      }
    }
    return place.emplace(describe(engine, direct));
  }

  ConvolutionDescriptors direct;
  std::optional<ConvolutionDescriptors> winograd;
  memory::desc plain_weights;
  std::optional<Prepared<dnnl::convolution_forward>> forward;
  std::optional<Prepared<dnnl::convolution_backward_data>> backward_data;
  std::optional<Prepared<dnnl::convolution_backward_weights>> backward_weights;
  std::optional<WeightGradientMatmul> weights_by_matmul;
  bool own_winograd = false;  // then, instead of all these:
  std::optional<WinogradConvolution> winograd_forward;
  std::optional<WinogradConvolution> winograd_backward_data;
  std::optional<WinogradWeightGradient> winograd_backward_weights;
  std::optional<dnnl::reorder> add_weights;  // from oneDNN's layout onto OHWI, adding
};

// Activations in the layout that a primitive wants: the caller's own memory if it is that already,
// else a copy.
class Convolutions::Staged {
 public:
  Staged(Convolutions& owner, const memory::desc& plain, const memory::desc& wanted,
         const void* data)
      : owner_(owner), plain_(owner.memory(plain, data)), used_(plain_) {
    if (wanted == plain) return;
    copy_.emplace(owner.allocator_, wanted.get_size());
    used_ = owner.memory(wanted, copy_->get());
  }

  const dnnl::memory& filled() {
    if (copy_) dnnl::reorder(plain_, used_).execute(owner_.stream_, plain_, used_);
    return used_;
  }
  const dnnl::memory& to_fill() const { return used_; }
  void drain() {
    if (copy_) dnnl::reorder(used_, plain_).execute(owner_.stream_, used_, plain_);
  }

 private:
  Convolutions& owner_;
  dnnl::memory plain_;
  dnnl::memory used_;
  std::optional<ScratchMemory> copy_;
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

Convolutions::Convolutions(CachingAllocator& allocator, ConvolutionAlgorithm algorithm)
    : allocator_(allocator),
      algorithm_(algorithm),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_) {}

Convolutions::~Convolutions() = default;

std::size_t Convolutions::KeyHash::operator()(const Key& key) const {
  const Conv2dGeometry& g = key.geometry;
  std::size_t hash = 2 * static_cast<std::size_t>(key.dtype) + (key.bias ? 1 : 0);
  for (const std::int64_t value : {g.n, g.height, g.width, g.in, g.out, g.kernel_h, g.kernel_w,
                                   g.stride_h, g.stride_w, g.pad_h, g.pad_w}) {
    hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(value);
  }
  return hash ^ (hash >> 29);
}

Convolutions::Plan& Convolutions::plan(const Conv2dGeometry& geometry, DType dtype, bool bias) {
  const Key key{geometry, dtype, bias};
  if (const auto known = plans_.find(key); known != plans_.end()) return *known->second;
  if (plans_.size() >= kMostPlans) plans_.clear();
  return *plans_.emplace(key, std::make_unique<Plan>(key, algorithm_)).first->second;
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

dnnl::memory Convolutions::memory(const dnnl::memory::desc& layout, const void* data) const {
  return memory_over(engine_, layout, data);
}

/// Memory for the weights in another form, `layout`, filled by pack(memory) if they have changed.
template <typename Pack>
dnnl::memory Convolutions::packed_weights(const WeightsRef& weights, Packed& packed,
                                          const dnnl::memory::desc& layout, const Pack& pack) {
  const bool known = packed.data && packed.layout == layout;
  if (!known) {
    packed.data = std::make_unique<ScratchMemory>(allocator_, layout.get_size());
    packed.layout = layout;
  }
  dnnl::memory to = memory(layout, packed.data->get());
  if (!known || packed.version != weights.version) {
    pack(to);
    packed.version = weights.version;
  }
  return to;
}

dnnl::memory Convolutions::reordered_weights(const WeightsRef& weights, Packed& packed,
                                             const dnnl::memory::desc& plain,
                                             const dnnl::memory::desc& wanted) {
  return packed_weights(weights, packed, wanted, [&](dnnl::memory& to) {
    dnnl::memory from = memory(plain, weights.data);
    dnnl::reorder(from, to).execute(stream_, from, to);
  });
}

const BFloat16* Convolutions::winograd_filters(const Conv2dGeometry& geometry,
                                               const WeightsRef& weights) {
  const memory::desc layout({geometry.out, geometry.in, 4, 4}, memory::data_type::bf16, tag::hwio);
  const dnnl::memory filters = packed_weights(
      weights, derived_from<Packed>(weights).forward, layout, [&](const dnnl::memory& to) {
        transform_winograd_filters(geometry, weights.data,
                                   static_cast<BFloat16*>(to.get_data_handle()));
      });
  return static_cast<const BFloat16*>(filters.get_data_handle());
}

/// db[c] += the sum of dy[..., c]; an image at a time, in f32.
void Convolutions::add_bias_gradient(const Conv2dGeometry& geometry, ConstArrayRef dy, float* db) {
  const std::int64_t pixels = geometry.out_height() * geometry.out_width();
  const std::int64_t count = pixels * geometry.out;
  const ScratchMemory image(allocator_, static_cast<std::size_t>(count) * sizeof(float));
  auto* const values = static_cast<float*>(image.get());
  for (std::int64_t n = 0; n < geometry.n; ++n) {
    convert(count, {as<BFloat16>(dy) + n * count, dy.dtype}, {values, DType::kF32});
    accumulate_column_sums(pixels, geometry.out, values, db);
  }
}

void Convolutions::forward(const Conv2dGeometry& geometry, ConstArrayRef x,
                           const WeightsRef& weights, const float* bias_or_null, ArrayRef y) {
  if (geometry.n == 0) return;
  if (!computes_in(x.dtype)) {
    const Widened result(allocator_, convert, geometry.output().size());
    forward(geometry, Widened(allocator_, convert, geometry.input().size(), x).array(), weights,
            bias_or_null, result.array());
    return result.narrow(y);
  }
  guarded("conv2d", geometry, [&] {
    Plan& made = plan(geometry, x.dtype, bias_or_null != nullptr);
    if (made.own_winograd) {
      auto& pass = made.winograd_forward;
      if (!pass) pass.emplace(engine_, geometry, WinogradConvolution::Pass::kForward);
      pass->run(context(), as<BFloat16>(x), winograd_filters(geometry, weights), bias_or_null,
                as<BFloat16>(y));
      return;
    }
    const auto& convolution = made.prepared(made.forward, engine_, describe_forward);
    const auto& pd = convolution.description;
    Staged input(*this, made.direct.x, pd.src_desc(), x.data);
    Staged output(*this, made.direct.y, pd.dst_desc(), y.data);
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, input.filled()},
        {DNNL_ARG_WEIGHTS, reordered_weights(weights, derived_from<Packed>(weights).forward,
                                             made.plain_weights, pd.weights_desc())},
        {DNNL_ARG_DST, output.to_fill()}};
    if (bias_or_null != nullptr) {
      arguments[DNNL_ARG_BIAS] = memory(made.direct.bias, bias_or_null);
    }
    convolution.execute(context(), arguments);
    output.drain();
  });
}

void Convolutions::backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy,
                                 const WeightsRef& weights, ArrayRef dx) {
  if (geometry.n == 0) return;
  if (!computes_in(dy.dtype) || has_wrong_data_gradient(geometry, dy.dtype)) {
    const Widened result(allocator_, convert, geometry.input().size());
    backward_data(geometry, Widened(allocator_, convert, geometry.output().size(), dy).array(),
                  weights, result.array());
    return result.narrow(dx);
  }
  guarded("conv2d backward", geometry, [&] {
    Plan& made = plan(geometry, dy.dtype, false);
    if (made.own_winograd) {
      auto& pass = made.winograd_backward_data;
      if (!pass) pass.emplace(engine_, geometry, WinogradConvolution::Pass::kBackwardData);
      pass->run(context(), as<BFloat16>(dy), winograd_filters(geometry, weights), nullptr,
                as<BFloat16>(dx));
      return;
    }
    const auto& convolution = made.prepared(made.backward_data, engine_, describe_backward_data);
    const auto& pd = convolution.description;
    Staged gradient(*this, made.direct.y, pd.diff_dst_desc(), dy.data);
    Staged result(*this, made.direct.x, pd.diff_src_desc(), dx.data);
    convolution.execute(
        context(),
        {{DNNL_ARG_DIFF_DST, gradient.filled()},
         {DNNL_ARG_WEIGHTS, reordered_weights(weights, derived_from<Packed>(weights).backward_data,
                                              made.plain_weights, pd.weights_desc())},
         {DNNL_ARG_DIFF_SRC, result.to_fill()}});
    result.drain();
  });
}

void Convolutions::backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x,
                                    ConstArrayRef dy, float* dw, float* db_or_null) {
  if (geometry.n == 0) return;
  if (!computes_in(x.dtype) || has_wrong_weights_gradient(geometry, x.dtype))
    return backward_weights(
        geometry, Widened(allocator_, convert, geometry.input().size(), x).array(),
        Widened(allocator_, convert, geometry.output().size(), dy).array(), dw, db_or_null);
  guarded("conv2d backward of the weights", geometry, [&] {
    Plan& made = plan(geometry, x.dtype, db_or_null != nullptr);
    if (made.own_winograd) {
      auto& pass = made.winograd_backward_weights;
      if (!pass) pass.emplace(engine_, geometry);
      pass->run(context(), as<BFloat16>(x), as<BFloat16>(dy), dw);
      if (db_or_null != nullptr) add_bias_gradient(geometry, dy, db_or_null);
      return;
    }
    if (db_or_null == nullptr && !made.winograd && WeightGradientMatmul::pays(geometry, x.dtype)) {
      if (!made.weights_by_matmul) made.weights_by_matmul.emplace(engine_, geometry, x.dtype);
      made.weights_by_matmul->run(context(), x, dy, dw);
      return;
    }
    const auto& convolution =
        made.prepared(made.backward_weights, engine_, describe_backward_weights);
    const auto& pd = convolution.description;
    Staged input(*this, made.direct.x, pd.src_desc(), x.data);
    Staged gradient(*this, made.direct.y, pd.diff_dst_desc(), dy.data);
    const ScratchMemory weights_scratch(allocator_, pd.diff_weights_desc().get_size());
    dnnl::memory packed = memory(pd.diff_weights_desc(), weights_scratch.get());
    std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, input.filled()},
                                                    {DNNL_ARG_DIFF_DST, gradient.filled()},
                                                    {DNNL_ARG_DIFF_WEIGHTS, packed}};
    const std::size_t bias_bytes =
        db_or_null != nullptr ? static_cast<std::size_t>(geometry.out) * sizeof(float) : 0;
    const ScratchMemory bias(allocator_, bias_bytes);
    if (db_or_null != nullptr) {
      arguments[DNNL_ARG_DIFF_BIAS] = memory(made.direct.bias, bias.get());
    }
    convolution.execute(context(), arguments);
    dnnl::memory sum = memory(made.plain_weights, dw);
    if (!made.add_weights) {
      dnnl::post_ops adding;
      adding.append_sum(1.0F);
      dnnl::primitive_attr attributes;
      attributes.set_post_ops(adding);
      made.add_weights.emplace(dnnl::reorder::primitive_desc(packed, sum, attributes));
    }
    made.add_weights->execute(stream_, packed, sum);
    if (db_or_null != nullptr) {
      axpy(geometry.out, 1.0F, static_cast<const float*>(bias.get()), db_or_null);
    }
  });
}

}  // namespace dlaunch::nn::cpu
