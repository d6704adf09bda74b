// The operations of nn written out plainly in double, and checks of nn's results and gradients
// against them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"

namespace dlaunch::nn::reference {

/// A dense row-major array of doubles.
struct Array {
  Shape shape;
  std::vector<double> values;

  explicit Array(const Shape& extents)
      : shape(extents), values(static_cast<std::size_t>(extents.size())) {}

  double& at(std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double at(std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  /// Element of a matrix or an image batch.
  double& at(std::int64_t r, std::int64_t c) { return at(r * shape[1] + c); }
  double at(std::int64_t r, std::int64_t c) const { return at(r * shape[1] + c); }
  double& at(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
    return at(((n * shape[1] + y) * shape[2] + x) * shape[3] + c);
  }
  double at(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return at(((n * shape[1] + y) * shape[2] + x) * shape[3] + c);
  }
};

inline Array conv2d(const Array& x, const Array& w, const Array* bias, std::int64_t stride,
                    std::int64_t padding) {
  const std::int64_t rows = (x.shape[1] + 2 * padding - w.shape[1]) / stride + 1;
  const std::int64_t columns = (x.shape[2] + 2 * padding - w.shape[2]) / stride + 1;
  Array y({x.shape[0], rows, columns, w.shape[0]});
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        for (std::int64_t o = 0; o < w.shape[0]; ++o) {
          double sum = bias != nullptr ? bias->at(o) : 0.0;
          for (std::int64_t kr = 0; kr < w.shape[1]; ++kr) {
            for (std::int64_t kc = 0; kc < w.shape[2]; ++kc) {
              const std::int64_t xr = r * stride - padding + kr;
              const std::int64_t xc = c * stride - padding + kc;
              if (xr < 0 || xr >= x.shape[1] || xc < 0 || xc >= x.shape[2]) continue;
              for (std::int64_t i = 0; i < x.shape[3]; ++i) {
                sum += x.at(n, xr, xc, i) * w.at(o, kr, kc, i);
              }
            }
          }
          y.at(n, r, c, o) = sum;
        }
      }
    }
  }
  return y;
}

/// Gradient of a 3x3 convolution's input (stride 1) from that of its result.
inline Array conv2d_data(const Array& dy, const Array& w, std::int64_t padding = 1) {
  const std::int64_t border = 2 - 2 * padding;
  Array dx({dy.shape[0], dy.shape[1] + border, dy.shape[2] + border, w.shape[3]});
  for (std::int64_t n = 0; n < dx.shape[0]; ++n) {
    for (std::int64_t r = 0; r < dx.shape[1]; ++r) {
      for (std::int64_t c = 0; c < dx.shape[2]; ++c) {
        for (std::int64_t kr = 0; kr < 3; ++kr) {
          for (std::int64_t kc = 0; kc < 3; ++kc) {
            const std::int64_t yr = r + padding - kr;
            const std::int64_t yc = c + padding - kc;
            if (yr < 0 || yr >= dy.shape[1] || yc < 0 || yc >= dy.shape[2]) continue;
            for (std::int64_t i = 0; i < w.shape[3]; ++i) {
              for (std::int64_t o = 0; o < w.shape[0]; ++o) {
                dx.at(n, r, c, i) += dy.at(n, yr, yc, o) * w.at(o, kr, kc, i);
              }
            }
          }
        }
      }
    }
  }
  return dx;
}

/// Gradient of the weights of a 3x3 convolution.
inline Array conv2d_weights(const Array& x, const Array& dy, std::int64_t stride = 1,
                            std::int64_t padding = 1) {
  Array dw({dy.shape[3], 3, 3, x.shape[3]});
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    for (std::int64_t r = 0; r < dy.shape[1]; ++r) {
      for (std::int64_t c = 0; c < dy.shape[2]; ++c) {
        for (std::int64_t kr = 0; kr < 3; ++kr) {
          for (std::int64_t kc = 0; kc < 3; ++kc) {
            const std::int64_t xr = r * stride - padding + kr;
            const std::int64_t xc = c * stride - padding + kc;
            if (xr < 0 || xr >= x.shape[1] || xc < 0 || xc >= x.shape[2]) continue;
            for (std::int64_t o = 0; o < dy.shape[3]; ++o) {
              for (std::int64_t i = 0; i < x.shape[3]; ++i) {
                dw.at(o, kr, kc, i) += dy.at(n, r, c, o) * x.at(n, xr, xc, i);
              }
            }
          }
        }
      }
    }
  }
  return dw;
}

inline Array linear(const Array& x, const Array& w, const Array* bias) {
  Array y({x.shape[0], w.shape[0]});
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    for (std::int64_t o = 0; o < w.shape[0]; ++o) {
      double sum = bias != nullptr ? bias->at(o) : 0.0;
      for (std::int64_t i = 0; i < x.shape[1]; ++i) sum += x.at(n, i) * w.at(o, i);
      y.at(n, o) = sum;
    }
  }
  return y;
}

inline Array max_pool2d(const Array& x, std::int64_t kernel, std::int64_t stride,
                        std::int64_t padding) {
  const std::int64_t rows = (x.shape[1] + 2 * padding - kernel) / stride + 1;
  const std::int64_t columns = (x.shape[2] + 2 * padding - kernel) / stride + 1;
  Array y({x.shape[0], rows, columns, x.shape[3]});
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        for (std::int64_t ch = 0; ch < x.shape[3]; ++ch) {
          double best = -INFINITY;
          for (std::int64_t xr = r * stride - padding; xr < r * stride - padding + kernel; ++xr) {
            for (std::int64_t xc = c * stride - padding; xc < c * stride - padding + kernel; ++xc) {
              if (xr < 0 || xr >= x.shape[1] || xc < 0 || xc >= x.shape[2]) continue;
              best = std::max(best, x.at(n, xr, xc, ch));
            }
          }
          y.at(n, r, c, ch) = best;
        }
      }
    }
  }
  return y;
}

inline Array global_avg_pool(const Array& x) {
  Array y({x.shape[0], x.shape[3]});
  const auto pixels = static_cast<double>(x.shape[1] * x.shape[2]);
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    for (std::int64_t r = 0; r < x.shape[1]; ++r) {
      for (std::int64_t c = 0; c < x.shape[2]; ++c) {
        for (std::int64_t ch = 0; ch < x.shape[3]; ++ch) {
          y.at(n, ch) += x.at(n, r, c, ch) / pixels;
        }
      }
    }
  }
  return y;
}

/// Sum over the rows of -sum_k target_k log(softmax(z)_k).
inline Array cross_entropy(const Array& z, const std::vector<std::int64_t>& labels,
                           double smoothing) {
  Array loss(Shape{});
  const std::int64_t classes = z.shape[1];
  for (std::int64_t n = 0; n < z.shape[0]; ++n) {
    double sum = 0;
    for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(z.at(n, k));
    for (std::int64_t k = 0; k < classes; ++k) {
      const double one_hot = labels[static_cast<std::size_t>(n)] == k ? 1.0 : 0.0;
      const double target = (1 - smoothing) * one_hot + smoothing / static_cast<double>(classes);
      loss.at(0) -= target * (z.at(n, k) - std::log(sum));
    }
  }
  return loss;
}

inline Tensor to_tensor(Backend& backend, const Array& array) {
  const std::vector<float> values(array.values.begin(), array.values.end());
  return Tensor::from<float>(backend, array.shape, values);
}

/// Overwrites one element, on any device.
inline void set_element(const Tensor& tensor, std::int64_t i, float value) {
  tensor.backend().copy_from_host(tensor.data<float>() + i, &value, sizeof value);
}

/// Normal values that are exact in float, so that both sides compute with the same numbers.
inline Array random_array(const Shape& shape, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  Array array(shape);
  for (double& value : array.values) value = static_cast<double>(normal(random));
  return array;
}

/// Every element within `tolerance` times the largest magnitude of `expected` (or of 1).
inline void expect_close(const Tensor& actual, const Array& expected, double tolerance,
                         const std::string& what) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.shape(), expected.shape)
      << what << ": " << actual.shape().to_string() << " for " << expected.shape.to_string();
  double scale = 1.0;
  for (const double value : expected.values) scale = std::max(scale, std::abs(value));
  const auto values = actual.host_values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected.values[i], tolerance * scale) << what << ", element " << i;
  }
}

/// d(weighting . f(inputs)) / d(element `i` of inputs[which]), by central differences.
inline double finite_difference(const std::function<Array(const std::vector<Array>&)>& f,
                                std::vector<Array>& inputs, std::size_t which, std::size_t i,
                                const Array& weighting) {
  constexpr double kStep = 1e-5;
  const auto objective = [&] {
    const Array result = f(inputs);
    return std::inner_product(result.values.begin(), result.values.end(), weighting.values.begin(),
                              0.0);
  };
  double& value = inputs[which].values[i];
  const double before = value;
  value = before + kStep;
  const double above = objective();
  value = before - kStep;
  const double below = objective();
  value = before;
  return (above - below) / (2 * kStep);
}

/// Compares the gradient of inputs[which] with finite differences, at all elements or, of large
/// inputs, at kMostElements random ones. As in expect_close: what floats lose in a sum depends on
/// its terms, and an element may be the small sum of large ones.
inline void expect_gradient(const Tensor& gradient,
                            const std::function<Array(const std::vector<Array>&)>& f,
                            std::vector<Array> inputs, std::size_t which, const Array& weighting,
                            std::mt19937_64& random, double tolerance) {
  constexpr std::size_t kMostElements = 120;
  const std::string what = "gradient of input " + std::to_string(which);
  ASSERT_TRUE(gradient.defined()) << what;
  ASSERT_EQ(gradient.shape(), inputs[which].shape) << what;
  const auto values = gradient.host_values<float>();
  std::vector<std::size_t> elements(values.size());
  std::iota(elements.begin(), elements.end(), 0U);
  std::shuffle(elements.begin(), elements.end(), random);
  elements.resize(std::min(elements.size(), kMostElements));
  std::vector<double> expected;
  double scale = 1;
  for (const std::size_t i : elements) {
    expected.push_back(finite_difference(f, inputs, which, i, weighting));
    scale = std::max(scale, std::abs(expected.back()));
  }
  for (std::size_t k = 0; k < elements.size(); ++k)
    ASSERT_NEAR(values[elements[k]], expected[k], tolerance * scale)
        << what << ", element " << elements[k];
}

/// Checks an operation against its reference: the result, and the gradients of all inputs for a
/// random weighting of the result's elements.
inline void check_operation(Backend& backend,
                            const std::function<Tensor(const std::vector<Tensor>&)>& operation,
                            const std::function<Array(const std::vector<Array>&)>& plain,
                            const std::vector<Array>& inputs, std::mt19937_64& random,
                            double tolerance = 1e-5) {
  std::vector<Tensor> leaves;
  for (const Array& input : inputs) {
    leaves.push_back(to_tensor(backend, input));
    leaves.back().set_requires_grad(true);
  }
  const Tensor result = operation(leaves);
  const Array expected = plain(inputs);
  expect_close(result, expected, tolerance, "result");
  const Array weighting = random_array(expected.shape, random);
  backward(result, {.gradient = to_tensor(backend, weighting)});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expect_gradient(leaves[i].grad(), plain, inputs, i, weighting, random, tolerance);
  }
}

}  // namespace dlaunch::nn::reference
