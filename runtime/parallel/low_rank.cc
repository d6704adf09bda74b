#include "runtime/parallel/low_rank.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/multiversion.h"

namespace dlaunch::low_rank {
namespace {

DLAUNCH_MULTIVERSION float dot(std::size_t count, const float* __restrict a,
                               const float* __restrict b) {
  constexpr std::size_t kLanes = 16;  // sums that do not wait for each other
  float sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  float total = 0;
  for (; i < count; ++i) total += a[i] * b[i];
  for (const float sum : sums) total += sum;
  return total;
}

DLAUNCH_MULTIVERSION void multiply_by(std::size_t count, float factor, float* __restrict x) {
  for (std::size_t i = 0; i < count; ++i) x[i] *= factor;
}

}  // namespace

DLAUNCH_MULTIVERSION void add(std::size_t count, float factor, const float* __restrict x,
                              float* __restrict y) {
  for (std::size_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

void multiply(const Extent& extent, const float* m, const float* q, float* p) {
  for (std::size_t row = 0; row < extent.rows; ++row)
    for (std::size_t k = 0; k < extent.rank; ++k)
      p[k * extent.rows + row] =
          dot(extent.columns, m + row * extent.columns, q + k * extent.columns);
}

void multiply_transposed(const Extent& extent, const float* m, const float* p, float* q) {
  std::fill_n(q, extent.rank * extent.columns, 0.0F);
  for (std::size_t row = 0; row < extent.rows; ++row)
    for (std::size_t k = 0; k < extent.rank; ++k)
      add(extent.columns, p[k * extent.rows + row], m + row * extent.columns,
          q + k * extent.columns);
}

void expand(const Extent& extent, const float* p, const float* q, float* m) {
  std::fill_n(m, extent.rows * extent.columns, 0.0F);
  for (std::size_t row = 0; row < extent.rows; ++row)
    for (std::size_t k = 0; k < extent.rank; ++k)
      add(extent.columns, p[k * extent.rows + row], q + k * extent.columns,
          m + row * extent.columns);
}

void residual(const Extent& extent, const float* m, const float* p, const float* q, float factor,
              float* error) {
  for (std::size_t row = 0; row < extent.rows; ++row) {
    float* const into = error + row * extent.columns;
    std::copy_n(m + row * extent.columns, extent.columns, into);
    for (std::size_t k = 0; k < extent.rank; ++k)
      add(extent.columns, -p[k * extent.rows + row], q + k * extent.columns, into);
    multiply_by(extent.columns, factor, into);
  }
}

void orthonormalise(std::size_t rows, std::size_t rank, float* p) {
  constexpr float kDependent = 1e-5F;  // what is left of a vector, of its length, is rounding error
  for (std::size_t k = 0; k < rank; ++k) {
    float* const vector = p + k * rows;
    const float before = std::sqrt(dot(rows, vector, vector));
    // Twice: of a vector that nearly depends on the others, what is left after the first time has
    // rounding errors of its own size (Giraud, Langou, Rozloznik: "The loss of orthogonality in the
    // Gram-Schmidt orthogonalization process", 2005).
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t earlier = 0; earlier < k; ++earlier) {
        const float* const other = p + earlier * rows;
        add(rows, -dot(rows, other, vector), other, vector);
      }
    const float after = std::sqrt(dot(rows, vector, vector));
    // Not written the other way round: NaN stays.
    multiply_by(rows, after <= kDependent * before ? 0 : 1 / after, vector);
  }
}

}  // namespace dlaunch::low_rank
