// Muon: its iterations, and whole steps against the same in double.
#include "nn/optim/muon.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/ops.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;

double norm_of(const Array& x) {
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  return std::sqrt(squares);
}

/// factor x, as [rows, columns].
Array scaled(const Array& x, double factor) {
  Array y({x.shape[0], x.shape.size() / x.shape[0]});
  for (std::size_t i = 0; i < x.values.size(); ++i) y.values[i] = factor * x.values[i];
  return y;
}

Array transposed(const Array& x) {
  Array y({x.shape[1], x.shape[0]});
  for (std::int64_t r = 0; r < x.shape[0]; ++r)
    for (std::int64_t c = 0; c < x.shape[1]; ++c) y.at(c, r) = x.at(r, c);
  return y;
}

/// alpha a b + beta c
Array product(double alpha, const Array& a, const Array& b, double beta, const Array& c) {
  Array d = scaled(c, beta);
  for (std::int64_t r = 0; r < d.shape[0]; ++r)
    for (std::int64_t k = 0; k < a.shape[1]; ++k)
      for (std::int64_t j = 0; j < d.shape[1]; ++j) d.at(r, j) += alpha * a.at(r, k) * b.at(k, j);
  return d;
}

/// The greatest slope of a s + b s^3 + c s^5 for s in [0, most].
double steepest_slope(double most) {
  double slope = 0;
  for (double s = 0; s <= most; s += 1e-4)
    slope = std::max(slope, std::abs(kA + 3 * kB * s * s + 5 * kC * std::pow(s, 4)));
  return slope;
}

/// The iterations in double, of a matrix of norm 1, and what error they may have if every X, A and
/// B = b A + c A A that is computed has rounding errors of this size, relative to its norm, which
/// do not know of each other: so their squares add up.
//
// To first order an iteration takes an error of X to one that is at most the greatest slope of its
// polynomial times as large in the Frobenius norm, as the derivative of an odd function of a matrix
// consists of difference quotients of that function at the singular values (Higham, Functions of
// Matrices, 3.2). These begin in [0, 1] and stay in [0, 1.2025], which the polynomial maps into
// itself. In the same way an error of A reaches B at most 4.775-fold.
struct Iterated {
  Array x;
  double error;
};
Iterated iterate(const Array& begin, int iterations, double rounding) {
  const bool tall = begin.shape[0] > begin.shape[1];
  Array x = tall ? transposed(begin) : begin;
  double error = rounding;
  for (int i = 0; i < iterations; ++i) {
    const double most = i == 0 ? 1 : 1.2025;
    const Array a = product(1, x, transposed(x), 0, Array({x.shape[0], x.shape[0]}));
    const Array b = product(kC, a, a, kB, a);
    x = product(1, b, x, kA, x);
    error = std::hypot(steepest_slope(most) * error, rounding * most * kB * norm_of(a),
                       rounding * std::hypot(most * norm_of(b), norm_of(x)));
  }
  return {tall ? transposed(x) : x, error};
}

/// The size of a matrix's rounding errors relative to it: in bf16 the values of an interval lie
/// 2^-7 of its lower end apart, and errors are spread evenly over that; sums of `terms` in f32.
double rounding_of(DType type, std::int64_t terms) {
  const double sums = std::sqrt(static_cast<double>(terms)) * 0x1p-24;
  return type == DType::kF32 ? sums : std::hypot(sums, 0x1p-7 / std::sqrt(12.0));
}

class NewtonSchulz : public OpTest, public ::testing::WithParamInterface<Shape> {
 protected:
  Array normalised() {
    const Array x = random_array(GetParam());
    return scaled(x, 1 / norm_of(x));
  }
  /// `count` such matrices.
  std::vector<Array> several(int count) {
    std::vector<Array> all;
    for (int i = 0; i < count; ++i) all.push_back(normalised());
    return all;
  }
  Tensor orthogonalise(const std::vector<Array>& all, int iterations, DType type) {
    const Shape& shape = all.front().shape;
    Array batch({static_cast<std::int64_t>(all.size()), shape[0], shape[1]});
    batch.values.clear();
    for (const Array& x : all)
      batch.values.insert(batch.values.end(), x.values.begin(), x.values.end());
    return newton_schulz(convert(reference::to_tensor(*backend_, batch), type), iterations);
  }
};

TEST_P(NewtonSchulz, BringsSingularValuesNearOne) {
  const Array begin = normalised();
  const Tensor result = orthogonalise({begin}, 8, DType::kF32);
  const std::int64_t rows = begin.shape[0], columns = begin.shape[1];
  ASSERT_EQ(result.shape(), (Shape{1, rows, columns}));
  std::normal_distribution<double> normal;
  // |x| for unit vectors x of the shorter side: between the smallest and largest singular value.
  const bool wide = rows <= columns;
  const auto matrix = result.host_values<float>();
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> unit(static_cast<std::size_t>(std::min(rows, columns)));
    double squares = 0;
    for (double& x : unit) squares += std::pow(x = normal(random_), 2);
    double length = 0;
    for (std::int64_t j = 0; j < std::max(rows, columns); ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < std::min(rows, columns); ++i)
        sum += unit[static_cast<std::size_t>(i)] *
               static_cast<double>(
                   matrix[static_cast<std::size_t>(wide ? i * columns + j : j * columns + i)]);
      length += sum * sum;
    }
    const double value = std::sqrt(length / squares);
    EXPECT_GT(value, 0.6);
    EXPECT_LT(value, 1.3);
  }
}

TEST_P(NewtonSchulz, OfABatchIsThatInDoubleUpToRounding) {
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const int count : {1, 3}) {
      const std::vector<Array> begin = several(count);
      const Tensor result = orthogonalise(begin, 3, type);
      EXPECT_EQ(result.dtype(), type);
      const auto values = convert(result, DType::kF32).host_values<float>();
      const std::int64_t size = begin[0].shape.size();
      for (std::int64_t i = 0; i < count; ++i) {
        const auto [expected, bound] =
            iterate(begin[static_cast<std::size_t>(i)], 3,
                    rounding_of(type, std::max(begin[0].shape[0], begin[0].shape[1])));
        Array error = expected;
        for (std::int64_t k = 0; k < size; ++k)
          error.at(k) -= static_cast<double>(values[static_cast<std::size_t>(i * size + k)]);
        EXPECT_LT(norm_of(error), bound);
        EXPECT_LT(bound, 0.2 * norm_of(expected)) << "a bound that says nothing";
      }
    }
}

TEST_P(NewtonSchulz, InBf16IsNearlyThatInF32) {
  const std::vector<Array> begin{normalised()};
  const auto exact = orthogonalise(begin, 3, DType::kF32).host_values<float>();
  const auto values =
      convert(orthogonalise(begin, 3, DType::kBF16), DType::kF32).host_values<float>();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(static_cast<double>(values[i]) - static_cast<double>(exact[i]), 2);
    size += std::pow(static_cast<double>(exact[i]), 2);
  }
  EXPECT_GT(error, 0);
  // What rounding the beginning alone may come to: each step's polynomial, whose slope is nowhere
  // more than its first coefficient, enlarges it.
  EXPECT_LT(std::sqrt(error / size), std::pow(kA, 3) * 0x1p-9);
}

INSTANTIATE_TEST_SUITE_P(Shapes, NewtonSchulz,
                         ::testing::Values(Shape{8, 8}, Shape{5, 40}, Shape{33, 7}, Shape{8, 40},
                                           Shape{16, 3, 3, 8}, Shape{64, 1, 1, 3}));

/// Matrices "m0", ... of these shapes, a bias behind each, and a classifier.
class Matrices : public Module {
 public:
  Matrices(Backend& backend, const std::vector<Shape>& shapes) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      add_parameter("m" + std::to_string(i), Tensor::zeros(backend, shapes[i]),
                    ParameterKind::kWeight);
      add_parameter("b" + std::to_string(i), Tensor::zeros(backend, {static_cast<int>(i) % 5 + 1}),
                    i % 2 == 0 ? ParameterKind::kBias : ParameterKind::kNorm);
    }
    add_parameter("fc", Tensor::zeros(backend, {3, 5}), ParameterKind::kWeight);
  }
  Tensor forward(Tensor input) override { return input; }
  std::string kind() const override { return "Matrices"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

class MuonSteps : public OpTest {
 protected:
  /// Three steps, each compared with one in double that begins where it began.
  void check(const std::vector<Shape>& shapes, const MuonOptions& options);

  void fill(const FlatParameters& flat, const Tensor& to) {
    std::vector<float> values(static_cast<std::size_t>(to.size()));
    for (const FlatView& view : flat.views)
      for (std::int64_t i = 0; i < view.count && view.name != kStill; ++i)
        values[static_cast<std::size_t>(view.offset + i)] = normal_(random_);
    to.set_values<float>(values);
  }

  static constexpr const char* kStill = "m1";  // a matrix without gradients, of zeros
  std::normal_distribution<float> normal_;
};

Array part_of(const std::vector<float>& flat, const FlatView& view) {
  Array part(view.parameter.shape());
  for (std::int64_t i = 0; i < view.count; ++i)
    part.at(i) = static_cast<double>(flat[static_cast<std::size_t>(view.offset + i)]);
  return part;
}

/// a + factor b
Array plus(Array a, double factor, const Array& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += factor * b.values[i];
  return a;
}

double scale_of(MuonScale scale, double rows, double columns) {
  if (scale == MuonScale::kOriginal) return std::sqrt(std::max(1.0, rows / columns));
  return scale == MuonScale::kMatchAdam ? 0.2 * std::sqrt(std::max(rows, columns)) : 1;
}

struct Expected {
  Array parameters, velocities;
  double error;  // of the parameters, in the Frobenius norm
};

/// The rule as nn/optim/muon.h has it, in double.
Expected step_of_matrix(const MuonOptions& options, double rate, const Array& p, const Array& v,
                        const Array& g) {
  const std::int64_t rows = p.shape[0], columns = p.shape.size() / rows;
  const Array velocity = plus(g, options.momentum, v);
  const Array u = options.nesterov ? plus(g, options.momentum, velocity) : velocity;
  const auto [x, error] =
      iterate(scaled(u, 1 / (norm_of(u) + 1e-7)), options.iterations,
              rounding_of(options.bf16 ? DType::kBF16 : DType::kF32, std::max(rows, columns)));
  double keep = 1 - rate * options.weight_decay;
  if (options.scale == MuonScale::kNormalise && norm_of(p) > 0)
    keep *= std::sqrt(static_cast<double>(rows)) / norm_of(p);
  const double step =
      rate * scale_of(options.scale, static_cast<double>(rows), static_cast<double>(columns));
  Array moved = plus(scaled(p, keep), -step, x);
  const double in_float = 4 * 0x1p-24 * (keep * norm_of(p) + step * norm_of(x));
  return {moved, velocity, step * error + in_float};
}

Expected step_of_other(const MuonOptions& options, double rate, double decay, const Array& p,
                       const Array& v, const Array& g) {
  const Array d = plus(g, decay, p);
  const Array velocity = plus(d, options.others.momentum, v);
  const Array direction =
      options.others.nesterov ? plus(d, options.others.momentum, velocity) : velocity;
  return {plus(p, -rate * options.others_factor, direction), velocity, 1e-6 * (1 + norm_of(p))};
}

void MuonSteps::check(const std::vector<Shape>& shapes, const MuonOptions& options) {
  Matrices network(*backend_, shapes);
  const FlatParameters flat = flatten_parameters(network);
  fill(flat, flat.values);
  Muon muon(flat, options);
  const Tensor velocities = muon.flat_state()[0].tensor;
  for (const double rate : {0.2, 0.05, 0.1}) {
    fill(flat, flat.gradients);
    const auto p = flat.values.host_values<float>();
    const auto v = velocities.host_values<float>();
    const auto g = flat.gradients.host_values<float>();
    muon.step(rate);
    const auto moved = flat.values.host_values<float>();
    const auto velocity = velocities.host_values<float>();
    for (const FlatView& view : flat.views) {
      const bool steps = view.name[0] == 'm';
      const Expected expected =
          steps
              ? step_of_matrix(options, rate, part_of(p, view), part_of(v, view), part_of(g, view))
              : step_of_other(options, rate, options.others.weight_decay.of(view.kind),
                              part_of(p, view), part_of(v, view), part_of(g, view));
      const double error = norm_of(plus(part_of(moved, view), -1, expected.parameters));
      EXPECT_LE(error, expected.error) << view.name << " " << view.parameter.shape().to_string();
      const double of_velocity = norm_of(plus(part_of(velocity, view), -1, expected.velocities));
      EXPECT_LE(of_velocity, 1e-6 * (1 + norm_of(expected.velocities))) << view.name;
    }
  }
}

const std::vector<Shape> kShapes{{16, 40}, {3, 4}, {40, 16},      {5, 7},         {16, 40},
                                 {24, 24}, {5, 7}, {16, 3, 3, 8}, {64, 1, 1, 3},  {5, 7},
                                 {1, 9},   {9, 1}, {16, 40},      {130, 1, 1, 40}};

MuonOptions with_others(MuonOptions options) {
  options.others = {
      .momentum = 0.9, .nesterov = true, .weight_decay = {.weight = 0.1, .bias = 0.2}};
  options.others_factor = 0.5;
  return options;
}

TEST_F(MuonSteps, AreThoseInDoubleUpToRounding) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16 ? "bf16" : "f32");
    check(kShapes, with_others({.bf16 = bf16, .weight_decay = 0.1}));
    check(kShapes,
          with_others(
              {.momentum = 0.6, .iterations = 3, .scale = MuonScale::kNormalise, .bf16 = bf16}));
    check(kShapes, with_others({.momentum = 0.8,
                                .nesterov = false,
                                .iterations = 2,
                                .scale = MuonScale::kMatchAdam,
                                .bf16 = bf16}));
  }
}

TEST_F(MuonSteps, OfMoreMatricesThanOneLaunchTakes) {
  check(std::vector<Shape>(150, {2, 3}), with_others({.iterations = 3}));
}

TEST_F(MuonSteps, OfMoreElementsThanOneBlockTakes) {
  check({{70, 130}, {8, 8}, {64, 129}}, with_others({.iterations = 2, .bf16 = true}));
}

}  // namespace
}  // namespace dlaunch::nn
