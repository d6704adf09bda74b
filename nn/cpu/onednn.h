// What differs between oneDNN 2.x and 3.x: the making of convolution primitives. Algorithms are
// direct only (no Winograd: fp32 means fp32); the scratchpad is the caller's memory.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace dlaunch::nn::cpu {

/// A convolution's arguments as oneDNN describes them. Dimensions are logical: images [N, C, H, W],
/// weights [out, in, h, w]; the layouts are in the descriptors. `bias` is empty for none.
struct ConvolutionDescriptors {
  dnnl::memory::desc x;
  dnnl::memory::desc weights;
  dnnl::memory::desc bias;
  dnnl::memory::desc y;
  dnnl::memory::dims strides;
  dnnl::memory::dims padding;
};

/// These throw dnnl::error if oneDNN has no implementation.
dnnl::convolution_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                           const ConvolutionDescriptors& d);
dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const ConvolutionDescriptors& d);
dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const ConvolutionDescriptors& d);

}  // namespace dlaunch::nn::cpu
