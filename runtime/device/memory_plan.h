// A collective over device memory that its ranks read of each other, as a plan: what a rank does,
// in order. Pure functions of the call's shape, for MemoryPath to carry out.
//
// Every rank has two slots, memory that all can read, and a round takes one of them, the same on
// all ranks. An operation that does not fit goes in rounds:
//
//   kAcquire                     take the next slot: wait until all have read what it held before
//   kLoad...                     copy a part of the input into the own slot
//   kMeet(kReady)                tell all that it is there, and wait until all have told so
//   kReduce..., kCopy...         out of all slots into the output
//   kRelease                     tell all that their slots have been read
//
// A long all_reduce meets twice: every rank reduces its slice of all slots into its own slot,
// kMeet(kReduced), and copies the slices of the others. Operands are taken in the order of ranks.
//
// Flags are words that one rank sets and one other clears: set for each kMeet and kRelease, waited
// for and cleared in the matching step of the other. Each slot has its own for every phase. Between
// two uses of the same flag both ranks have met in another phase of the same slot, so nobody sets a
// flag that has not been cleared; and every operation leaves the flags as it found them, so that a
// recorded operation can be repeated.
//
// Two slots, because processes that share a GPU without MPS take turns: one runs until it waits for
// a flag that is not there. Where slots alternate, kAcquire never waits: who has met for a round
// knows that all have released the one before it. So a rank that completes a round goes on in the
// same turn, until the next kMeet, and a meeting of p ranks costs p - 1 turns. A slot that is used
// twice in a row, as where a recording of an odd number of rounds begins anew, costs as many more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/collective/types.h"

namespace dlaunch {

enum class MemoryPhase : std::uint8_t { kReady = 0, kReduced = 1, kRead = 2 };
inline constexpr std::size_t kMemoryPhases = 3;
inline constexpr std::size_t kMemorySlots = 2;

struct MemoryStep {
  enum class Kind : std::uint8_t {
    kAcquire,
    kLoad,
    kMeet,
    kReduceIntoOutput,
    kReduceIntoSlot,
    kCopy,
    kMove,
    kRelease
  };
  Kind kind = Kind::kAcquire;
  MemoryPhase phase = MemoryPhase::kReady;  // of kMeet
  int member = 0;                           // of kCopy: whose slot
  // In elements:
  std::size_t place = 0;  // in the slot(s)
  std::size_t at = 0;     // kLoad and kMove: where in the input; others: where in the output
  std::size_t count = 0;

  friend bool operator==(const MemoryStep&, const MemoryStep&) = default;
};

/// A collective's shape. Sizes are in elements.
struct MemoryShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int rank = 0;
  int world = 1;
  int root = -1;
  /// Of a kind with parts: the part of each rank. Of an all_to_all: what goes from each rank to
  /// each other. Of the others: nothing.
  std::span<const std::size_t> counts;
  std::size_t count = 0;     // of the whole vector, for kinds without parts
  std::size_t slot = 0;      // that a slot holds; at least one for every rank
  std::size_t one_shot = 0;  // up to which every rank reduces everything by itself
};

/// What `shape.rank` does. Empty for a call that moves nothing.
std::vector<MemoryStep> memory_plan(const MemoryShape& shape);

/// The slice of a vector of `count` elements that rank `rank` of `world` reduces: [begin, end).
/// Slices begin at multiples of kSliceUnit, for wide loads.
inline constexpr std::size_t kSliceUnit = 16;
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};
Slice slice_of(std::size_t count, int rank, int world);

}  // namespace dlaunch
