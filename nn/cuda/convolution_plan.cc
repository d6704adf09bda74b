#include "nn/cuda/convolution_plan.h"

#include <array>
#include <span>

#include "nn/cuda/check.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr int kMostAlgorithms = 16;  // cuDNN has eight for a pass
constexpr const char* kForward = "conv2d";
constexpr const char* kBackwardData = "conv2d backward";
constexpr const char* kBackwardWeights = "conv2d backward of the weights";

cudnnDataType_t type_of(DType dtype) {
  if (dtype == DType::kF16) return CUDNN_DATA_HALF;
  return dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// What the heuristics are asked for.
cudnnMathType_t wanted_math(DType dtype, bool tf32) {
  if (dtype != DType::kF32) return CUDNN_TENSOR_OP_MATH;
  return tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

/// Of the `count` algorithms that cuDNN has found, best first, the first one that gives the same
/// bits every time and whose workspace can be asked for; none if there is none.
/// `ask(algorithm, math, bytes)` asks for it.
template <typename Found, typename AskWorkspace>
auto choose(const std::array<Found, kMostAlgorithms>& found, int count,
            const ConvolutionShapes& shapes, bool tf32, const AskWorkspace& ask) {
  std::optional<ChosenAlgorithm<decltype(Found::algo)>> chosen;
  for (const Found& one : std::span(found).first(static_cast<std::size_t>(count))) {
    if (one.status != CUDNN_STATUS_SUCCESS || one.determinism != CUDNN_DETERMINISTIC) continue;
    chosen.emplace();
    chosen->algorithm = one.algo;
    // What comes back may allow more than what was asked for.
    chosen->math = shapes.dtype() == DType::kF32 && !tf32 ? CUDNN_FMA_MATH : one.mathType;
    if (ask(chosen->algorithm, chosen->math, &chosen->workspace) == CUDNN_STATUS_SUCCESS)
      return chosen;
    chosen.reset();
  }
  return chosen;
}

/// Whether the heuristics know anything at all. Throws Error if they failed for another reason.
bool has_found(cudnnStatus_t status, const std::string& what) {
  // A code for each of the things that may be missing: the shape, the layout, the type, ...
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  check(status, what);
  return true;
}

}  // namespace

ConvolutionShapes::ConvolutionShapes(const Conv2dGeometry& geometry, DType dtype)
    : geometry_(geometry), dtype_(dtype) {
  try {
    make();
  } catch (...) {
    destroy();
    throw;
  }
}

ConvolutionShapes::~ConvolutionShapes() {
  destroy();
}

void ConvolutionShapes::make() {
  const Conv2dGeometry& g = geometry_;
  const std::string what = describe(kForward);
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  check(cudnnCreateTensorDescriptor(&x_), what);
  check(cudnnCreateTensorDescriptor(&y_), what);
  check(cudnnCreateFilterDescriptor(&weights_), what);
  check(cudnnCreateConvolutionDescriptor(&convolution_), what);
  check(cudnnSetTensor4dDescriptor(x_, CUDNN_TENSOR_NHWC, type_of(dtype_), number(g.n),
                                   number(g.in), number(g.height), number(g.width)),
        what);
  check(cudnnSetTensor4dDescriptor(y_, CUDNN_TENSOR_NHWC, type_of(dtype_), number(g.n),
                                   number(g.out), number(g.out_height()), number(g.out_width())),
        what);
  check(cudnnSetFilter4dDescriptor(weights_, type_of(dtype_), CUDNN_TENSOR_NHWC, number(g.out),
                                   number(g.in), number(g.kernel_h), number(g.kernel_w)),
        what);
  check(cudnnSetConvolution2dDescriptor(convolution_, number(g.pad_h), number(g.pad_w),
                                        number(g.stride_h), number(g.stride_w), 1, 1,
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        what);
}

void ConvolutionShapes::destroy() noexcept {
  if (x_ != nullptr) ignore(cudnnDestroyTensorDescriptor(x_));
  if (y_ != nullptr) ignore(cudnnDestroyTensorDescriptor(y_));
  if (weights_ != nullptr) ignore(cudnnDestroyFilterDescriptor(weights_));
  if (convolution_ != nullptr) ignore(cudnnDestroyConvolutionDescriptor(convolution_));
}

cudnnConvolutionDescriptor_t ConvolutionShapes::convolution(cudnnMathType_t math) const {
  check(cudnnSetConvolutionMathType(convolution_, math), "cudnnSetConvolutionMathType");
  return convolution_;
}

std::string ConvolutionShapes::describe(const char* pass) const {
  const Conv2dGeometry& g = geometry_;
  return std::string(pass) + " of input " + Shape{g.n, g.height, g.width, g.in}.to_string() +
         ", weights " + Shape{g.out, g.kernel_h, g.kernel_w, g.in}.to_string() + ", stride " +
         std::to_string(g.stride_h) + ", padding " + std::to_string(g.pad_h) + ", " +
         std::string(to_string(dtype_));
}

std::optional<ForwardPass> ForwardPass::find(cudnnHandle_t handle, const ConvolutionShapes& shapes,
                                             bool tf32) {
  std::array<cudnnConvolutionFwdAlgoPerf_t, kMostAlgorithms> found{};
  int count = 0;
  const cudnnStatus_t status = cudnnGetConvolutionForwardAlgorithm_v7(
      handle, shapes.x(), shapes.weights(), shapes.convolution(wanted_math(shapes.dtype(), tf32)),
      shapes.y(), kMostAlgorithms, &count, found.data());
  if (!has_found(status, shapes.describe(kForward))) return {};
  const auto chosen =
      choose(found, count, shapes, tf32,
             [&](cudnnConvolutionFwdAlgo_t algorithm, cudnnMathType_t math, size_t* bytes) {
               return cudnnGetConvolutionForwardWorkspaceSize(handle, shapes.x(), shapes.weights(),
                                                              shapes.convolution(math), shapes.y(),
                                                              algorithm, bytes);
             });
  if (!chosen) return {};
  return ForwardPass(*chosen);
}

void ForwardPass::run(cudnnHandle_t handle, Device& device, const ConvolutionShapes& shapes,
                      const void* x, const void* weights, void* y) const {
  const ScratchMemory workspace(device.memory(), chosen_.workspace);
  const float one = 1;
  const float zero = 0;
  check(cudnnConvolutionForward(handle, &one, shapes.x(), x, shapes.weights(), weights,
                                shapes.convolution(chosen_.math), chosen_.algorithm,
                                workspace.get(), chosen_.workspace, &zero, shapes.y(), y),
        kForward);
}

std::optional<BackwardDataPass> BackwardDataPass::find(cudnnHandle_t handle,
                                                       const ConvolutionShapes& shapes, bool tf32) {
  std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMostAlgorithms> found{};
  int count = 0;
  const cudnnStatus_t status = cudnnGetConvolutionBackwardDataAlgorithm_v7(
      handle, shapes.weights(), shapes.y(), shapes.convolution(wanted_math(shapes.dtype(), tf32)),
      shapes.x(), kMostAlgorithms, &count, found.data());
  if (!has_found(status, shapes.describe(kBackwardData))) return {};
  const auto chosen =
      choose(found, count, shapes, tf32,
             [&](cudnnConvolutionBwdDataAlgo_t algorithm, cudnnMathType_t math, size_t* bytes) {
               return cudnnGetConvolutionBackwardDataWorkspaceSize(
                   handle, shapes.weights(), shapes.y(), shapes.convolution(math), shapes.x(),
                   algorithm, bytes);
             });
  if (!chosen) return {};
  return BackwardDataPass(*chosen);
}

void BackwardDataPass::run(cudnnHandle_t handle, Device& device, const ConvolutionShapes& shapes,
                           const void* weights, const void* dy, void* dx) const {
  const ScratchMemory workspace(device.memory(), chosen_.workspace);
  const float one = 1;
  const float zero = 0;
  check(cudnnConvolutionBackwardData(handle, &one, shapes.weights(), weights, shapes.y(), dy,
                                     shapes.convolution(chosen_.math), chosen_.algorithm,
                                     workspace.get(), chosen_.workspace, &zero, shapes.x(), dx),
        kBackwardData);
}

std::optional<BackwardWeightsPass> BackwardWeightsPass::find(cudnnHandle_t handle,
                                                             const ConvolutionShapes& shapes,
                                                             bool tf32) {
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMostAlgorithms> found{};
  int count = 0;
  const cudnnStatus_t status = cudnnGetConvolutionBackwardFilterAlgorithm_v7(
      handle, shapes.x(), shapes.y(), shapes.convolution(wanted_math(shapes.dtype(), tf32)),
      shapes.weights(), kMostAlgorithms, &count, found.data());
  if (!has_found(status, shapes.describe(kBackwardWeights))) return {};
  const auto chosen =
      choose(found, count, shapes, tf32,
             [&](cudnnConvolutionBwdFilterAlgo_t algorithm, cudnnMathType_t math, size_t* bytes) {
               return cudnnGetConvolutionBackwardFilterWorkspaceSize(
                   handle, shapes.x(), shapes.y(), shapes.convolution(math), shapes.weights(),
                   algorithm, bytes);
             });
  if (!chosen) return {};
  return BackwardWeightsPass(*chosen);
}

void BackwardWeightsPass::run(cudnnHandle_t handle, Device& device, const ConvolutionShapes& shapes,
                              const void* x, const void* dy, float beta, void* dw) const {
  const ScratchMemory workspace(device.memory(), chosen_.workspace);
  const float one = 1;
  check(cudnnConvolutionBackwardFilter(
            handle, &one, shapes.x(), x, shapes.y(), dy, shapes.convolution(chosen_.math),
            chosen_.algorithm, workspace.get(), chosen_.workspace, &beta, shapes.weights(), dw),
        kBackwardWeights);
}

}  // namespace dlaunch::nn::cuda
