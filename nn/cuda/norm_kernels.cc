#include <memory>

#include "nn/cuda/kernel_groups.h"
#include "nn/cuda/norm_passes.h"

namespace dlaunch::nn::cuda {
namespace {

class CudaPooledNorm final : public PooledNormKernels {
 public:
  explicit CudaPooledNorm(Device& device) : device_(device) {}

  /// Windows beside each other, so that a pixel is in one of them or, at the border, in none.
  static bool has(const PoolGeometry& pool) {
    return pool.pad == 0 && pool.stride == pool.kernel && (pool.kernel == 2 || pool.kernel == 3);
  }

  bool pool_and_sum(const PoolGeometry& pool, std::int64_t parts, ConstArrayRef input, ArrayRef x,
                    std::uint8_t* argmax, const StatisticsFinish* finish,
                    double* statistics) override {
    cuda::pool_and_sum(device_, pool, parts, input, x, argmax, finish, statistics);
    return true;
  }
  void backward_data(const PoolGeometry& pool, std::int64_t parts, ConstArrayRef dy,
                     ConstArrayRef x, const std::uint8_t* argmax, const NormFunction& function,
                     const double* sums, ArrayRef dinput) override {
    pooled_normalise_backward(device_, pool, parts, dy, x, argmax, function, sums, dinput);
  }

 private:
  Device& device_;
};

class CudaNormKernels final : public NormKernels {
 public:
  explicit CudaNormKernels(Device& device) : device_(device), pooled_(device) {}

  bool batch_statistics(NormExtent extent, ConstArrayRef x, const StatisticsFinish* finish,
                        double* statistics) override {
    cuda::batch_statistics(device_, extent, x, finish, statistics);
    return true;
  }
  bool finish_statistics(std::int64_t parts, std::int64_t channels, const StatisticsFinish& finish,
                         double* statistics) override {
    cuda::finish_statistics(device_, parts, channels, finish, statistics);
    return true;
  }
  void statistics_from_running(std::int64_t channels, double eps, const float* running_mean,
                               const float* running_variance, double* statistics) override {
    cuda::statistics_from_running(device_, channels, eps, running_mean, running_variance,
                                  statistics);
  }
  void normalise(NormExtent extent, ConstArrayRef x, const NormFunction& function,
                 ConstArrayRef residual, ArrayRef y) override {
    cuda::normalise(device_, extent, x, function, residual, y);
  }
  void backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, double* sums,
                     AffineGradients gradients) override {
    gradient_sums(device_, extent, dy, x, function, sums, gradients);
  }
  void masked_backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, ConstArrayRef y,
                            const double* statistics, double* sums, AffineGradients gradients,
                            ArrayRef masked) override {
    masked_gradient_sums(device_, extent, dy, x, y, statistics, sums, gradients, masked);
  }
  void backward_data(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, const double* sums, ArrayRef dx) override {
    normalise_backward(device_, extent, dy, x, function, sums, dx);
  }

  PooledNormKernels* pooled(const PoolGeometry& pool) override {
    return CudaPooledNorm::has(pool) ? &pooled_ : nullptr;
  }

 private:
  Device& device_;
  CudaPooledNorm pooled_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm_kernels(Device& device) {
  return std::make_unique<CudaNormKernels>(device);
}

}  // namespace dlaunch::nn::cuda
