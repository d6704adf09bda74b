// The functions of include/cudnn.h. The heuristics name an algorithm that is not deterministic
// first, which must not be taken, and have none for halves with an odd number of channels.
#include "cudnn.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "nn/core/backend.h"
#include "nn/cpu/cpu_backend.h"
#include "tests/cuda_on_host/halves.h"
#include "tests/cuda_on_host/queue.h"

// NOLINTBEGIN(readability-identifier-naming): the names are cuDNN's

struct cudnnContext {
  cudaStream_t stream = nullptr;
  std::shared_ptr<dlaunch::nn::Backend> cpu = dlaunch::nn::make_cpu_backend();
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  int n, channels, height, width;
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  int out, in, height, width;
};
struct cudnnConvolutionStruct {
  int pad_h, pad_w, stride_h, stride_w;
};

namespace dlaunch::cuda_on_host {
namespace {

using nn::Conv2dGeometry;

constexpr int kTaken = 1;  // the algorithm that can be
constexpr std::size_t kWorkspace = 1000;

/// A convolution, and whether its descriptors fit together.
struct Shapes {
  Shapes(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnTensorStruct& y,
         const cudnnConvolutionStruct& c)
      : geometry{x.n,     x.height,   x.width,    x.channels, w.out,  w.height,
                 w.width, c.stride_h, c.stride_w, c.pad_h,    c.pad_w},
        dtype(x.type == CUDNN_DATA_BFLOAT16 ? DType::kBF16
              : x.type == CUDNN_DATA_HALF   ? DType::kF16
                                            : DType::kF32),
        fit(x.type == w.type && x.type == y.type && w.in == x.channels && y.n == x.n &&
            y.channels == w.out && y.height == geometry.out_height() &&
            y.width == geometry.out_width()) {}

  std::size_t inputs() const {
    return size(geometry.n, geometry.height, geometry.width, geometry.in);
  }
  std::size_t weights() const {
    return size(geometry.out, geometry.kernel_h, geometry.kernel_w, geometry.in);
  }
  std::size_t outputs() const { return static_cast<std::size_t>(geometry.output().size()); }
  bool supported() const {
    return dtype == DType::kF32 || (geometry.in % 2 == 0 && geometry.out % 2 == 0);
  }

  Conv2dGeometry geometry;
  DType dtype;
  bool fit;

 private:
  static std::size_t size(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return static_cast<std::size_t>(a * b * c * d);
  }
};

template <typename Performance>
cudnnStatus_t find(const Shapes& shapes, int most, int* count, Performance* found) {
  if (!shapes.fit || most < 2) return CUDNN_STATUS_BAD_PARAM;
  if (!shapes.supported()) return CUDNN_STATUS_NOT_SUPPORTED;
  *count = 2;
  for (int i = 0; i < *count; ++i)
    found[i] = {.algo = static_cast<decltype(found->algo)>(i),
                .status = CUDNN_STATUS_SUCCESS,
                .determinism = i == kTaken ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
                .mathType = CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t ask_workspace(int algorithm, std::size_t* bytes) {
  *bytes = kWorkspace;
  return algorithm == kTaken ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/// Queues `pass`, after a check of what all passes have in common. The workspace is written to.
cudnnStatus_t run(cudnnHandle_t handle, const Shapes& shapes, int algorithm, const void* alpha,
                  void* workspace, std::size_t workspace_bytes, Work pass) {
  if (!shapes.fit || !shapes.supported() || algorithm != kTaken || workspace_bytes < kWorkspace ||
      *static_cast<const float*>(alpha) != 1)
    return CUDNN_STATUS_BAD_PARAM;
  queue().add(handle->stream, [=, pass = std::move(pass)] {
    std::memset(workspace, 0xff, workspace_bytes);
    pass();
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace dlaunch::cuda_on_host

using dlaunch::cuda_on_host::Shapes;

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS     ? "success"
         : status == CUDNN_STATUS_BAD_PARAM ? "a bad parameter"
                                            : "not supported";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  *descriptor = new cudnnTensorStruct{};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnTensorFormat_t /*format*/, cudnnDataType_t type,
                                         int n, int channels, int height, int width) {
  *descriptor = {type, n, channels, height, width};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  *descriptor = new cudnnFilterStruct{};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t /*format*/, int out, int in,
                                         int height, int width) {
  *descriptor = {type, out, in, height, width};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  *descriptor = new cudnnConvolutionStruct{};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t /*mode*/,
                                              cudnnDataType_t compute_type) {
  *descriptor = {pad_h, pad_w, stride_h, stride_w};
  return dilation_h == 1 && dilation_w == 1 && compute_type == CUDNN_DATA_FLOAT
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t /*descriptor*/,
                                          cudnnMathType_t /*math*/) {
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t /*handle*/, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t weights,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, int most, int* count,
    cudnnConvolutionFwdAlgoPerf_t* found) {
  return dlaunch::cuda_on_host::find(Shapes(*x, *weights, *y, *convolution), most, count, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t /*handle*/, cudnnFilterDescriptor_t weights, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx, int most, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return dlaunch::cuda_on_host::find(Shapes(*dx, *weights, *dy, *convolution), most, count, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t /*handle*/, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw, int most, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return dlaunch::cuda_on_host::find(Shapes(*x, *dw, *dy, *convolution), most, count, found);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t /*handle*/, cudnnTensorDescriptor_t /*x*/, cudnnFilterDescriptor_t /*weights*/,
    cudnnConvolutionDescriptor_t /*convolution*/, cudnnTensorDescriptor_t /*y*/,
    cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
  return dlaunch::cuda_on_host::ask_workspace(algorithm, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t /*handle*/, cudnnFilterDescriptor_t /*weights*/, cudnnTensorDescriptor_t /*dy*/,
    cudnnConvolutionDescriptor_t /*convolution*/, cudnnTensorDescriptor_t /*dx*/,
    cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
  return dlaunch::cuda_on_host::ask_workspace(algorithm, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t /*handle*/, cudnnTensorDescriptor_t /*x*/, cudnnTensorDescriptor_t /*dy*/,
    cudnnConvolutionDescriptor_t /*convolution*/, cudnnFilterDescriptor_t /*dw*/,
    cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
  return dlaunch::cuda_on_host::ask_workspace(algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x_shape, const void* x,
                                      cudnnFilterDescriptor_t weights_shape, const void* weights,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      std::size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t y_shape, void* y) {
  using namespace dlaunch::cuda_on_host;  // NOLINT(google-build-using-namespace)
  if (*static_cast<const float*>(beta) != 0) return CUDNN_STATUS_NOT_SUPPORTED;
  const Shapes shapes(*x_shape, *weights_shape, *y_shape, *convolution);
  return run(handle, shapes, algorithm, alpha, workspace, workspace_bytes, [=, cpu = handle->cpu] {
    const auto wide_x = widened(x, shapes.dtype, shapes.inputs());
    const auto wide_weights = widened(weights, shapes.dtype, shapes.weights());
    std::vector<float> wide_y(shapes.outputs());
    std::unique_ptr<dlaunch::nn::DerivedData> derived;
    cpu->conv2d(shapes.geometry, {wide_x.data(), dlaunch::DType::kF32},
                {wide_weights.data(), 0, &derived}, nullptr, {wide_y.data(), dlaunch::DType::kF32});
    narrow(wide_y, y, shapes.dtype);
  });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t weights_shape,
                                           const void* weights, cudnnTensorDescriptor_t dy_shape,
                                           const void* dy, cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx_shape, void* dx) {
  using namespace dlaunch::cuda_on_host;  // NOLINT(google-build-using-namespace)
  if (*static_cast<const float*>(beta) != 0) return CUDNN_STATUS_NOT_SUPPORTED;
  const Shapes shapes(*dx_shape, *weights_shape, *dy_shape, *convolution);
  return run(handle, shapes, algorithm, alpha, workspace, workspace_bytes, [=, cpu = handle->cpu] {
    const auto wide_dy = widened(dy, shapes.dtype, shapes.outputs());
    const auto wide_weights = widened(weights, shapes.dtype, shapes.weights());
    std::vector<float> wide_dx(shapes.inputs());
    std::unique_ptr<dlaunch::nn::DerivedData> derived;
    cpu->conv2d_backward_data(shapes.geometry, {wide_dy.data(), dlaunch::DType::kF32},
                              {wide_weights.data(), 0, &derived},
                              {wide_dx.data(), dlaunch::DType::kF32});
    narrow(wide_dx, dx, shapes.dtype);
  });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_shape, const void* x,
    cudnnTensorDescriptor_t dy_shape, const void* dy, cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace, std::size_t workspace_bytes,
    const void* beta, cudnnFilterDescriptor_t dw_shape, void* dw) {
  using namespace dlaunch::cuda_on_host;  // NOLINT(google-build-using-namespace)
  const float kept = *static_cast<const float*>(beta);
  if (kept != 0 && kept != 1) return CUDNN_STATUS_NOT_SUPPORTED;
  const Shapes shapes(*x_shape, *dw_shape, *dy_shape, *convolution);
  return run(handle, shapes, algorithm, alpha, workspace, workspace_bytes, [=, cpu = handle->cpu] {
    const auto wide_x = widened(x, shapes.dtype, shapes.inputs());
    const auto wide_dy = widened(dy, shapes.dtype, shapes.outputs());
    auto wide_dw = kept == 0 ? std::vector<float>(shapes.weights())
                             : widened(dw, shapes.dtype, shapes.weights());
    cpu->conv2d_backward_weights(shapes.geometry, {wide_x.data(), dlaunch::DType::kF32},
                                 {wide_dy.data(), dlaunch::DType::kF32}, wide_dw.data(), nullptr);
    narrow(wide_dw, dw, shapes.dtype);
  });
}

// NOLINTEND(readability-identifier-naming)
