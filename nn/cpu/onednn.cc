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
