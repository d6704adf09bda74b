// The memory in which the ranks of a node publish what they are doing, for dlaunch to look at: one
// page of slots per rank, one slot for each thing that a rank can wait in (a communicator has one
// for each kind of call).
//
// A rank writes its own page only, which dlaunch reads; two fields are dlaunch's. All is atomic,
// because they are processes of their own; a slot is written by one thread at a time, and its
// `version` is odd while that thread is at it (a seqlock: Boehm, "Can seqlocks get along with
// programming language memory models?", 2012). Fields are stored with release and loaded with
// acquire order, which on x86 costs nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dlaunch {

enum class ActivityKind : std::uint8_t {
  kNone = 0,        // nothing; the rest is about the last one
  kCollective = 1,  // a collective
  kSend = 2,        // a message to `peer`
  kReceive = 3,     // a message from `peer`
  kStoreWait = 4,   // keys in the rendezvous store
};

struct alignas(64) ActivitySlot {
  static constexpr std::size_t kNameWords = 6;
  static constexpr std::size_t kOperationWords = 2;

  std::atomic<std::uint32_t> version;
  std::atomic<std::uint8_t> used;
  std::atomic<ActivityKind> kind;
  std::atomic<std::uint8_t> dtype;
  std::atomic<std::uint8_t> lane;       // of the communicator
  std::atomic<std::uint64_t> sequence;  // of the collective shown, or the last
  std::atomic<std::uint64_t> tag;       // of a message
  std::atomic<std::uint64_t> count;     // elements
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::int64_t> since;    // steady clock, ns, when it began to wait; 0: it need not yet
  std::atomic<std::int64_t> moved;    // the same, when anything moved last
  std::atomic<std::int32_t> peer;     // of a message, in the communicator's numbering
  std::atomic<std::int32_t> members;  // of the communicator
  std::array<std::atomic<std::uint64_t>, kOperationWords> operation;  // that collective's name
  std::array<std::atomic<std::uint64_t>, kNameWords>
      name;  // communicator, or what the store has not
};

struct ActivityPage {
  static constexpr std::uint64_t kMagic = 0x32'59'54'49'56'54'43'41;  // changes with this layout
  static constexpr std::size_t kSlots = 62;

  std::atomic<std::uint64_t> magic;        // written by dlaunch
  std::atomic<std::int64_t> process;       // id of the process that publishes; 0: none has come yet
  std::atomic<std::int64_t> ready;         // steady clock, ns, when start-up was over; 0: not
  std::atomic<std::int32_t> joins_world;   // 1: it connects a communicator, or has
  std::atomic<std::int32_t> stack_signal;  // makes the process print its stack; 0: none does
  std::atomic<std::int32_t>
      job_failed;  // written by dlaunch: 1: it ends this rank, as another has failed
  alignas(64) std::array<ActivitySlot, kSlots> slots;
};

static_assert(sizeof(ActivitySlot) == 128);
static_assert(sizeof(ActivityPage) == 8000);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace dlaunch
