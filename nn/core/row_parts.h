// How the rows of a batch are cut into parts, each of which is normalised by itself (ghost
// batches). Usable from device code.
#pragma once

#include <cstdint>

namespace dlaunch::nn {

/// As evenly as whole samples go; there may be fewer samples than parts.
struct RowParts {
  std::int64_t count = 1;
  std::int64_t sample_rows = 1;  // of one sample; they stay together

  /// Where part `part` of so many rows begins; for `count`, where the last one ends.
  constexpr std::int64_t begin(std::int64_t rows, std::int64_t part) const {
    if (part == 0) return 0;
    if (part == count) return rows;
    return rows / sample_rows * part / count * sample_rows;
  }
  constexpr std::int64_t size(std::int64_t rows, std::int64_t part) const {
    return begin(rows, part + 1) - begin(rows, part);
  }
  /// That no part has more than.
  constexpr std::int64_t most(std::int64_t rows) const {
    return (rows / sample_rows + count - 1) / count * sample_rows;
  }
};

}  // namespace dlaunch::nn
