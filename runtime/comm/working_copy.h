// WorkingCopy: what a collective works on where it cannot work on the caller's buffers themselves:
// many buffers packed into one, or elements in a wider type in which sums are computed (averages of
// short integers in i64, sums of f16 and bf16 in f32).
//
// Keeps its memory for the next call. One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/comm/buffer.h"

namespace dlaunch {

class WorkingCopy {
 public:
  /// Not in use: the collective works on the caller's buffers.
  void clear();
  /// For one input and one output, in the type `working`.
  void set_up(ConstBuffer input, Buffer output, DType working);
  /// For many buffers in place, one after the other, in the type `working`.
  void set_up(std::span<const Buffer> pieces, DType working);

  bool used() const { return used_; }

  /// Copies the inputs in, before the collective begins.
  void load();
  /// Copies the results out, when it has ended well.
  void store() const;

  /// Where the collective works, after load(); the two are the same memory if it works in place.
  const std::byte* input() const { return memory_.data(); }
  std::byte* output() { return memory_.data() + output_offset_; }

 private:
  bool used_ = false;
  DType working_ = DType::kF32;
  std::vector<ConstBuffer> inputs_;
  std::vector<Buffer> outputs_;
  std::size_t output_offset_ = 0;  // bytes
  std::vector<std::byte> memory_;  // never shrinks
};

}  // namespace dlaunch
