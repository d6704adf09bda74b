#include "nn/cpu/onednn.h"

#include <oneapi/dnnl/dnnl_version.h>

namespace dlaunch::nn::cpu {
namespace {

constexpr auto kTraining = dnnl::prop_kind::forward_training;

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

}  // namespace

bool computes_in(DType dtype) {
  if (dtype == DType::kF32) return true;
  if (dtype != DType::kBF16) return false;
  // Instruction sets are bit masks; those with more contain those with less.
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

dnnl::matmul::primitive_desc describe_adding_product(const dnnl::engine& engine, DType dtype,
                                                     dnnl::memory::dim m, dnnl::memory::dim n,
                                                     dnnl::memory::dim k) {
  using dnnl::memory;
  const auto type = dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc a({m, k}, type, memory::format_tag::ba);
  const memory::desc b({k, n}, type, memory::format_tag::ab);
  const memory::desc c({m, n}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::post_ops adding;
  adding.append_sum(1.0F);
  dnnl::primitive_attr adding_attributes = attributes();
  adding_attributes.set_post_ops(adding);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, adding_attributes};
#else
  return {dnnl::matmul::desc(a, b, c), adding_attributes, engine};
#endif
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
