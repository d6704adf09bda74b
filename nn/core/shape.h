// Shape: the extents of a tensor, up to four of them.
//
// Conventions (row-major, the last dimension is contiguous):
//   images              [N, H, W, C]
//   features            [N, C]
//   scalars             []
//   convolution weights [out, kernel height, kernel width, in]
//   linear weights      [out, in]
// N may be 0 everywhere: an empty local batch runs forward and backward like any other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace dlaunch::nn {

/// A value. Extents are never negative, and the product of those that are not 0 is at most 2^59
/// (Error).
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;                                // a scalar: rank 0, one element
  Shape(std::initializer_list<std::int64_t> dims);  // NOLINT: implicit, so that {32, 10} is a Shape

  int rank() const { return rank_; }
  /// Number of elements; 1 for a scalar.
  std::int64_t size() const;
  /// Extent of dimension `i`; negative `i` counts from the end. Error if there is none.
  std::int64_t operator[](int i) const;
  /// The same shape with another extent in dimension `i`.
  Shape with(int i, std::int64_t extent) const;
  /// "[32, 28, 28, 64]", "[]".
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  int position(int i) const;

  std::array<std::int64_t, kMaxRank> dims_{};  // unused ones stay 0, so that == compares all
  int rank_ = 0;
};

}  // namespace dlaunch::nn
