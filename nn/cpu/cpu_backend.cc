#include "nn/cpu/cpu_backend.h"

#include <cstring>

#include "nn/core/caching_allocator.h"
#include "nn/cpu/conv2d.h"
#include "nn/cpu/kernel_groups.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/matmul.h"
#include "nn/cpu/onednn.h"
#include "nn/cpu/system_memory.h"

namespace dlaunch::nn {
namespace {

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : convolutions_(allocator_, options.winograd ? cpu::ConvolutionAlgorithm::kWinograd
                                                   : cpu::ConvolutionAlgorithm::kDirect) {}

  std::string_view name() const override { return "cpu"; }
  bool host_accessible() const override { return true; }
  bool computes_in(DType dtype) const override { return cpu::computes_in(dtype); }
  void synchronize() override {}  // every kernel is done when it returns

  void* allocate(std::size_t bytes) override { return allocator_.allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    allocator_.deallocate(memory, bytes);
  }
  MemoryStats memory() const override { return allocator_.stats(); }
  void reset_peak() override { allocator_.reset_peak(); }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    copy_bytes(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    copy_bytes(to, from, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override { copy_bytes(to, from, bytes); }
  void clear(void* memory, std::size_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }

  void fill(std::int64_t count, float value, float* y) override { cpu::fill(count, value, y); }
  void convert(std::int64_t count, ConstArrayRef from, ArrayRef to) override {
    cpu::convert(count, from, to);
  }
  void add(std::int64_t count, ConstArrayRef a, ConstArrayRef b, ArrayRef y) override {
    cpu::add(count, a, b, y);
  }
  void axpy(std::int64_t count, float alpha, const float* x, float* y) override {
    cpu::axpy(count, alpha, x, y);
  }
  void scale(std::int64_t count, float factor, const float* scale_or_null, const float* x,
             float* y) override {
    cpu::scale(count, scale_or_null != nullptr ? factor * *scale_or_null : factor, {x, DType::kF32},
               {y, DType::kF32});
  }
  void relu(std::int64_t count, ConstArrayRef x, ArrayRef y) override { cpu::relu(count, x, y); }
  void relu_backward(std::int64_t count, ConstArrayRef y, ConstArrayRef dy, ArrayRef dx) override {
    cpu::relu_backward(count, y, dy, dx);
  }
  void dropout(std::int64_t count, double probability, const RandomState& random, ConstArrayRef x,
               ArrayRef y) override {
    cpu::dropout(count, probability, random, x, y);
  }

  void matmul(const MatmulArguments& arguments) override { products_.run(arguments); }
  void broadcast_rows(std::int64_t rows, std::int64_t columns, const float* row,
                      float* y) override {
    cpu::broadcast_rows(rows, columns, row, y);
  }
  void accumulate_column_sums(std::int64_t rows, std::int64_t columns, const float* x,
                              float* sums) override {
    cpu::accumulate_column_sums(rows, columns, x, sums);
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
    cpu::max_pool2d(geometry, x, y, argmax);
  }
  void max_pool2d_backward(const PoolGeometry& geometry, ConstArrayRef dy,
                           const std::uint8_t* argmax, ArrayRef dx) override {
    cpu::max_pool2d_backward(geometry, dy, argmax, dx);
  }
  void global_avg_pool(std::int64_t n, std::int64_t pixels, std::int64_t channels, ConstArrayRef x,
                       float* y) override {
    cpu::global_avg_pool(n, pixels, channels, x, y);
  }
  void global_avg_pool_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                                const float* dy, ArrayRef dx) override {
    cpu::global_avg_pool_backward(n, pixels, channels, dy, dx);
  }
  void augment(const AugmentedBatch& batch, ArrayRef y) override { cpu::augment(batch, y); }
  void window(const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y) override {
    cpu::window(geometry, x, y);
  }

  void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                     const std::int32_t* labels, float smoothing, float* loss,
                     float* gradient) override {
    cpu::cross_entropy(n, classes, logits, labels, smoothing, loss, gradient);
  }

  void activate(Activation activation, std::int64_t count, ConstArrayRef x, ArrayRef y) override {
    cpu::activate(activation, count, x, y);
  }
  void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x,
                         ConstArrayRef dy, ArrayRef dx) override {
    cpu::activate_backward(activation, count, x, dy, dx);
  }

  void celu(std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y) override {
    cpu::celu(count, alpha, x, y);
  }
  void celu_backward(std::int64_t count, float alpha, ConstArrayRef x, ConstArrayRef dy,
                     ArrayRef dx) override {
    cpu::celu_backward(count, alpha, x, dy, dx);
  }

  NormKernels& norm() override { return *norm_; }
  OptimizerKernels& optimizer() override { return *optimizer_; }

 private:
  CachingAllocator allocator_{cpu::make_system_memory()};
  cpu::Convolutions convolutions_;
  cpu::Products products_{allocator_};
  std::unique_ptr<NormKernels> norm_ = make_cpu_norm_kernels();
  std::unique_ptr<OptimizerKernels> optimizer_ = make_cpu_optimizer_kernels();
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace dlaunch::nn
