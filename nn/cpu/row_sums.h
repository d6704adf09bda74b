// Sums over the rows of a matrix, in float over short blocks of rows and in double over blocks: so
// errors do not grow with the number of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "nn/cpu/parallel.h"

namespace dlaunch::nn::cpu {

/// One call at a time; its memory is kept for the next one.
class RowSums {
 public:
  /// Adds up `width` sums over `rows` rows of `columns` elements. add_block(first row, row count,
  /// float* sums) adds those of a short block of rows, on any of OpenMP's threads; it must not
  /// throw. The same sums for any number of threads.
  template <typename AddBlock>
  void add_up(std::int64_t rows, std::int64_t columns, std::size_t width,
              const AddBlock& add_block);

  /// One of the `width` last sums.
  double operator[](std::size_t index) const { return sums_[index]; }

 private:
  // Rows that are summed in float before the sum goes into a double.
  static constexpr std::int64_t kBlockRows = 64;
  // Elements that one thread sums before the parts' sums are added up, and how many parts there are
  // at most. Both depend on the matrix alone, so that sums do not depend on the number of threads.
  static constexpr std::int64_t kElementsPerPart = 1 << 16;
  static constexpr std::int64_t kMaxParts = 32;

  std::vector<double> sums_;   // per part
  std::vector<float> blocks_;  // the same of the block being summed
};

template <typename AddBlock>
void RowSums::add_up(std::int64_t rows, std::int64_t columns, std::size_t width,
                     const AddBlock& add_block) {
  const std::int64_t parts =
      std::clamp<std::int64_t>(rows * columns / kElementsPerPart, 1, kMaxParts);
  sums_.assign(width * static_cast<std::size_t>(parts), 0.0);
  blocks_.resize(width * static_cast<std::size_t>(parts));
  parallel_ranges(parts, 1, [&](std::int64_t first_part, std::int64_t end_part) {
    for (std::int64_t part = first_part; part < end_part; ++part) {
      double* sums = sums_.data() + width * static_cast<std::size_t>(part);
      float* block = blocks_.data() + width * static_cast<std::size_t>(part);
      const std::int64_t end = rows * (part + 1) / parts;
      for (std::int64_t row = rows * part / parts; row < end; row += kBlockRows) {
        std::fill(block, block + width, 0.0F);
        add_block(row, std::min(kBlockRows, end - row), block);
        for (std::size_t i = 0; i < width; ++i) sums[i] += static_cast<double>(block[i]);
      }
    }
  });
  for (std::size_t part = 1; part < static_cast<std::size_t>(parts); ++part) {
    for (std::size_t i = 0; i < width; ++i) sums_[i] += sums_[width * part + i];
  }
}

}  // namespace dlaunch::nn::cpu
