// NormKernels on CUDA. A thread that sums the moments of some rows takes the first of them as its
// shift: however odd that row is, it is one of those that are summed, so that what is lost is small
// against their own second moment. The threads' moments are then packed, in double, and add up like
// those of ranks (nn/core/batch_statistics.h).
#include "nn/core/batch_statistics.h"
#include "nn/cuda/kernel_groups.h"
#include "nn/cuda/max_pool.cuh"
#include "nn/cuda/norm_function.cuh"
#include "nn/cuda/norm_rows.h"
#include "nn/cuda/row_sums.cuh"

namespace dlaunch::nn::cuda {
namespace {

// Rows that are there.
template <typename T>
struct StoredRows {
  const T* x;

  template <int kWidth>
  __device__ void peek(const RowPack& at, float (&values)[kWidth]) const {
    load_pack(x + at.offset, values);
  }
  template <int kWidth>
  __device__ void take(const RowPack& at, float (&values)[kWidth]) const {
    peek(at, values);
  }
};

// Rows that max-pooling makes, and stores when they are taken.
template <int kKernel, typename T>
struct PooledRows {
  PoolGeometry pool;
  std::int64_t out_height, out_width;
  const T* input;
  T* x;
  std::uint8_t* argmax;

  template <int kWidth>
  __device__ Places<kWidth> peek(const RowPack& at, float (&values)[kWidth]) const {
    const Pixel pixel = pixel_at(at.row, out_height, out_width);
    const std::int64_t image = pixel.image * pool.height * pool.width * pool.channels;
    return max_of_window<kKernel>(pool, pixel, input + image + at.channel, values);
  }
  template <int kWidth>
  __device__ void take(const RowPack& at, float (&values)[kWidth]) const {
    const Places<kWidth> places = peek(at, values);
    store_pack(x + at.offset, values);
    store_places(places, argmax, at.offset);
  }
};

template <typename Rows>
struct MomentTerms {
  static constexpr int kSums = 2;
  template <int kWidth>
  struct State {
    float shift[kWidth];
  };

  Rows rows;

  __device__ void enter_part(std::int64_t /*part*/, std::int64_t /*channels*/) {}
  template <int kWidth>
  __device__ State<kWidth> begin(const RowPack& at) const {
    State<kWidth> state{};
    rows.peek(at, state.shift);
    return state;
  }
  template <int kWidth>
  __device__ void add(const RowPack& at, const State<kWidth>& state,
                      float (&sums)[kSums][kWidth]) const {
    float values[kWidth] = {};
    rows.take(at, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float d = values[k] - state.shift[k];
      sums[0][k] += d;
      sums[1][k] += d * d;
    }
  }
  template <int kWidth>
  __device__ void finish(std::int64_t /*channel*/, double count, const State<kWidth>& state,
                         double (&sums)[kSums][kWidth]) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const auto shift = static_cast<double>(state.shift[k]);
      const PackedMoments packed = pack(count, moments_about(shift, count, sums[0][k], sums[1][k]));
      sums[0][k] = packed.sum;
      sums[1][k] = packed.square_sum;
    }
  }
};

// The gradient behind the activation, whose argument is made again of x.
template <typename Activation, typename T>
struct RecomputedGradient {
  const T* dy;
  Activation activation;

  template <int kWidth>
  __device__ void take(const RowPack& at, const float (&x)[kWidth],
                       const NormaliseCoefficients (&of)[kWidth],
                       float (&gradients)[kWidth]) const {
    load_pack(dy + at.offset, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      gradients[k] = activation.gradient(normalised(x[k], of[k]), gradients[k]);
  }
};

// The gradient behind a ReLU of whose argument x is only a part, from its output; it is stored.
template <typename T>
struct MaskedGradient {
  const T* dy;
  const T* y;
  T* masked;

  template <int kWidth>
  __device__ void take(const RowPack& at, const float (&/*x*/)[kWidth],
                       const NormaliseCoefficients (&/*of*/)[kWidth],
                       float (&gradients)[kWidth]) const {
    float outputs[kWidth];
    load_pack(dy + at.offset, gradients);
    load_pack(y + at.offset, outputs);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] = Relu::gradient(outputs[k], gradients[k]);
    store_pack(masked + at.offset, gradients);
  }
};

// Sums of dz and dz xhat.
template <typename Gradient, typename T>
struct GradientTerms {
  static constexpr int kSums = 2;
  template <int kWidth>
  struct State {
    NormaliseCoefficients of[kWidth];
  };

  Gradient gradient;
  const T* x;
  Affine affine;

  __device__ void enter_part(std::int64_t part, std::int64_t channels) {
    affine.enter_part(part, channels);
  }
  template <int kWidth>
  __device__ State<kWidth> begin(const RowPack& at) const {
    State<kWidth> state;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) state.of[k] = affine.coefficients_of(at.channel + k);
    return state;
  }
  template <int kWidth>
  __device__ void add(const RowPack& at, const State<kWidth>& state,
                      float (&sums)[kSums][kWidth]) const {
    float gradients[kWidth];
    float values[kWidth];
    load_pack(x + at.offset, values);
    gradient.take(at, values, state.of, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      sums[0][k] += gradients[k];
      sums[1][k] += gradients[k] * (values[k] - state.of[k].shift);
    }
  }
  template <int kWidth>
  __device__ void finish(std::int64_t channel, double /*count*/, const State<kWidth>& /*state*/,
                         double (&sums)[kSums][kWidth]) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      sums[1][k] = sum_with_xhat(split(affine.means[channel + k]), affine.inv_stds[channel + k],
                                 sums[0][k], sums[1][k]);
  }
};

// Packed statistics: of each part the number of rows, and the sums behind it.
struct StoreStatistics {
  NormExtent extent;
  double* statistics;
  __device__ void operator()(std::int64_t column, double sum) const {
    const std::int64_t part = extent.parts.count == 1 ? 0 : column / (2 * extent.channels);
    const std::int64_t within = column - part * 2 * extent.channels;
    double* const own = statistics + part * norm_statistics_size(extent.channels);
    if (within == 0) own[0] = static_cast<double>(extent.parts.size(extent.rows, part));
    own[1 + within] = sum;
  }
};

__global__ void finish_all(std::int64_t parts, std::int64_t channels, double eps, double momentum,
                           RunningStatistics running, double* statistics, int* fault) {
  const std::int64_t size = norm_statistics_size(channels);
  for (std::int64_t part = 0; part < parts; ++part) {
    if (statistics[part * size] != 1) continue;
    *fault = kSingleRow;
    return;
  }
  for (std::int64_t c = global_thread(); c < channels; c += all_threads()) {
    for (std::int64_t part = 0; part < parts; ++part) {
      double* const own = statistics + part * size;
      const double count = own[0];
      double& first = own[1 + c];
      double& second = own[1 + channels + c];
      const Moments moments = unpack(count, {.sum = first, .square_sum = second});
      first = moments.mean;
      second = 1 / sqrt(biased_variance(count, moments.m2) + eps);
      if (running.mean == nullptr || count == 0) continue;
      running.mean[c] = moved_towards(running.mean[c], moments.mean, momentum);
      running.variance[c] =
          moved_towards(running.variance[c], unbiased_variance(count, moments.m2), momentum);
    }
  }
}

__global__ void finish_from_running(std::int64_t channels, double eps, const float* running_mean,
                                    const float* running_variance, double* statistics) {
  if (global_thread() == 0) statistics[0] = 0;
  for (std::int64_t c = global_thread(); c < channels; c += all_threads()) {
    statistics[1 + c] = static_cast<double>(running_mean[c]);
    statistics[1 + channels + c] = 1 / sqrt(static_cast<double>(running_variance[c]) + eps);
  }
}

// Sums for backward, of one part; the gradients of gamma and beta are made of the same.
struct StoreGradientSums {
  std::int64_t channels;
  double* sums;
  AffineGradients gradients;
  __device__ void operator()(std::int64_t column, double sum) const {
    sums[column] = sum;
    const bool of_gamma = column >= channels;
    float* const to = of_gamma ? gradients.gamma : gradients.beta;
    if (to != nullptr) to[of_gamma ? column - channels : column] += static_cast<float>(sum);
  }
};

// The same of several parts, whose columns other threads have.
__global__ void add_parts(std::int64_t parts, std::int64_t channels, const double* sums,
                          AffineGradients gradients) {
  for (std::int64_t c = global_thread(); c < channels; c += all_threads()) {
    double beta = 0;
    double gamma = 0;
#pragma unroll 4
    for (std::int64_t part = 0; part < parts; ++part) {
      beta += sums[2 * part * channels + c];
      gamma += sums[(2 * part + 1) * channels + c];
    }
    if (gradients.beta != nullptr) gradients.beta[c] += static_cast<float>(beta);
    if (gradients.gamma != nullptr) gradients.gamma[c] += static_cast<float>(gamma);
  }
}

// Windows beside each other, so that a pixel is in one of them or, at the border, in none.
bool has_pooled_kernels(const PoolGeometry& pool) {
  return pool.pad == 0 && pool.stride == pool.kernel && (pool.kernel == 2 || pool.kernel == 3);
}

template <typename T, typename Terms, typename Write, typename... Memory>
void start_sums(Device& device, const char* name, NormExtent extent, const Terms& terms,
                const Write& write, const Memory*... memory) {
  if (packs_fit<T>(extent.channels, memory...)) {
    start_row_sums<kPackOf<T>>(device, name, extent.rows, extent.channels, extent.parts, terms,
                               write);
  } else {
    start_row_sums<1>(device, name, extent.rows, extent.channels, extent.parts, terms, write);
  }
}

class CudaPooledNorm final : public PooledNormKernels {
 public:
  explicit CudaPooledNorm(Device& device) : device_(device) {}

  void pool_and_sum(const PoolGeometry& pool, std::int64_t parts, ConstArrayRef input, ArrayRef x,
                    std::uint8_t* argmax, double* statistics) override {
    visit_activation(x.dtype, [&]<typename T>() {
      if (pool.kernel == 2) {
        start<2>(pool, parts, as<T>(input), as<T>(x), argmax, statistics);
      } else {
        start<3>(pool, parts, as<T>(input), as<T>(x), argmax, statistics);
      }
    });
  }

  void backward_data(const PoolGeometry& pool, std::int64_t parts, ConstArrayRef dy,
                     ConstArrayRef x, const std::uint8_t* argmax, const NormFunction& function,
                     const double* sums, ArrayRef dinput) override {
    pooled_normalise_backward(device_, pool, parts, dy, x, argmax, function, sums, dinput);
  }

 private:
  template <int kKernel, typename T>
  void start(const PoolGeometry& pool, std::int64_t parts, const T* input, T* x,
             std::uint8_t* argmax, double* statistics) {
    const PooledRows<kKernel, T> rows{pool, pool.out_height(), pool.out_width(), input, x, argmax};
    const NormExtent extent = extent_behind(pool, parts);
    const MomentTerms<PooledRows<kKernel, T>> terms{rows};
    const StoreStatistics write{extent, statistics};
    start_sums<T>(device_, "max_pool2d and batch statistics", extent, terms, write, input, x,
                  argmax);
  }

  Device& device_;
};

class CudaNormKernels final : public NormKernels {
 public:
  explicit CudaNormKernels(Device& device) : device_(device), pooled_(device) {}

  void batch_statistics(NormExtent extent, ConstArrayRef x, double* statistics) override {
    visit_activation(x.dtype, [&]<typename T>() {
      const MomentTerms<StoredRows<T>> terms{{as<T>(x)}};
      const StoreStatistics write{extent, statistics};
      start_sums<T>(device_, "batch statistics", extent, terms, write, as<T>(x));
    });
  }

  bool finish_statistics(std::int64_t parts, std::int64_t channels, double eps, double momentum,
                         RunningStatistics running, double* statistics) override {
    launch(device_, "finish statistics", finish_all, blocks_for(device_, channels), kThreads, parts,
           channels, eps, momentum, running, statistics, device_.fault());
    return true;
  }

  void statistics_from_running(std::int64_t channels, double eps, const float* running_mean,
                               const float* running_variance, double* statistics) override {
    launch(device_, "running statistics", finish_from_running, blocks_for(device_, channels),
           kThreads, channels, eps, running_mean, running_variance, statistics);
  }

  void normalise(NormExtent extent, ConstArrayRef x, const NormFunction& function,
                 ConstArrayRef residual, ArrayRef y) override {
    cuda::normalise(device_, extent, x, function, residual, y);
  }

  void backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, double* sums,
                     AffineGradients gradients) override {
    visit_activation(x.dtype, [&]<typename T>() {
      visit_norm_activation(function, [&]<typename Activation>(const Activation& activation) {
        using Gradient = RecomputedGradient<Activation, T>;
        const GradientTerms<Gradient, T> terms{
            {as<T>(dy), activation}, as<T>(x), Affine(function, extent.channels)};
        start_gradient_sums<T>(extent, terms, sums, gradients, as<T>(dy), as<T>(x));
      });
    });
  }

  void masked_backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, ConstArrayRef y,
                            const double* statistics, double* sums, AffineGradients gradients,
                            ArrayRef masked) override {
    visit_activation(x.dtype, [&]<typename T>() {
      const GradientTerms<MaskedGradient<T>, T> terms{
          {as<T>(dy), as<T>(y), as<T>(masked)}, as<T>(x), Affine({statistics}, extent.channels)};
      start_gradient_sums<T>(extent, terms, sums, gradients, as<T>(dy), as<T>(x), as<T>(y),
                             as<T>(masked));
    });
  }

  void backward_data(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, const double* sums, ArrayRef dx) override {
    normalise_backward(device_, extent, dy, x, function, sums, dx);
  }

  PooledNormKernels* pooled(const PoolGeometry& pool) override {
    return has_pooled_kernels(pool) ? &pooled_ : nullptr;
  }

 private:
  template <typename T, typename Terms, typename... Memory>
  void start_gradient_sums(NormExtent extent, const Terms& terms, double* sums,
                           AffineGradients gradients, const Memory*... memory) {
    constexpr const char* kName = "batch norm backward sums";
    if (extent.parts.count == 1) {
      const StoreGradientSums write{extent.channels, sums, gradients};
      return start_sums<T>(device_, kName, extent, terms, write, memory...);
    }
    start_sums<T>(device_, kName, extent, terms, StoreSum{sums}, memory...);
    if (gradients.gamma == nullptr && gradients.beta == nullptr) return;
    launch(device_, kName, add_parts, blocks_for(device_, extent.channels), kThreads,
           extent.parts.count, extent.channels, sums, gradients);
  }

  Device& device_;
  CudaPooledNorm pooled_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm_kernels(Device& device) {
  return std::make_unique<CudaNormKernels>(device);
}

}  // namespace dlaunch::nn::cuda
