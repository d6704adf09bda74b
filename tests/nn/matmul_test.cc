// Backend::matmul against products in double.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/ops.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

struct Problem {
  std::int64_t count, m, n, k;
  bool transpose_a = false, transpose_b = false;
};

/// Where a product finds C.
enum class Addend { kNone, kInPlace, kApart };

class MatmulTest : public OpTest {
 protected:
  /// Of f32, bf16 or f16, in which `values` must be exact.
  Tensor make(const Array& values, DType type) {
    return convert(reference::to_tensor(*backend_, values), type);
  }
  Tensor not_a_number(const Shape& shape, DType type) {
    const Tensor values = Tensor::empty(*backend_, shape);
    backend_->fill(values.size(), std::numeric_limits<float>::quiet_NaN(), values.data<float>());
    return convert(values, type);
  }

  void check(const Problem& problem, DType type, DType result, Addend addend, float alpha,
             float beta);
};

double element(const Array& of, std::int64_t matrix, std::int64_t rows, std::int64_t columns,
               bool transposed, std::int64_t r, std::int64_t c) {
  return of.at(matrix * rows * columns + (transposed ? c * rows + r : r * columns + c));
}

/// Half of the distance between numbers near 1.
double rounding_of(DType type) {
  if (type == DType::kF32) return 0x1p-24;
  return type == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

void MatmulTest::check(const Problem& p, DType type, DType result, Addend addend, float alpha,
                       float beta) {
  const Array a = random_bf16({p.count * p.m * p.k});
  const Array b = random_bf16({p.count * p.k * p.n});
  const Array c = random_bf16({p.count * p.m * p.n});
  const Tensor left = make(a, type), right = make(b, type), sum = make(c, result);
  const Tensor to = addend == Addend::kInPlace ? sum : not_a_number(c.shape, result);
  backend_->matmul({.transpose_a = p.transpose_a,
                    .transpose_b = p.transpose_b,
                    .count = p.count,
                    .m = p.m,
                    .n = p.n,
                    .k = p.k,
                    .alpha = alpha,
                    .beta = beta,
                    .a = left.read(),
                    .b = right.read(),
                    .c = addend == Addend::kNone ? ConstArrayRef() : sum.read(),
                    .d = to.write()});
  const auto actual = convert(to, DType::kF32).host_values<float>();
  for (std::int64_t i = 0; i < c.shape.size(); ++i) {
    const std::int64_t matrix = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
    double product = 0, magnitude = 0;
    for (std::int64_t k = 0; k < p.k; ++k) {
      const double term = element(a, matrix, p.m, p.k, p.transpose_a, row, k) *
                          element(b, matrix, p.k, p.n, p.transpose_b, k, column);
      product += term;
      magnitude += std::abs(term);
    }
    const double expected = alpha * product + beta * c.at(i);
    // In f32 a term more for alpha and one for C; then the result is rounded.
    const double in_float = static_cast<double>(p.k + 4) * 0x1p-24 *
                            (std::abs(alpha) * magnitude + std::abs(beta * c.at(i)));
    ASSERT_NEAR(actual[static_cast<std::size_t>(i)], expected,
                in_float + rounding_of(result) * (std::abs(expected) + in_float) + 0x1p-24)
        << "element " << i << " of " << p.count << " [" << p.m << ", " << p.k << "] x [" << p.k
        << ", " << p.n << "], " << to_string(type) << " to " << to_string(result);
  }
  if (addend == Addend::kApart) {
    EXPECT_EQ(convert(sum, DType::kF32).host_values<float>(),
              std::vector<float>(c.values.begin(), c.values.end()));
  }
}

/// Calls function(type of the factors, type of the result) for all that are allowed.
template <typename Function>
void for_types(const std::vector<DType>& types, const Function& function) {
  for (const DType type : types) {
    function(type, DType::kF32);
    if (type != DType::kF32) function(type, type);
  }
}

TEST_F(MatmulTest, MultipliesScalesAndAddsInEveryTypeAndLayout) {
  for (const auto& [m, n, k] : {std::array{8, 16, 24}, {5, 7, 3}, {1, 40, 33}, {64, 2, 130}})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for_types(types(), [&](DType type, DType result) {
          const Problem problem{1, m, n, k, transpose_a, transpose_b};
          check(problem, type, result, Addend::kNone, 1, 0);
          check(problem, type, result, Addend::kNone, -1.5F, 0);
          check(problem, type, result, Addend::kInPlace, 1, 1);
          check(problem, type, result, Addend::kApart, 2.0315F, -4.775F);
        });
}

TEST_F(MatmulTest, DoesABatchOfProducts) {
  for (const std::int64_t count : {2, 3, 7})
    for (const auto& [m, n, k] : {std::array{16, 8, 24}, {5, 7, 3}})
      for (const bool transposed : {false, true})
        for_types(types(), [&](DType type, DType result) {
          const Problem problem{count, m, n, k, transposed, !transposed};
          check(problem, type, result, Addend::kNone, 0.5F, 0);
          check(problem, type, result, Addend::kInPlace, 0.75F, 1);
          check(problem, type, result, Addend::kApart, 2.0315F, -4.775F);
        });
}

TEST_F(MatmulTest, OfMatricesWithoutElementsOrTerms) {
  for (const Problem& problem : {Problem{0, 4, 4, 4}, {2, 0, 4, 4}, {2, 4, 0, 4}, {2, 4, 5, 0}})
    for_types(types(), [&](DType type, DType result) {
      check(problem, type, result, Addend::kNone, 1, 0);
      check(problem, type, result, Addend::kInPlace, 1, 1);
      check(problem, type, result, Addend::kApart, 3, 0.5F);
    });
}

}  // namespace
}  // namespace dlaunch::nn
