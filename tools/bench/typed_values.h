// The numbers of measure/values.h in every element type, and what reductions of them should give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/collective/types.h"
#include "runtime/comm/buffer.h"

namespace dlaunch::bench {

/// Fills with a rank's values of a repetition: reals in [0.5, 1.5), integers in [1, 100].
void fill(Buffer buffer, int rank, std::uint64_t repetition);

/// Where the elements of a result come from.
struct Origin {
  std::vector<int> ranks;         // one: a copy of its values; several: their reduction
  std::size_t first_element = 0;  // of these ranks' values
  ReduceOp op = ReduceOp::kSum;
};

/// The greatest relative error of `result` against the origin's values, computed in double
/// (integers: in 64 bits, wrapped).
double error_of(ConstBuffer result, const Origin& origin, std::uint64_t repetition);

/// The greatest relative error that a correct reduction of so many ranks can have.
double tolerance_of(DType dtype, int ranks);

}  // namespace dlaunch::bench
