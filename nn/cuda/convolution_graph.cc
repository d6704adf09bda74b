#include "nn/cuda/convolution_graph.h"

#include <array>

namespace dlaunch::nn::cuda {
namespace {

const char* name_of(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward:
      return "conv2d";
    case ConvolutionPass::kBackwardData:
      return "conv2d backward";
    default:
      return "conv2d backward of the weights";
  }
}

cudnnDataType_t type_of(DType dtype) {
  if (dtype == DType::kF16) return CUDNN_DATA_HALF;
  return dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// Of this shape, [n, height, width, channels]; weights are [out, height, width, in].
CudnnDescriptor make_tensor(ConvolutionTensor which, DType dtype,
                            const std::array<std::int64_t, 4>& shape) {
  const auto [n, height, width, channels] = shape;
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t{which});
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment);
  // cuDNN names channels second, wherever they lie.
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::array{n, channels, height, width});
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES,
             std::array{height * width * channels, std::int64_t{1}, width * channels, channels});
  tensor.finalize();
  return tensor;
}

CudnnDescriptor make_windows(const Conv2dGeometry& g) {
  constexpr std::int64_t kSpatialDimensions = 2;
  const std::array<std::int64_t, kSpatialDimensions> padding{g.pad_h, g.pad_w};
  CudnnDescriptor windows(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  windows.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  windows.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  windows.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kSpatialDimensions);
  windows.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding);
  windows.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
  windows.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::array{g.stride_h, g.stride_w});
  windows.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::array{std::int64_t{1}, std::int64_t{1}});
  windows.finalize();
  return windows;
}

/// The operation of a pass and its attributes.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t windows, first, second, result, alpha, beta;
};

Names names_of(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvolutionPass::kBackwardData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

/// result = the convolution + (accumulates() ? result : 0)
CudnnDescriptor make_operation(const Convolution& convolution) {
  using Dimensions = std::array<std::int64_t, 4>;
  const Conv2dGeometry& g = convolution.geometry;
  const Dimensions input{g.n, g.height, g.width, g.in};
  const Dimensions weights{g.out, g.kernel_h, g.kernel_w, g.in};
  const Dimensions output{g.n, g.out_height(), g.out_width(), g.out};
  const bool forward = convolution.pass == ConvolutionPass::kForward;
  const bool to_weights = convolution.pass == ConvolutionPass::kBackwardWeights;
  const Dimensions& first = forward || to_weights ? input : output;
  const Dimensions& second = to_weights ? output : weights;
  const Dimensions& result = forward ? output : to_weights ? weights : input;

  const Names names = names_of(convolution.pass);
  CudnnDescriptor operation(names.operation);
  operation.set(names.windows, make_windows(g));
  operation.set(names.first, make_tensor(kFirstTensor, convolution.dtype, first));
  operation.set(names.second, make_tensor(kSecondTensor, convolution.dtype, second));
  operation.set(names.result, make_tensor(kResultTensor, convolution.dtype, result));
  operation.set(names.alpha, 1.0F);
  operation.set(names.beta, convolution.accumulates() ? 1.0F : 0.0F);
  operation.finalize();
  return operation;
}

}  // namespace

std::string Convolution::describe() const {
  const Conv2dGeometry& g = geometry;
  return std::string(name_of(pass)) + " of input " + g.input().to_string() + ", weights " +
         Shape{g.out, g.kernel_h, g.kernel_w, g.in}.to_string() + ", stride " +
         std::to_string(g.stride_h) + ", padding " + std::to_string(g.pad_h) + ", " +
         std::string(to_string(dtype));
}

CudnnDescriptor make_operation_graph(cudnnHandle_t handle, const Convolution& convolution) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, make_operation(convolution));
  graph.finalize();
  return graph;
}

}  // namespace dlaunch::nn::cuda
