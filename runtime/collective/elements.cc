#include "runtime/collective/elements.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/collective/reduction.h"

namespace dlaunch {
namespace {

// Two arrays of `bytes` that share memory without being the same.
bool cross(const void* a, const void* b, std::size_t bytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin != b_begin && a_begin < b_begin + bytes && b_begin < a_begin + bytes;
}

}  // namespace

void Elements::reduce(std::byte* into, std::span<const void* const> operands, std::size_t count,
                      bool complete) {
  if (count == 0) return;
  const std::size_t bytes = count * size();
  const bool crossed = std::ranges::any_of(
      operands, [&](const void* operand) { return cross(into, operand, bytes); });
  if (crossed) return reduce_apart(into, operands, count, complete);
  if (record_ != nullptr) return reduce_records(into, operands, count);
  const int divisor = complete ? world_ : 1;
  reduce_operands(op_, dtype_, into, operands, count, divisor);
}

void Elements::reduce_apart(std::byte* into, std::span<const void* const> operands,
                            std::size_t count, bool complete) {
  const std::size_t bytes = count * size();
  std::vector<std::byte> result;
  result.swap(apart_);
  if (result.size() < bytes) result.resize(bytes);
  reduce(result.data(), operands, count, complete);
  std::memcpy(into, result.data(), bytes);
  apart_.swap(result);
}

void Elements::reduce_records(std::byte* into, std::span<const void* const> operands,
                              std::size_t count) {
  const auto combine = [&](void* accumulator, const void* operand) {
    record_->combine(accumulator, operand, count, record_->context);
  };
  if (operands.size() == 2 && into == operands[1]) return combine(into, operands[0]);
  if (std::ranges::find(operands.subspan(1), into) != operands.end()) {
    return reduce_apart(into, operands, count, false);  // else the order would change
  }
  if (into != operands[0]) std::memcpy(into, operands[0], count * size());
  for (const void* operand : operands.subspan(1)) combine(into, operand);
}

void Elements::divide(std::byte* values, std::size_t count) const {
  if (op_ != ReduceOp::kAvg || record_ != nullptr || count == 0) return;
  dlaunch::divide(dtype_, values, count, world_);
}

}  // namespace dlaunch
