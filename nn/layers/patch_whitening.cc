#include "nn/layers/patch_whitening.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <Eigen/Dense>

#include "nn/layers/init.h"

namespace dlaunch::nn {

struct PatchCovariance::Sum {
  Eigen::MatrixXd products;
  Eigen::MatrixXf patches;  // of one image
};

PatchWhitening::PatchWhitening(Backend& backend, std::int64_t in, std::int64_t kernel,
                               Generator& generator)
    : options_{.padding = kernel / 2} {
  weight_ = add_buffer("weight", make_weights(backend, {kernel * kernel * in, kernel, kernel, in},
                                              Initialisation::kUniform, generator));
}

Tensor PatchWhitening::forward(Tensor input) {
  return conv2d(input, weight_, Tensor(), options_);
}

std::string PatchWhitening::kind() const {
  const Shape& shape = weight_.shape();
  return "PatchWhitening(" + std::to_string(shape[3]) + ", " + std::to_string(shape[0]) +
         ", kernel " + std::to_string(shape[1]) + ")";
}

Shape PatchWhitening::output_shape(const Shape& input) const {
  return conv2d_geometry(input, weight_.shape(), options_).output();
}

std::int64_t PatchWhitening::multiply_adds(const Shape& input) const {
  return output_shape(input).size() * (weight_.size() / weight_.shape()[0]);
}

PatchCovariance::PatchCovariance(std::int64_t kernel, std::int64_t channels)
    : kernel_(kernel), channels_(channels), sum_(std::make_unique<Sum>()) {
  const std::int64_t size = kernel * kernel * channels;
  sum_->products = Eigen::MatrixXd::Zero(size, size);
}

PatchCovariance::~PatchCovariance() = default;

void PatchCovariance::add(std::span<const float> image, std::int64_t height, std::int64_t width) {
  const std::int64_t rows = height - kernel_ + 1, columns = width - kernel_ + 1;
  if (rows < 1 || columns < 1) return;
  const std::int64_t row = kernel_ * channels_;
  sum_->patches.resize(kernel_ * row, rows * columns);
  for (std::int64_t y = 0; y < rows; ++y)
    for (std::int64_t x = 0; x < columns; ++x)
      for (std::int64_t k = 0; k < kernel_; ++k) {
        const float* from = &image[static_cast<std::size_t>(((y + k) * width + x) * channels_)];
        sum_->patches.col(y * columns + x).segment(k * row, row) =
            Eigen::Map<const Eigen::VectorXf>(from, row);
      }
  sum_->products += (sum_->patches * sum_->patches.transpose()).cast<double>();
  patches_ += rows * columns;
}

std::vector<float> PatchCovariance::filters(double eps) const {
  if (patches_ == 0) throw Error("whitening: the images have no patches");
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(
      sum_->products / std::max(1.0, static_cast<double>(patches_ - 1)));
  std::vector<float> filters;
  for (Eigen::Index i = solver.eigenvalues().size(); i-- > 0;) {  // eigenvalues ascend
    Eigen::VectorXd vector = solver.eigenvectors().col(i);
    Eigen::Index largest = 0;
    vector.cwiseAbs().maxCoeff(&largest);
    if (vector[largest] < 0) vector = -vector;
    vector /= std::sqrt(solver.eigenvalues()[i] + eps);
    for (const double value : vector) filters.push_back(static_cast<float>(value));
  }
  return filters;
}

void fill_whitening(const Module& network, const std::function<void(PatchCovariance&)>& images_of) {
  for (const auto& [name, child] : network.children()) {
    fill_whitening(*child, images_of);
    const auto* const layer = dynamic_cast<const PatchWhitening*>(child.get());
    if (layer == nullptr) continue;
    const Shape& shape = layer->weight().shape();
    PatchCovariance covariance(shape[1], shape[3]);
    images_of(covariance);
    const std::vector<float> filters = covariance.filters();
    layer->weight().backend().copy_from_host(layer->weight().data<float>(), filters.data(),
                                             filters.size() * sizeof(float));
  }
}

}  // namespace dlaunch::nn
