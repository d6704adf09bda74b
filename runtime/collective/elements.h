// Elements: what the elements of a running collective are, and how they are combined - numbers of a
// DType under a ReduceOp, or the caller's records under a function of his own.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/collective/record_reduction.h"
#include "runtime/collective/types.h"

namespace dlaunch {

class Elements {
 public:
  /// `record` may be null: numbers. `world` is what averages divide by.
  void assign(DType dtype, ReduceOp op, const RecordReduction* record, int world) {
    dtype_ = dtype;
    op_ = op;
    record_ = record;
    world_ = world;
  }

  /// Bytes of one.
  std::size_t size() const { return record_ != nullptr ? record_->bytes : size_of(dtype_); }

  /// into = operands[0] (op) operands[1] (op) ...; `into` may be one of the operands, or overlap
  /// them in any other way. `complete`: an average is finished.
  void reduce(std::byte* into, std::span<const void* const> operands, std::size_t count,
              bool complete);

  /// Finishes an average; otherwise does nothing.
  void divide(std::byte* values, std::size_t count) const;

 private:
  void reduce_apart(std::byte* into, std::span<const void* const> operands, std::size_t count,
                    bool complete);
  void reduce_records(std::byte* into, std::span<const void* const> operands, std::size_t count);

  DType dtype_ = DType::kF32;
  ReduceOp op_ = ReduceOp::kSum;
  const RecordReduction* record_ = nullptr;
  int world_ = 1;
  std::vector<std::byte> apart_;  // a result that may not be written yet
};

}  // namespace dlaunch
