#include "nn/cpu/onednn.h"

#include <oneapi/dnnl/dnnl_version.h>

namespace dlaunch::nn::cpu {
namespace {

using dnnl::memory;

constexpr auto kTraining = dnnl::prop_kind::forward_training;

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

/// alpha (A B + beta / alpha C): without the fast instructions oneDNN takes what is there along in
/// the product only if that comes first.
dnnl::primitive_attr scaling_attributes(float alpha, float beta) {
  dnnl::post_ops operations;
  if (beta != 0) operations.append_sum(beta / alpha);
#if DNNL_VERSION_MAJOR >= 3
  if (alpha != 1) operations.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0.0F);
#else
  if (alpha != 1) operations.append_eltwise(1.0F, dnnl::algorithm::eltwise_linear, alpha, 0.0F);
#endif
  dnnl::primitive_attr result = attributes();
  result.set_post_ops(operations);
  return result;
}

dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const memory::desc& a,
                                             const memory::desc& b, const memory::desc& c,
                                             const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

}  // namespace

memory::data_type onednn_type(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory memory_over(const dnnl::engine& engine, const memory::desc& layout, const void* data) {
  return {layout, engine,
          const_cast<void*>(data)};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

bool computes_in(DType dtype) {
  if (dtype == DType::kF32) return true;
  if (dtype != DType::kBF16) return false;
  // Instruction sets are bit masks; those with more contain those with less.
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

dnnl::matmul::primitive_desc describe_products(const dnnl::engine& engine,
                                               const ProductDescriptor& d) {
  using tag = memory::format_tag;
  const auto factors = onednn_type(d.factors);
  const auto operand = [&](memory::dim rows, memory::dim columns, bool transposed) {
    return d.count == 1
               ? memory::desc({rows, columns}, factors, transposed ? tag::ba : tag::ab)
               : memory::desc({d.count, rows, columns}, factors, transposed ? tag::acb : tag::abc);
  };
  const auto sums = onednn_type(d.sums);
  return describe_matmul(engine, operand(d.m, d.k, d.transposed_a),
                         operand(d.k, d.n, d.transposed_b),
                         d.count == 1 ? memory::desc({d.m, d.n}, sums, tag::ab)
                                      : memory::desc({d.count, d.m, d.n}, sums, tag::abc),
                         scaling_attributes(d.alpha, d.beta));
}

#if DNNL_VERSION_MAJOR >= 3

dnnl::convolution_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                           const ConvolutionDescriptors& d) {
  return {engine, kTraining, d.algorithm, d.x,       d.weights,   d.bias,
          d.y,    d.strides, d.padding,   d.padding, attributes()};
}

dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const ConvolutionDescriptors& d) {
  return {engine,      d.algorithm, d.x,
          d.weights,   d.y,         d.strides,
          d.padding,   d.padding,   describe_forward(engine, d),
          attributes()};
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const ConvolutionDescriptors& d) {
  return {engine,    d.algorithm, d.x,       d.weights_gradient,          d.bias,      d.y,
          d.strides, d.padding,   d.padding, describe_forward(engine, d), attributes()};
}

#else

dnnl::convolution_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                           const ConvolutionDescriptors& d) {
  const dnnl::convolution_forward::desc operation(kTraining, d.algorithm, d.x, d.weights, d.bias,
                                                  d.y, d.strides, d.padding, d.padding);
  return {operation, attributes(), engine};
}

dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const ConvolutionDescriptors& d) {
  const dnnl::convolution_backward_data::desc operation(d.algorithm, d.x, d.weights, d.y, d.strides,
                                                        d.padding, d.padding);
  return {operation, attributes(), engine, describe_forward(engine, d)};
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const ConvolutionDescriptors& d) {
  const dnnl::convolution_backward_weights::desc operation(
      d.algorithm, d.x, d.weights_gradient, d.bias, d.y, d.strides, d.padding, d.padding);
  return {operation, attributes(), engine, describe_forward(engine, d)};
}

#endif

}  // namespace dlaunch::nn::cpu
