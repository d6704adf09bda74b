#include "tests/cuda_on_host/cudnn_convolution.h"

#include <bit>
#include <memory>
#include <set>

#include "tests/cuda_on_host/halves.h"

namespace dlaunch::cuda_on_host {
namespace {

constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kBackwardData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kBackwardWeights = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;

/// The attributes of an operation.
struct Names {
  cudnnBackendAttributeName_t alpha, beta, windows, x, weights, y;
};

Names names_of(cudnnBackendDescriptorType_t pass) {
  switch (pass) {
    case kForward:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case kBackwardData:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case kBackwardWeights:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    default:
      throw Refusal(CUDNN_STATUS_NOT_SUPPORTED, "not an operation that is known here");
  }
}

DType dtype_of(const CudnnObject& tensor) {
  switch (tensor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    case CUDNN_DATA_BFLOAT16:
      return DType::kBF16;
    case CUDNN_DATA_HALF:
      return DType::kF16;
    default:
      return DType::kF32;
  }
}

/// With 10 bits of mantissa, to the nearest.
void round_to_tf32(std::vector<float>& values) {
  constexpr std::uint32_t kHalf = 1U << 12;
  constexpr std::uint32_t kDropped = (1U << 13) - 1;
  for (float& value : values)
    value = std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + kHalf) & ~kDropped);
}

}  // namespace

void check_tensor(const CudnnObject& tensor) {
  const auto dimensions = tensor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  for (const std::int64_t size : dimensions) require(size > 0, "a tensor has no elements");
  const std::int64_t channels = dimensions[1];
  const std::int64_t width = dimensions[3];
  const std::int64_t height = dimensions[2];
  require(tensor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES) ==
              std::vector<std::int64_t>{height * width * channels, 1, width * channels, channels},
          "a tensor's strides are not those of NHWC");
  const auto alignment = tensor.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  require(alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(alignment)),
          "an alignment is no power of two");
}

void check_windows(const CudnnObject& windows) {
  using Numbers = std::vector<std::int64_t>;
  require(windows.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
              windows.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
                  CUDNN_CROSS_CORRELATION &&
              windows.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2 &&
              windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS) == Numbers{1, 1} &&
              windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) ==
                  windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
          "a convolution is not one of nn's");
}

HostConvolution::HostConvolution(const CudnnObject& operation) : pass(operation.type()) {
  const Names names = names_of(pass);
  const CudnnObject& windows = *operation.object(names.windows);
  const std::array<const CudnnObject*, 3> tensors{operation.object(names.x).get(),
                                                  operation.object(names.weights).get(),
                                                  operation.object(names.y).get()};
  std::array<std::vector<std::int64_t>, 3> shapes;
  dtype = dtype_of(*tensors[0]);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    uids[i] = tensors[i]->one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    alignments[i] = tensors[i]->one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    shapes[i] = tensors[i]->all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    require(dtype_of(*tensors[i]) == dtype, "tensors of an operation have different types");
  }
  require(std::set(uids.begin(), uids.end()).size() == uids.size(), "tensors share an id");

  const auto strides = windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto padding = windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto& [x, weights, y] = shapes;
  geometry = {x[0],       x[2],       x[3],       x[1],       weights[0], weights[2],
              weights[3], strides[0], strides[1], padding[0], padding[1]};
  require(weights[1] == x[1] &&
              y == std::vector{x[0], weights[0], geometry.out_height(), geometry.out_width()},
          "shapes do not fit together");
  beta = operation.one<float>(names.beta);
  require(operation.one<float>(names.alpha) == 1, "alpha is not 1");
  require(beta == 0 || (beta == 1 && pass == kBackwardWeights), "a beta that nn does not need");
}

std::array<std::size_t, 3> HostConvolution::sizes() const {
  const nn::Conv2dGeometry& g = geometry;
  return {static_cast<std::size_t>(g.n * g.height * g.width * g.in),
          static_cast<std::size_t>(g.out * g.kernel_h * g.kernel_w * g.in),
          static_cast<std::size_t>(g.output().size())};
}

void HostConvolution::run(nn::Backend& cpu, const std::array<void*, 3>& tensors,
                          bool in_tf32) const {
  const std::size_t result = pass == kForward ? 2 : pass == kBackwardWeights ? 1 : 0;
  std::array<std::vector<float>, 3> wide;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (i == result && beta == 0) {
      wide[i].resize(sizes()[i]);
    } else {
      wide[i] = widened(tensors[i], dtype, sizes()[i]);
    }
    if (i != result && in_tf32) round_to_tf32(wide[i]);
  }
  auto& [x, weights, y] = wide;
  std::unique_ptr<nn::DerivedData> derived;
  switch (pass) {
    case kForward:
      cpu.conv2d(geometry, {x.data(), DType::kF32}, {weights.data(), 0, &derived}, nullptr,
                 {y.data(), DType::kF32});
      break;
    case kBackwardData:
      cpu.conv2d_backward_data(geometry, {y.data(), DType::kF32}, {weights.data(), 0, &derived},
                               {x.data(), DType::kF32});
      break;
    default:
      cpu.conv2d_backward_weights(geometry, {x.data(), DType::kF32}, {y.data(), DType::kF32},
                                  weights.data(), nullptr);
  }
  narrow(wide[result], tensors[result], dtype);
}

}  // namespace dlaunch::cuda_on_host
