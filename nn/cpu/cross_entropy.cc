#include <algorithm>
#include <cmath>
#include <string>

#include "nn/core/error.h"
#include "nn/cpu/kernels.h"

namespace dlaunch::nn::cpu {
namespace {

void check_labels(std::int64_t n, std::int64_t classes, const std::int32_t* labels) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (labels[i] < 0 || labels[i] >= classes) {
      throw Error("cross_entropy: label " + std::to_string(i) + " is " + std::to_string(labels[i]) +
                  ", but there are " + std::to_string(classes) + " classes");
    }
  }
}

}  // namespace

// With the row's maximum m taken out, log softmax_k = z_k - m - log sum exp(z - m) cannot overflow.
// A row costs a few hundred exponentials at most, next to nothing beside the layers before it.
void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                   const std::int32_t* labels, float smoothing, float* loss, float* gradient) {
  check_labels(n, classes, labels);
  const double on_label = 1.0 - smoothing;
  const double on_each = smoothing / static_cast<double>(classes);
  double total = 0;
  for (std::int64_t row = 0; row < n; ++row) {
    const float* z = logits + row * classes;
    const float largest = *std::max_element(z, z + classes);
    double sum = 0;
    double shifted_sum = 0;
    for (std::int64_t k = 0; k < classes; ++k) {
      sum += std::exp(z[k] - largest);
      shifted_sum += static_cast<double>(z[k]) - largest;
    }
    const double log_sum = std::log(sum);
    const auto label = static_cast<std::int64_t>(labels[row]);
    total += log_sum - on_label * (static_cast<double>(z[label]) - largest);
    if (on_each != 0) total -= on_each * shifted_sum;  // which may be infinite
    if (gradient == nullptr) continue;
    float* g = gradient + row * classes;
    for (std::int64_t k = 0; k < classes; ++k) {
      g[k] = static_cast<float>(std::exp(z[k] - largest) / sum - on_each);
    }
    g[label] -= static_cast<float>(on_label);
  }
  *loss = static_cast<float>(total);
}

}  // namespace dlaunch::nn::cpu
