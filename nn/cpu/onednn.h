// What differs between oneDNN 2.x and 3.x: the making of primitives; and how they are run, with
// scratchpads out of the allocator.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "nn/core/caching_allocator.h"
#include "runtime/base/dtype.h"

namespace dlaunch::nn::cpu {

/// What a primitive needs to run, for the time of a call.
struct OneDnnContext {
  const dnnl::engine& engine;
  dnnl::stream& stream;
  CachingAllocator& allocator;
};

/// A convolution's arguments as oneDNN describes them. Dimensions are logical: images [N, C, H, W],
/// weights [out, in, h, w]; the layouts are in the descriptors. `bias` is empty for none.
struct ConvolutionDescriptors {
  dnnl::algorithm algorithm = dnnl::algorithm::convolution_direct;
  dnnl::memory::desc x;
  dnnl::memory::desc weights;
  dnnl::memory::desc weights_gradient;
  dnnl::memory::desc bias;
  dnnl::memory::desc y;
  dnnl::memory::dims strides;
  dnnl::memory::dims padding;
};

dnnl::memory::data_type onednn_type(DType dtype);  // of f32 or bf16

/// oneDNN takes inputs through the same type as outputs; it does not write to them.
dnnl::memory memory_over(const dnnl::engine& engine, const dnnl::memory::desc& layout,
                         const void* data);

/// A primitive and its description.
template <typename Primitive>
struct Prepared {
  using Description = typename Primitive::primitive_desc;

  explicit Prepared(Description d) : description(std::move(d)), primitive(description) {}

  /// Runs it, with a scratchpad of the size that this very primitive wants: those that differ in a
  /// sum alone may want different ones.
  void execute(OneDnnContext context, std::unordered_map<int, dnnl::memory> arguments) const {
    const dnnl::memory::desc layout = description.scratchpad_desc();
    const ScratchMemory scratch(context.allocator, layout.get_size());
    arguments[DNNL_ARG_SCRATCHPAD] = memory_over(context.engine, layout, scratch.get());
    primitive.execute(context.stream, arguments);
  }

  Description description;
  Primitive primitive;
};

/// Whether this CPU multiplies in this type (bf16: AVX512-BF16 or AMX) with the oneDNN at hand.
bool computes_in(DType dtype);

/// These throw dnnl::error if oneDNN has no implementation.
dnnl::convolution_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                           const ConvolutionDescriptors& d);
dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const ConvolutionDescriptors& d);
dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const ConvolutionDescriptors& d);

/// C = alpha A B + beta C for `count` pairs with A [m, k], B [k, n] and C [m, n], each dense and in
/// order. Transposed operands are stored as their transposes.
struct ProductDescriptor {
  dnnl::memory::dim count, m, n, k;
  bool transposed_a = false, transposed_b = false;
  float alpha = 1;  // not 0
  float beta = 0;
  DType factors = DType::kBF16;  // of A and B
  DType sums = DType::kF32;      // of C
  friend bool operator==(const ProductDescriptor&, const ProductDescriptor&) = default;
};
dnnl::matmul::primitive_desc describe_products(const dnnl::engine& engine,
                                               const ProductDescriptor& d);

}  // namespace dlaunch::nn::cpu
