#include "nn/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include "nn/core/error.h"
#include "nn/cuda/check.h"
#include "nn/cuda/conv2d.h"
#include "nn/cuda/device.h"
#include "nn/cuda/graph.h"
#include "nn/cuda/kernel_groups.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/staging.h"

namespace dlaunch::nn {
namespace {

constexpr int kFirstWithBF16 = 80;  // Ampere

class Cuda final : public CudaBackend {
 public:
  explicit Cuda(const CudaOptions& options)
      : device_(options.device),
        staging_(device_),
        convolutions_(device_, options),
        matmul_(device_, options.tf32) {}

  std::string_view name() const override { return "cuda"; }
  bool host_accessible() const override { return false; }
  bool computes_in(DType dtype) const override {
    return dtype == DType::kF32 || dtype == DType::kF16 ||
           (dtype == DType::kBF16 && device_.capability() >= kFirstWithBF16);
  }
  void synchronize() override { device_.synchronize(); }
  CUstream_st* stream() const override { return device_.stream(); }
  int device() const override { return device_.number(); }

  void* allocate(std::size_t bytes) override { return device_.pools().allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    device_.pools().deallocate(memory, bytes);
  }
  MemoryStats memory() const override { return device_.pools().stats(); }
  void reset_peak() override { device_.pools().reset_peak(); }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    staging_.to_device(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    staging_.to_host(to, from, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, device_.stream()),
                "copy");
  }
  void clear(void* memory, std::size_t bytes) override {
    if (bytes == 0) return;
    cuda::check(cudaMemsetAsync(memory, 0, bytes, device_.stream()), "clear");
  }

  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    convolutions_.await_first_question();
    return cuda::record_graph(device_, staging_, work);
  }

  void fill(std::int64_t count, float value, float* y) override {
    cuda::fill(device_, count, value, y);
  }
  void convert(std::int64_t count, ConstArrayRef from, ArrayRef to) override {
    cuda::convert(device_, count, from, to);
  }
  void add(std::int64_t count, ConstArrayRef a, ConstArrayRef b, ArrayRef y) override {
    cuda::add(device_, count, a, b, y);
  }
  void axpy(std::int64_t count, float alpha, const float* x, float* y) override {
    cuda::axpy(device_, count, alpha, x, y);
  }
  void scale(std::int64_t count, float factor, const float* scale_or_null, const float* x,
             float* y) override {
    cuda::scale(device_, count, factor, scale_or_null, {x, DType::kF32}, {y, DType::kF32});
  }
  void relu(std::int64_t count, ConstArrayRef x, ArrayRef y) override {
    cuda::relu(device_, count, x, y);
  }
  void relu_backward(std::int64_t count, ConstArrayRef y, ConstArrayRef dy, ArrayRef dx) override {
    cuda::relu_backward(device_, count, y, dy, dx);
  }
  void dropout(std::int64_t count, double probability, const RandomState& random, ConstArrayRef x,
               ArrayRef y) override {
    cuda::dropout(device_, count, probability, random, x, y);
  }

  void matmul(const MatmulArguments& arguments) override { matmul_.run(arguments); }
  void broadcast_rows(std::int64_t rows, std::int64_t columns, const float* row,
                      float* y) override {
    cuda::broadcast_rows(device_, rows, columns, row, y);
  }
  void accumulate_column_sums(std::int64_t rows, std::int64_t columns, const float* x,
                              float* sums) override {
    cuda::accumulate_column_sums(device_, rows, columns, {x, DType::kF32}, sums);
  }

  void conv2d(const Conv2dGeometry& geometry, ConstArrayRef x, const WeightsRef& weights,
              const float* bias_or_null, ArrayRef y) override {
    convolutions_.forward(geometry, x, weights, bias_or_null, y);
  }
  void conv2d_backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy,
                            const WeightsRef& weights, ArrayRef dx) override {
    convolutions_.backward_data(geometry, dy, weights, dx);
  }
  void conv2d_backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x, ConstArrayRef dy,
                               float* dw, float* db_or_null) override {
    convolutions_.backward_weights(geometry, x, dy, dw, db_or_null);
  }
  void max_pool2d(const PoolGeometry& geometry, ConstArrayRef x, ArrayRef y,
                  std::uint8_t* argmax) override {
    cuda::max_pool2d(device_, geometry, x, y, argmax);
  }
  void max_pool2d_backward(const PoolGeometry& geometry, ConstArrayRef dy,
                           const std::uint8_t* argmax, ArrayRef dx) override {
    cuda::max_pool2d_backward(device_, geometry, dy, argmax, dx);
  }
  void global_avg_pool(std::int64_t n, std::int64_t pixels, std::int64_t channels, ConstArrayRef x,
                       float* y) override {
    cuda::global_avg_pool(device_, n, pixels, channels, x, y);
  }
  void global_avg_pool_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                                const float* dy, ArrayRef dx) override {
    cuda::global_avg_pool_backward(device_, n, pixels, channels, dy, dx);
  }
  void augment(const AugmentedBatch& batch, ArrayRef y) override {
    cuda::augment(device_, batch, y);
  }
  void window(const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y) override {
    cuda::window(device_, geometry, x, y);
  }

  void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                     const std::int32_t* labels, float smoothing, float* loss,
                     float* gradient) override {
    cuda::cross_entropy(device_, n, classes, logits, labels, smoothing, loss, gradient);
  }

  void activate(Activation activation, std::int64_t count, ConstArrayRef x, ArrayRef y) override {
    cuda::activate(device_, activation, count, x, y);
  }
  void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x,
                         ConstArrayRef dy, ArrayRef dx) override {
    cuda::activate_backward(device_, activation, count, x, dy, dx);
  }

  void celu(std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y) override {
    cuda::celu(device_, count, alpha, x, y);
  }
  void celu_backward(std::int64_t count, float alpha, ConstArrayRef x, ConstArrayRef dy,
                     ArrayRef dx) override {
    cuda::celu_backward(device_, count, alpha, x, dy, dx);
  }

  NormKernels& norm() override { return *norm_; }
  OptimizerKernels& optimizer() override { return *optimizer_; }

 private:
  cuda::Device device_;
  cuda::Staging staging_;
  cuda::Convolutions convolutions_;
  cuda::Matmul matmul_;
  std::unique_ptr<NormKernels> norm_ = cuda::make_norm_kernels(device_);
  std::unique_ptr<OptimizerKernels> optimizer_ = cuda::make_optimizer_kernels(device_, staging_);
};

/// 13000 is "13.0".
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string why_no_cuda() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return "";
  cuda::ignore(cudaGetLastError());  // it is dealt with
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "no CUDA device is visible";
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cuda::ignore(cudaDriverGetVersion(&driver));
    if (driver == 0) return "no NVIDIA driver is installed";
    return "the NVIDIA driver is too old: it serves CUDA " + version_text(driver) +
           ", this build needs " + version_text(CUDART_VERSION);
  }
  return std::string("CUDA: ") + cudaGetErrorString(status);
}

bool built_with_cuda() {
  return true;
}

int cuda_devices() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
  cuda::ignore(cudaGetLastError());
  return 0;
}

std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options) {
  if (const std::string why = why_no_cuda(); !why.empty()) throw Error(why);
  if (options.device < 0 || options.device >= cuda_devices())
    throw Error("there is no CUDA device " + std::to_string(options.device) + ": " +
                std::to_string(cuda_devices()) + " are visible");
  return std::make_unique<Cuda>(options);
}

}  // namespace dlaunch::nn
