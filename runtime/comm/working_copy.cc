#include "runtime/comm/working_copy.h"

#include <cstdint>

#include "runtime/base/copy_memory.h"
#include "runtime/collective/reduction.h"

namespace dlaunch {
namespace {

constexpr std::size_t kAlignment = 64;

void copy_in(const ConstBuffer& from, DType working, std::byte* into) {
  if (from.count == 0) return;
  if (working == from.dtype) {
    copy_memory(into, from.data, from.bytes());
  } else if (working == DType::kI64) {
    widen(from.dtype, from.data, reinterpret_cast<std::int64_t*>(into), from.count);
  } else {
    widen(from.dtype, from.data, reinterpret_cast<float*>(into), from.count);
  }
}

void copy_out(const std::byte* from, DType working, const Buffer& into) {
  if (into.count == 0) return;
  if (working == into.dtype) {
    copy_memory(into.data, from, into.bytes());
  } else if (working == DType::kI64) {
    narrow(into.dtype, reinterpret_cast<const std::int64_t*>(from), into.data, into.count);
  } else {
    narrow(into.dtype, reinterpret_cast<const float*>(from), into.data, into.count);
  }
}

}  // namespace

void WorkingCopy::clear() {
  used_ = false;
  inputs_.clear();
  outputs_.clear();
}

void WorkingCopy::set_up(ConstBuffer input, Buffer output, DType working) {
  used_ = true;
  working_ = working;
  inputs_.assign(1, input);
  outputs_.assign(1, output);
  const std::size_t input_bytes = input.count * size_of(working);
  const bool in_place = input.data == output.data && input.count == output.count;
  output_offset_ = in_place ? 0 : (input_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t bytes = output_offset_ + (in_place ? input : output).count * size_of(working);
  if (memory_.size() < bytes) memory_.resize(bytes);
}

void WorkingCopy::set_up(std::span<const Buffer> pieces, DType working) {
  used_ = true;
  working_ = working;
  inputs_.assign(pieces.begin(), pieces.end());
  outputs_.assign(pieces.begin(), pieces.end());
  output_offset_ = 0;
  std::size_t bytes = 0;
  for (const Buffer& piece : pieces) bytes += piece.count * size_of(working);
  if (memory_.size() < bytes) memory_.resize(bytes);
}

void WorkingCopy::load() {
  std::byte* into = memory_.data();
  for (const ConstBuffer& input : inputs_) {
    copy_in(input, working_, into);
    into += input.count * size_of(working_);
  }
}

void WorkingCopy::store() const {
  const std::byte* from = memory_.data() + output_offset_;
  for (const Buffer& output : outputs_) {
    copy_out(from, working_, output);
    from += output.count * size_of(working_);
  }
}

}  // namespace dlaunch
