// Loops over the rows of matrices.
#include <cstring>

#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements per thread at least

DLAUNCH_MULTIVERSION void add_rows_to(std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                      const float* x, float* sums) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) sums[c] += x[c];
  }
}

}  // namespace

void broadcast_rows(std::int64_t rows, std::int64_t columns, const float* row, float* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(y + r * columns, row, static_cast<std::size_t>(columns) * sizeof(float));
  }
}

void accumulate_column_sums(std::int64_t rows, std::int64_t columns, const float* x, float* sums) {
  const std::int64_t grain = rows == 0 ? columns + 1 : kGrain / rows + 1;
  parallel_ranges(columns, grain, [=](std::int64_t begin, std::int64_t end) {
    add_rows_to(rows, end - begin, columns, x + begin, sums + begin);
  });
}

}  // namespace dlaunch::nn::cpu
