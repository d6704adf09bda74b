// record_reduction_of: a RecordReduction out of a C++ type and a function of two of its values.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <ranges>
#include <type_traits>

#include "runtime/collective/record_reduction.h"

namespace dlaunch {

/// A callable without state (a lambda that captures nothing, a function object): combine(a, b) sets
/// a = a (op) b, which is associative and commutative. It must not throw: that ends the process,
/// since the other ranks could not be told what to do with the vector.
template <typename Combine, typename Record>
concept RecordCombine = std::is_empty_v<Combine> && std::default_initializable<Combine> &&
    std::is_trivially_copyable_v<Record> && std::invocable<Combine, Record&, const Record&>;

/// Contiguous memory of records, as ElementRange (buffer.h) is of elements: a named container or a
/// view.
template <typename Range>
concept RecordRange = std::ranges::contiguous_range<Range> && std::ranges::borrowed_range<Range> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<Range>>;
template <typename Range>
using RecordOf = std::ranges::range_value_t<Range>;
template <typename Range, typename Record>
concept RecordRangeOf = RecordRange<Range> && std::same_as<RecordOf<Range>, Record>;

template <typename Record, RecordCombine<Record> Combine>
RecordReduction record_reduction_of(Combine /*combine*/) {
  const auto combine_all = [](void* accumulator, const void* operand, std::size_t count,
                              const void* /*context*/) noexcept {
    auto* into = static_cast<std::byte*>(accumulator);
    const auto* from = static_cast<const std::byte*>(operand);
    for (std::size_t i = 0; i < count; ++i, into += sizeof(Record), from += sizeof(Record)) {
      Record a;  // through copies: the memory need not be aligned
      Record b;
      std::memcpy(&a, into, sizeof a);
      std::memcpy(&b, from, sizeof b);
      Combine{}(a, b);
      std::memcpy(into, &a, sizeof a);
    }
  };
  return {.bytes = sizeof(Record), .combine = combine_all};
}

}  // namespace dlaunch
