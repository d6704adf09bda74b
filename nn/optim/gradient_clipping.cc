#include "nn/optim/gradient_clipping.h"

#include <cmath>

#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {

GradientClipper::GradientClipper(Backend& backend, double max_norm)
    : max_norm_(max_norm), squares_(Tensor::zeros(backend, {1}, DType::kF64)) {
  if (!(max_norm > 0)) throw Error("clipping gradients: the greatest norm must be above 0");
}

void GradientClipper::begin() {
  squares_.backend().clear(squares_.data<double>(), sizeof(double));
}

void GradientClipper::add(std::int64_t count, const float* gradients) {
  squares_.backend().optimizer().add_squares(count, gradients, squares_.data<double>());
}

void GradientClipper::clip(std::int64_t count, float* gradients) {
  squares_.backend().optimizer().clip_norm(count, squares_.data<const double>(), max_norm_,
                                           gradients);
}

double GradientClipper::norm() const {
  return std::sqrt(squares_.host_values<double>()[0]);
}

}  // namespace dlaunch::nn
