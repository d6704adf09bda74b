#include "nn/layers/patch_whitening.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <Eigen/Dense>

#include "nn/cpu/parallel.h"
#include "nn/layers/init.h"

namespace dlaunch::nn {

namespace {

// Images whose sums are one task, however many threads there are: so the result is the same.
constexpr std::int64_t kImagesPerTask = 8;

}  // namespace

struct PatchCovariance::Sum {
  explicit Sum(std::int64_t size)
      : products(Eigen::MatrixXd::Zero(size, size)), sums(Eigen::VectorXd::Zero(size)) {}

  // `patches` has one in each column. Products in f32 are of what is left of them without their
  // mean, which may be far larger; it is taken off here and put back in f64.
  void add(Eigen::MatrixXf& patches) {
    const Eigen::VectorXf shift = patches.rowwise().mean();
    patches.colwise() -= shift;
    const auto count = static_cast<double>(patches.cols());
    const Eigen::VectorXd mean = shift.cast<double>();
    const Eigen::VectorXd rest = patches.rowwise().sum().cast<double>();
    const Eigen::VectorXd sum = rest + count * mean;
    products += (patches * patches.transpose()).cast<double>() + rest * mean.transpose() +
                mean * sum.transpose();
    sums += sum;
  }

  Eigen::MatrixXd products;
  Eigen::VectorXd sums;
};

PatchWhitening::PatchWhitening(Backend& backend, std::int64_t in, Generator& generator,
                               const PatchWhiteningOptions& options)
    : options_(options) {
  const std::int64_t kernel = options.kernel;
  if (kernel < 1 || (options.pad && kernel % 2 == 0))
    throw Error("PatchWhitening: a kernel of " + std::to_string(kernel) +
                (kernel < 1 ? "" : " cannot keep the size of images; use an odd one, or no pad"));
  const std::int64_t out = kernel * kernel * in * (options.negated ? 2 : 1);
  weight_ = add_buffer("weight", make_weights(backend, {out, kernel, kernel, in},
                                              Initialisation::kUniform, generator));
  if (options.bias == StemBias::kZeros)
    bias_ = add_parameter("bias", Tensor::zeros(backend, {out}), ParameterKind::kStem);
  if (options.bias == StemBias::kRandom)
    bias_ = add_parameter("bias", make_bias(backend, out, kernel * kernel * in, generator),
                          ParameterKind::kStem);
}

Tensor PatchWhitening::forward(Tensor input) {
  return conv2d(convert(std::move(input), options_.compute_type), weight_, bias_, convolution());
}

std::string PatchWhitening::kind() const {
  const Shape& shape = weight_.shape();
  return "PatchWhitening(" + std::to_string(shape[3]) + ", " + std::to_string(shape[0]) +
         ", kernel " + std::to_string(shape[1]) + ")";
}

Shape PatchWhitening::output_shape(const Shape& input) const {
  return conv2d_geometry(input, weight_.shape(), convolution()).output();
}

std::int64_t PatchWhitening::multiply_adds(const Shape& input) const {
  return output_shape(input).size() * (weight_.size() / weight_.shape()[0]);
}

PatchCovariance::PatchCovariance(std::int64_t kernel, std::int64_t channels)
    : kernel_(kernel),
      channels_(channels),
      sum_(std::make_unique<Sum>(kernel * kernel * channels)) {}

PatchCovariance::~PatchCovariance() = default;

void PatchCovariance::add(std::span<const float> images, std::int64_t height, std::int64_t width) {
  const std::int64_t rows = height - kernel_ + 1, columns = width - kernel_ + 1;
  if (rows < 1 || columns < 1) return;
  const std::int64_t row = kernel_ * channels_;
  const std::int64_t values = height * width * channels_;
  const std::int64_t count = std::ssize(images) / values;
  const auto add_image = [&](Sum& sum, Eigen::MatrixXf& patches, const float* image) {
    for (std::int64_t y = 0; y < rows; ++y)
      for (std::int64_t x = 0; x < columns; ++x)
        for (std::int64_t k = 0; k < kernel_; ++k)
          patches.col(y * columns + x).segment(k * row, row) =
              Eigen::Map<const Eigen::VectorXf>(image + ((y + k) * width + x) * channels_, row);
    sum.add(patches);
  };
  std::vector<Sum> sums(static_cast<std::size_t>((count + kImagesPerTask - 1) / kImagesPerTask),
                        Sum(kernel_ * row));
  cpu::parallel_ranges(std::ssize(sums), 1, [&](std::int64_t begin, std::int64_t end) {
    Eigen::MatrixXf patches(kernel_ * row, rows * columns);
    for (std::int64_t i = begin * kImagesPerTask; i < std::min(count, end * kImagesPerTask); ++i)
      add_image(sums[static_cast<std::size_t>(i / kImagesPerTask)], patches, &images[i * values]);
  });
  for (const Sum& each : sums) {
    sum_->products += each.products;
    sum_->sums += each.sums;
  }
  patches_ += count * rows * columns;
}

std::vector<float> PatchCovariance::filters(double eps, bool centred) const {
  if (patches_ == 0) throw Error("whitening: the images have no patches");
  Eigen::MatrixXd products = sum_->products;
  if (centred) products -= sum_->sums * sum_->sums.transpose() / static_cast<double>(patches_);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(
      products / std::max(1.0, static_cast<double>(patches_ - 1)));
  std::vector<float> filters;
  for (Eigen::Index i = solver.eigenvalues().size(); i-- > 0;) {  // eigenvalues ascend
    Eigen::VectorXd vector = solver.eigenvectors().col(i);
    Eigen::Index largest = 0;
    vector.cwiseAbs().maxCoeff(&largest);
    if (vector[largest] < 0) vector = -vector;
    const double variance = std::max(0.0, solver.eigenvalues()[i]) + eps;
    if (!(variance > 0))
      throw Error(
          "whitening: the patches of the images do not vary in every direction, and eps is 0");
    vector /= std::sqrt(variance);
    for (const double value : vector) filters.push_back(static_cast<float>(value));
  }
  return filters;
}

void fill_whitening(
    const Module& network,
    const std::function<void(PatchCovariance& covariance, std::size_t images)>& images_of) {
  for (const NamedModule& each : named_modules(network)) {
    const auto* const layer = dynamic_cast<const PatchWhitening*>(each.module);
    if (layer == nullptr) continue;
    const PatchWhiteningOptions& options = layer->options();
    PatchCovariance covariance(options.kernel, layer->weight().shape()[3]);
    images_of(covariance, options.images);
    std::vector<float> filters = covariance.filters(options.eps, options.centred);
    const std::size_t count = filters.size();
    for (std::size_t i = 0; options.negated && i < count; ++i) filters.push_back(-filters[i]);
    layer->weight().set_values<float>(filters);
  }
}

}  // namespace dlaunch::nn
