#include "nn/cpu/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <omp.h>

#include "nn/layers/batch_statistics.h"

namespace dlaunch::nn::cpu {
namespace {

// Rows that are summed in float before the sum goes into a double.
constexpr std::int64_t kBlockRows = 64;
// Rows whose mean is the shift. For s any rows' mean and m, v the whole batch's mean and variance,
// (s - m)^2 <= v rows / kShiftRows (Cauchy-Schwarz), however odd those rows are; in practice it is a
// fraction of v.
constexpr std::int64_t kShiftRows = 16;
// Elements for which a second thread is worth waking.
constexpr std::int64_t kElementsPerThread = 1 << 15;

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

int thread_count(BatchNormExtent extent) {
  const std::int64_t useful = extent.rows * extent.channels / kElementsPerThread;
  const std::int64_t most = std::min<std::int64_t>(omp_get_max_threads(), extent.rows);
  return static_cast<int>(std::clamp<std::int64_t>(useful, 1, std::max<std::int64_t>(most, 1)));
}

RowRange rows_of_part(std::int64_t rows, int part, int parts) {
  return {.begin = rows * part / parts, .end = rows * (part + 1) / parts};
}

/// Calls work(part, rows) for each of `parts` shares of the rows, each on a thread of its own.
template <typename Work>
void for_each_part(BatchNormExtent extent, int parts, const Work& work) {
#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
  for (int part = 0; part < parts; ++part) work(part, rows_of_part(extent.rows, part, parts));
}

/// first[c] += sum of d, second[c] += sum of d^2 over `rows` rows, with d = x - shift.
void add_block(const float* x, std::int64_t rows, std::int64_t channels, const float* shift,
               float* first, float* second) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * channels) {
    const float* x1 = x + channels;
    const float* x2 = x1 + channels;
    const float* x3 = x2 + channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d0 = x[c] - shift[c];
      const float d1 = x1[c] - shift[c];
      const float d2 = x2[c] - shift[c];
      const float d3 = x3[c] - shift[c];
      first[c] += (d0 + d1) + (d2 + d3);
      second[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; row < rows; ++row, x += channels) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d = x[c] - shift[c];
      first[c] += d;
      second[c] += d * d;
    }
  }
}

/// first[c] += sum of dy, second[c] += sum of dy (x - shift) over `rows` rows.
void add_gradient_block(const float* dy, const float* x, std::int64_t rows, std::int64_t channels,
                        const float* shift, float* first, float* second) {
  std::int64_t row = 0;
  for (; row + 2 <= rows; row += 2, x += 2 * channels, dy += 2 * channels) {
    const float* x1 = x + channels;
    const float* dy1 = dy + channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      first[c] += dy[c] + dy1[c];
      second[c] += dy[c] * (x[c] - shift[c]) + dy1[c] * (x1[c] - shift[c]);
    }
  }
  for (; row < rows; ++row, x += channels, dy += channels) {
    for (std::int64_t c = 0; c < channels; ++c) {
      first[c] += dy[c];
      second[c] += dy[c] * (x[c] - shift[c]);
    }
  }
}
