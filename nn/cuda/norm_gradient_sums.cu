// The sums that backward of batch normalisation needs, of the gradient behind its activation.
#include "nn/cuda/norm_function.cuh"
#include "nn/cuda/norm_passes.h"
#include "nn/cuda/row_sums.cuh"

namespace dlaunch::nn::cuda {
namespace {

// The gradient behind the activation, whose argument is made again of x.
template <typename Activation, typename T>
struct RecomputedGradient {
  static constexpr int kRows = 4;
  template <int kWidth>
  using Row = Pack<T, kWidth>;

  const T* dy;
  Activation activation;

  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    row = read_pack<kWidth>(dy + at.offset);
  }
  template <int kWidth>
  __device__ void take(const RowPack& /*at*/, const Row<kWidth>& row, const float (&x)[kWidth],
                       const NormaliseCoefficients (&of)[kWidth],
                       float (&gradients)[kWidth]) const {
    to_floats(row, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      gradients[k] = activation.gradient(normalised(x[k], of[k]), gradients[k]);
  }
};

// The gradient behind a ReLU of whose argument x is only a part, from its output; it is stored.
template <typename T>
struct MaskedGradient {
  static constexpr int kRows = 2;
  template <int kWidth>
  struct Row {
    Pack<T, kWidth> dy, y;
  };

  const T* dy;
  const T* y;
  T* masked;

  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    row.dy = read_pack<kWidth>(dy + at.offset);
    row.y = read_pack<kWidth>(y + at.offset);
  }
  template <int kWidth>
  __device__ void take(const RowPack& at, const Row<kWidth>& row, const float (&/*x*/)[kWidth],
                       const NormaliseCoefficients (&/*of*/)[kWidth],
                       float (&gradients)[kWidth]) const {
    float outputs[kWidth];
    to_floats(row.dy, gradients);
    to_floats(row.y, outputs);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] = Relu::gradient(outputs[k], gradients[k]);
    store_pack(masked + at.offset, gradients);
  }
};

// Sums of dz and dz (x - shift).
template <typename Gradient, typename T>
struct GradientTerms {
  static constexpr int kSums = 2;
  static constexpr int kRows = Gradient::kRows;
  template <int kWidth>
  struct Row {
    typename Gradient::template Row<kWidth> gradient;
    Pack<T, kWidth> x;
  };
  template <int kWidth>
  struct State {
    NormaliseCoefficients of[kWidth];
  };

  Gradient gradient;
  const T* x;
  Affine affine;

  template <int kWidth>
  __device__ State<kWidth> enter(std::int64_t part, std::int64_t channels) const {
    const Affine own = affine.of_part(part, channels);
    State<kWidth> state;
    make_for_block(
        channels, [&](std::int64_t channel) { return own.coefficients_of(channel); }, state.of);
    return state;
  }
  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    gradient.load(at, row.gradient);
    row.x = read_pack<kWidth>(x + at.offset);
  }
  template <int kWidth>
  __device__ void begin(const Row<kWidth>& /*row*/, State<kWidth>& /*state*/) const {}
  template <int kWidth>
  __device__ void add(const RowPack& at, const Row<kWidth>& row, const State<kWidth>& state,
                      float (&sums)[kSums][kWidth]) const {
    float gradients[kWidth];
    float values[kWidth];
    to_floats(row.x, values);
    gradient.take(at, row.gradient, values, state.of, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      sums[0][k] += gradients[k];
      sums[1][k] += gradients[k] * (values[k] - state.of[k].shift);
    }
  }
  template <int kWidth>
  __device__ void finish(double /*count*/, const State<kWidth>& /*state*/,
                         double (&/*sums*/)[kSums][kWidth]) const {}
};

// Sums for backward; of a single part the gradients of gamma and beta are made of the same.
struct StoreGradientSums {
  std::int64_t channels;
  Affine affine;
  double* sums;
  AffineGradients gradients;

  __device__ void operator()(std::int64_t part, std::int64_t channel,
                             const double (&about_shift)[2]) const {
    const Affine of = affine.of_part(part, channels);
    const double beta = about_shift[0];
    const double gamma =
        sum_with_xhat(split(of.means[channel]), of.inv_stds[channel], beta, about_shift[1]);
    double* const own = sums + 2 * part * channels;
    own[channel] = beta;
    own[channels + channel] = gamma;
    if (gradients.beta != nullptr) gradients.beta[channel] += static_cast<float>(beta);
    if (gradients.gamma != nullptr) gradients.gamma[channel] += static_cast<float>(gamma);
  }
};

// The same of several parts, whose sums other threads have.
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

template <typename Gradient, typename T, typename... Memory>
void start_gradient_sums(Device& device, NormExtent extent, const GradientTerms<Gradient, T>& terms,
                         double* sums, AffineGradients gradients, const Memory*... memory) {
  constexpr const char* kName = "batch norm backward sums";
  const bool whole = extent.parts.count == 1;
  const StoreGradientSums write{extent.channels, terms.affine, sums,
                                whole ? gradients : AffineGradients()};
  start_row_sums<T>(device, kName, extent.rows, extent.channels, extent.parts, terms, write,
                    memory...);
  if (whole || (gradients.gamma == nullptr && gradients.beta == nullptr)) return;
  launch(device, kName, add_parts, blocks_for(device, extent.channels), kThreads,
         extent.parts.count, extent.channels, sums, gradients);
}

}  // namespace

void gradient_sums(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                   const NormFunction& function, double* sums, AffineGradients gradients) {
  visit_activation(x.dtype, [&]<typename T>() {
    visit_norm_activation(function, [&]<typename Activation>(const Activation& activation) {
      using Gradient = RecomputedGradient<Activation, T>;
      const GradientTerms<Gradient, T> terms{
          {as<T>(dy), activation}, as<T>(x), Affine(function, extent.channels)};
      start_gradient_sums(device, extent, terms, sums, gradients, as<T>(dy), as<T>(x));
    });
  });
}

void masked_gradient_sums(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                          ConstArrayRef y, const double* statistics, double* sums,
                          AffineGradients gradients, ArrayRef masked) {
  visit_activation(x.dtype, [&]<typename T>() {
    const GradientTerms<MaskedGradient<T>, T> terms{
        {as<T>(dy), as<T>(y), as<T>(masked)}, as<T>(x), Affine({statistics}, extent.channels)};
    start_gradient_sums(device, extent, terms, sums, gradients, as<T>(dy), as<T>(x), as<T>(y),
                        as<T>(masked));
  });
}

}  // namespace dlaunch::nn::cuda
