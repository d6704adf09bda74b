// Loops over the rows of matrices.
#include <cstring>

#include "nn/cpu/kernels.h"
#include "nn/cpu/row_sums.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

DLAUNCH_MULTIVERSION void add_rows_to(std::int64_t rows, std::int64_t columns, const float* x,
                                      float* sums) {
  for (std::int64_t r = 0; r < rows; ++r, x += columns) {
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
  RowSums of_columns;
  of_columns.add_up(rows, columns, static_cast<std::size_t>(columns),
                    [=](std::int64_t row, std::int64_t count, float* block) {
                      add_rows_to(count, columns, x + row * columns, block);
                    });
  for (std::int64_t c = 0; c < columns; ++c) {
    sums[c] += static_cast<float>(of_columns[static_cast<std::size_t>(c)]);
  }
}

}  // namespace dlaunch::nn::cpu
