// How gradients are grouped for communication: a pure function of the ranges and the order in which
// they are expected to become ready.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dlaunch {

/// Elements [offset, offset + count) of the flat array: one parameter.
struct GradientRange {
  std::size_t offset = 0;
  std::size_t count = 0;
  std::size_t rows = 1;  // of the matrix that the parameter is, count / rows columns; 1: a vector
};

/// Elements [begin, end) of the flat array.
struct FlatSpan {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
  friend bool operator==(const FlatSpan&, const FlatSpan&) = default;
};

/// What is communicated as one: neighbours in the flat array, so that collectives work in place.
struct Bucket {
  FlatSpan span;                    // its ranges and the padding between them
  std::vector<std::size_t> ranges;  // ascending
};

struct BucketLimits {
  std::size_t bytes = 25U << 20;
  std::size_t first_bytes = 1U << 20;  // small, so that communication begins early
};

/// Buckets in the order in which they will be full if ranges become ready in `order`, a permutation
/// of their indices. Ranges ascend without overlap. Ranges that arrive together but are no
/// neighbours become buckets of their own; one larger than the limit, too.
std::vector<Bucket> plan_buckets(std::span<const GradientRange> ranges,
                                 std::span<const std::size_t> order, const BucketLimits& limits);

/// Whether `order` is such a permutation of that many indices.
bool is_order_of(std::span<const std::size_t> order, std::size_t ranges);

/// The part of `span` that belongs to each of `parts` ranks: equal ones of whole cache lines, as
/// far as that goes. They are neighbours in the order of ranks; some may be empty.
std::vector<FlatSpan> even_parts(FlatSpan span, std::size_t parts);

}  // namespace dlaunch
