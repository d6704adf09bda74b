// RecordReduction: a reduction that the caller defines, over records of a fixed number of bytes.
#pragma once

#include <cstddef>

namespace dlaunch {

/// combine() sets accumulator[i] = accumulator[i] (op) operand[i] for `count` records. It is
/// associative and commutative, the latter to the bit: two ranks that combine the same two records
/// in either order hold the same bytes. The two arrays do not overlap and are aligned only as far
/// as the caller's own buffers are a multiple of the record away from their beginning. Called on
/// the thread that drives the operation; must not throw.
/// What `context` points to must stay until the operation has ended.
struct RecordReduction {
  std::size_t bytes = 0;  // of one record; above 0
  void (*combine)(void* accumulator, const void* operand, std::size_t count,
                  const void* context) = nullptr;
  const void* context = nullptr;
};

}  // namespace dlaunch
