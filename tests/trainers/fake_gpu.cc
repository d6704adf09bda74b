#include "tests/trainers/fake_gpu.h"

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "nn/core/error.h"
#include "nn/core/norm_kernels.h"
#include "nn/core/optimizer_kernels.h"
#include "nn/core/recording_pools.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/data/augmentation.h"
#include "tests/device/fake_stream.h"

namespace dlaunch::testing {
namespace {

using namespace nn;  // NOLINT(google-build-using-namespace): all of this file is about it

/// What two sources of the same memory have obtained.
struct FakeSegments {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<void>> held;
};

class FakeMemory final : public MemorySource {
 public:
  FakeMemory(std::shared_ptr<FakeDevice> device, std::shared_ptr<FakeSegments> segments)
      : device_(std::move(device)), segments_(std::move(segments)) {}

  std::size_t alignment() const override { return 64; }
  std::size_t granularity() const override { return std::size_t{1} << 16; }
  std::size_t smallest_segment() const override { return std::size_t{8} << 20; }
  void* obtain(std::size_t bytes) override {
    auto memory = device_->allocate(bytes);
    if (!memory.ok()) return nullptr;
    void* const segment = memory->get();
    const std::lock_guard lock(segments_->mutex);
    segments_->held[segment] = *std::move(memory);
    return segment;
  }
  bool give_back(void* segment, std::size_t /*bytes*/) noexcept override {
    std::shared_ptr<void> goes;  // when others may obtain some: it may wait
    const std::lock_guard lock(segments_->mutex);
    std::swap(goes, segments_->held[segment]);
    segments_->held.erase(segment);
    return true;
  }
  std::string exhausted() const override { return "out of fake memory"; }

 private:
  std::shared_ptr<FakeDevice> device_;
  std::shared_ptr<FakeSegments> segments_;
};

// The stream, and what stands still while it is recorded.
class FakeQueue {
 public:
  explicit FakeQueue(
      std::shared_ptr<FakeDevice> device,
      const std::shared_ptr<FakeSegments>& segments = std::make_shared<FakeSegments>())
      : device_(std::move(device)),
        pools_(std::make_unique<FakeMemory>(device_, segments),
               std::make_unique<FakeMemory>(device_, segments)) {}

  FakeDevice& device() { return *device_; }
  RecordingPools& pools() { return pools_; }
  const RecordingPools& pools() const { return pools_; }
  void operator()(std::function<void()> kernel) {
    if (pools_.recording() && ++recorded_ == device_->unrecordable())
      throw Error("a kernel that cannot be recorded");
    throw_if_error(device_->compute().call(std::move(kernel)));
  }
  /// What is recorded from now on is what `work` starts. Throws what it throws.
  std::shared_ptr<FakeRecording> record(const std::function<void()>& work) {
    synchronize();  // as CUDA's backend, and it cannot be recorded
    pools_.begin_recording();
    recorded_ = 0;
    device_->begin_capture();
    try {
      work();
      if (device_->unrecordable() && recorded_ < *device_->unrecordable())
        throw Error("a recording that cannot be ended");
    } catch (...) {
      pools_.end_recording();
      (void)device_->end_capture();
      ++failed_recordings_;
      pools_.give_up_recording();
      throw;
    }
    pools_.end_recording();
    return device_->end_capture();
  }
  int failed_recordings() const { return failed_recordings_; }
  void refuse_while_recording() const {
    if (pools_.recording()) throw Error("the host waits, or copies, while a step is recorded");
  }
  void synchronize() const {
    refuse_while_recording();
    while (!device_->synchronise()) {
    }
  }

 private:
  std::shared_ptr<FakeDevice> device_;
  RecordingPools pools_;
  int recorded_ = 0;  // kernels
  int failed_recordings_ = 0;
};

class FakeNorm final : public NormKernels {
 public:
  FakeNorm(FakeQueue& queue, NormKernels& inner) : queue_(queue), inner_(inner) {}

  bool batch_statistics(NormExtent extent, ConstArrayRef x, const StatisticsFinish* finish,
                        double* statistics) override {
    const auto copy = finish == nullptr ? std::optional<StatisticsFinish>() : *finish;
    queue_([=, this] {
      (void)inner_.batch_statistics(extent, x, copy.has_value() ? &*copy : nullptr, statistics);
    });
    return true;
  }
  bool finish_statistics(std::int64_t parts, std::int64_t channels, const StatisticsFinish& finish,
                         double* statistics) override {
    queue_([=, this] { (void)inner_.finish_statistics(parts, channels, finish, statistics); });
    return true;
  }
  void statistics_from_running(std::int64_t channels, double eps, const float* mean,
                               const float* variance, double* statistics) override {
    queue_(
        [=, this] { inner_.statistics_from_running(channels, eps, mean, variance, statistics); });
  }
  void normalise(NormExtent extent, ConstArrayRef x, const NormFunction& function,
                 ConstArrayRef residual, ArrayRef y) override {
    queue_([=, this] { inner_.normalise(extent, x, function, residual, y); });
  }
  void backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, double* sums,
                     AffineGradients gradients) override {
    queue_([=, this] { inner_.backward_sums(extent, dy, x, function, sums, gradients); });
  }
  void masked_backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, ConstArrayRef y,
                            const double* statistics, double* sums, AffineGradients gradients,
                            ArrayRef masked) override {
    queue_([=, this] {
      inner_.masked_backward_sums(extent, dy, x, y, statistics, sums, gradients, masked);
    });
  }
  void backward_data(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, const double* sums, ArrayRef dx) override {
    queue_([=, this] { inner_.backward_data(extent, dy, x, function, sums, dx); });
  }

 private:
  FakeQueue& queue_;
  NormKernels& inner_;
};

template <typename Item>
std::vector<Item> copy_of(std::span<const Item> items) {
  return {items.begin(), items.end()};
}

class FakeOptimizer final : public OptimizerKernels {
 public:
  FakeOptimizer(FakeQueue& queue, OptimizerKernels& inner) : queue_(queue), inner_(inner) {}

  void sgd_step(std::span<const SgdRange> ranges, const float* skip_or_null,
                bool nesterov) override {
    queue_([=, this, all = copy_of(ranges)] { inner_.sgd_step(all, skip_or_null, nesterov); });
  }
  void adam_step(std::span<const AdamRange> ranges, const float* skip_or_null) override {
    queue_([=, this, all = copy_of(ranges)] { inner_.adam_step(all, skip_or_null); });
  }
  void muon_directions(std::span<const MuonMatrix> matrices, const float* skip_or_null,
                       bool nesterov) override {
    queue_([=, this, all = copy_of(matrices)] {
      inner_.muon_directions(all, skip_or_null, nesterov);
    });
  }
  void muon_step(std::span<const MuonMatrix> matrices, const float* skip_or_null) override {
    queue_([=, this, all = copy_of(matrices)] { inner_.muon_step(all, skip_or_null); });
  }
  void begin_scaled_step(const LossScaleState* state, const LossScaleStep* step, float* gradient,
                         float* not_finite) override {
    queue_([=, this] { inner_.begin_scaled_step(state, step, gradient, not_finite); });
  }
  void unscale(std::int64_t count, const LossScaleState* state, const LossScaleStep* step,
               float* gradients, float* not_finite) override {
    queue_([=, this] { inner_.unscale(count, state, step, gradients, not_finite); });
  }
  void move_loss_scale(const LossScaleRule& rule, const float* not_finite,
                       LossScaleState* state) override {
    queue_([=, this] { inner_.move_loss_scale(rule, not_finite, state); });
  }
  void move_averages(std::span<const AveragedValues> averages, double decay) override {
    queue_([=, this, all = copy_of(averages)] { inner_.move_averages(all, decay); });
  }
  void add_squares(std::int64_t count, const float* values, double* sum) override {
    queue_([=, this] { inner_.add_squares(count, values, sum); });
  }
  void clip_norm(std::int64_t count, const double* squares, double max_norm,
                 float* values) override {
    queue_([=, this] { inner_.clip_norm(count, squares, max_norm, values); });
  }
  double sum_of_squares(std::int64_t count, const float* values) override {
    queue_.synchronize();
    return inner_.sum_of_squares(count, values);
  }

 private:
  FakeQueue& queue_;
  OptimizerKernels& inner_;
};

class FakeGraph final : public Recording {
 public:
  FakeGraph(FakeQueue& queue, std::shared_ptr<FakeRecording> recording,
            std::shared_ptr<std::uint64_t> shift)
      : queue_(queue), recording_(std::move(recording)), shift_(std::move(shift)) {
    queue_.pools().add_recording();
  }
  ~FakeGraph() override { queue_.pools().remove_recording(); }
  void replay(std::uint64_t random_blocks) override {
    queue_([random_blocks, shift = shift_] { *shift = random_blocks; });
    queue_.device().replay(*recording_);
  }

 private:
  FakeQueue& queue_;
  std::shared_ptr<FakeRecording> recording_;
  std::shared_ptr<std::uint64_t> shift_;  // the stream's
};

// Weights as they were at `version`, as backends keep them in another type or layout.
struct KeptWeights final : DerivedData {
  std::shared_ptr<std::vector<float>> values = std::make_shared<std::vector<float>>();
  std::uint64_t version = ~std::uint64_t{0};
  int failed_recordings = 0;
};

class FakeGpu final : public Backend {
 public:
  explicit FakeGpu(std::shared_ptr<FakeDevice> device) : queue_(std::move(device)) {}
  ~FakeGpu() override { queue_.synchronize(); }

  std::string_view name() const override { return "fake"; }
  bool host_accessible() const override { return false; }
  void synchronize() override { queue_.synchronize(); }
  bool computes_in(DType dtype) const override { return inner_->computes_in(dtype); }

  void* allocate(std::size_t bytes) override { return queue_.pools().allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    queue_.pools().deallocate(memory, bytes);
  }
  MemoryStats memory() const override { return queue_.pools().stats(); }
  void reset_peak() override { queue_.pools().reset_peak(); }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    queue_.refuse_while_recording();
    const auto* const first = static_cast<const std::byte*>(from);
    queue_([to, values = std::vector<std::byte>(first, first + bytes)] {
      if (!values.empty()) std::memcpy(to, values.data(), values.size());
    });
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    queue_.synchronize();
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    queue_([=, this] { inner_->copy(to, from, bytes); });
  }
  void clear(void* memory, std::size_t bytes) override {
    queue_([=, this] { inner_->clear(memory, bytes); });
  }

  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    return std::make_unique<FakeGraph>(queue_, queue_.record(work), shift_);
  }

  void fill(std::int64_t count, float value, float* y) override {
    queue_([=, this] { inner_->fill(count, value, y); });
  }
  void convert(std::int64_t count, ConstArrayRef from, ArrayRef to) override {
    queue_([=, this] { inner_->convert(count, from, to); });
  }
  void add(std::int64_t count, ConstArrayRef a, ConstArrayRef b, ArrayRef y) override {
    queue_([=, this] { inner_->add(count, a, b, y); });
  }
  void axpy(std::int64_t count, float alpha, const float* x, float* y) override {
    queue_([=, this] { inner_->axpy(count, alpha, x, y); });
  }
  void scale(std::int64_t count, float factor, const float* scale_or_null, const float* x,
             float* y) override {
    queue_([=, this] { inner_->scale(count, factor, scale_or_null, x, y); });
  }
  void relu(std::int64_t count, ConstArrayRef x, ArrayRef y) override {
    queue_([=, this] { inner_->relu(count, x, y); });
  }
  void relu_backward(std::int64_t count, ConstArrayRef y, ConstArrayRef dy, ArrayRef dx) override {
    queue_([=, this] { inner_->relu_backward(count, y, dy, dx); });
  }
  void dropout(std::int64_t count, double probability, const RandomState& random, ConstArrayRef x,
               ArrayRef y) override {
    queue_([=, this, recorded = queue_.pools().recording(), from = random] {
      RandomState state = from;
      if (recorded) state.position += 4 * *shift_;
      inner_->dropout(count, probability, state, x, y);
    });
  }

  void matmul(const MatmulArguments& arguments) override {
    queue_([=, this] { inner_->matmul(arguments); });
  }
  void broadcast_rows(std::int64_t rows, std::int64_t columns, const float* row,
                      float* y) override {
    queue_([=, this] { inner_->broadcast_rows(rows, columns, row, y); });
  }
  void accumulate_column_sums(std::int64_t rows, std::int64_t columns, const float* x,
                              float* sums) override {
    queue_([=, this] { inner_->accumulate_column_sums(rows, columns, x, sums); });
  }

  void conv2d(const Conv2dGeometry& geometry, ConstArrayRef x, const WeightsRef& weights,
              const float* bias_or_null, ArrayRef y) override {
    queue_([=, this, kept = kept_weights(geometry, weights)] {
      std::unique_ptr<DerivedData> derived;
      inner_->conv2d(geometry, x, {kept->data(), 0, &derived}, bias_or_null, y);
    });
  }
  void conv2d_backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy,
                            const WeightsRef& weights, ArrayRef dx) override {
    queue_([=, this, kept = kept_weights(geometry, weights)] {
      std::unique_ptr<DerivedData> derived;
      inner_->conv2d_backward_data(geometry, dy, {kept->data(), 0, &derived}, dx);
    });
  }
  void conv2d_backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x, ConstArrayRef dy,
                               float* dw, float* db_or_null) override {
    queue_([=, this] { inner_->conv2d_backward_weights(geometry, x, dy, dw, db_or_null); });
  }
  void augment(const AugmentedBatch& batch, ArrayRef y) override {
    queue_([=, this] { inner_->augment(batch, y); });
  }
  void window(const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y) override {
    queue_([=, this] { inner_->window(geometry, x, y); });
  }
  void activate(Activation activation, std::int64_t count, ConstArrayRef x, ArrayRef y) override {
    queue_([=, this] { inner_->activate(activation, count, x, y); });
  }
  void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x,
                         ConstArrayRef dy, ArrayRef dx) override {
    queue_([=, this] { inner_->activate_backward(activation, count, x, dy, dx); });
  }
  void max_pool2d(const PoolGeometry& geometry, ConstArrayRef x, ArrayRef y,
                  std::uint8_t* argmax) override {
    queue_([=, this] { inner_->max_pool2d(geometry, x, y, argmax); });
  }
  void max_pool2d_backward(const PoolGeometry& geometry, ConstArrayRef dy,
                           const std::uint8_t* argmax, ArrayRef dx) override {
    queue_([=, this] { inner_->max_pool2d_backward(geometry, dy, argmax, dx); });
  }
  void global_avg_pool(std::int64_t n, std::int64_t pixels, std::int64_t channels, ConstArrayRef x,
                       float* y) override {
    queue_([=, this] { inner_->global_avg_pool(n, pixels, channels, x, y); });
  }
  void global_avg_pool_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                                const float* dy, ArrayRef dx) override {
    queue_([=, this] { inner_->global_avg_pool_backward(n, pixels, channels, dy, dx); });
  }
  void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                     const std::int32_t* labels, float smoothing, float* loss,
                     float* gradient) override {
    queue_([=, this] {
      inner_->cross_entropy(n, classes, logits, labels, smoothing, loss, gradient);
    });
  }
  void celu(std::int64_t count, float alpha, nn::ConstArrayRef x, nn::ArrayRef y) override {
    queue_([=, this] { inner_->celu(count, alpha, x, y); });
  }
  void celu_backward(std::int64_t count, float alpha, nn::ConstArrayRef x, nn::ConstArrayRef dy,
                     nn::ArrayRef dx) override {
    queue_([=, this] { inner_->celu_backward(count, alpha, x, dy, dx); });
  }

  NormKernels& norm() override { return norm_; }
  OptimizerKernels& optimizer() override { return optimizer_; }

 private:
  std::shared_ptr<std::vector<float>> kept_weights(const Conv2dGeometry& geometry,
                                                   const WeightsRef& weights) {
    if (!*weights.derived) *weights.derived = std::make_unique<KeptWeights>();
    auto& kept = dynamic_cast<KeptWeights&>(**weights.derived);
    if (kept.version != weights.version || kept.failed_recordings != queue_.failed_recordings()) {
      kept.version = weights.version;
      kept.failed_recordings = queue_.failed_recordings();
      const auto count = static_cast<std::size_t>(geometry.out * geometry.kernel_h *
                                                  geometry.kernel_w * geometry.in);
      queue_([to = kept.values, from = weights.data, count] { to->assign(from, from + count); });
    }
    return kept.values;
  }

  std::unique_ptr<Backend> inner_ = make_cpu_backend();  // its kernels: the stream's
  FakeQueue queue_;
  FakeNorm norm_{queue_, inner_->norm()};
  FakeOptimizer optimizer_{queue_, inner_->optimizer()};
  std::shared_ptr<std::uint64_t> shift_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace

std::unique_ptr<nn::Backend> make_fake_gpu(std::shared_ptr<FakeDevice> device) {
  return std::make_unique<FakeGpu>(std::move(device));
}

}  // namespace dlaunch::testing
