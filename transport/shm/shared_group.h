// SharedGroup: the memory that ranks of one host share, as the collectives over it see it.
//
// Every member has, on each of two channels, two cells (cache lines by which it tells the others
// what it is doing) and two slots (memory into which it copies what they are to read). Consecutive
// operations of a channel use cells and slots alternately. Before a rank announces operation s it
// waits until every member has announced s - 1; so all are done with s - 2, whose cell and slot
// are used again.
//
// Channels keep a short operation from queueing behind a long one. Each endpoint (lane) has a
// group of its own.
//
// Threads: the one that drives the endpoint; what other ranks see goes through atomics.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// Where a member's data lie: in its slot, in its heap, or elsewhere in its address space.
struct SharedLocation {
  enum class Place : std::uint64_t { kSlot = 0, kHeap = 1, kPrivate = 2 };
  Place place;
  /// kSlot: the unit in which its owner uses it (see SharedGroup::slot); kHeap: offset in the heap;
  /// kPrivate: address, for read_member().
  std::uint64_t where;
};

/// The cache line pair of one member: what it announces. 128 bytes, because CPUs fetch lines in
/// pairs. Zero-filled memory is a valid cell.
struct alignas(128) SharedCell {
  /// Counts up: (operation number << kStageBits) + stage. Written last, with release; whoever has
  /// read it with acquire may read the rest.
  std::atomic<std::uint64_t> progress;
  MessageSignature signature;
  SharedLocation input;
  SharedLocation result;
};
static_assert(sizeof(SharedCell) == 128);

/// Rings the doorbell of members that sleep. Any thread.
class Doorbells {
 public:
  virtual void ring(int member) = 0;

 protected:
  ~Doorbells() = default;
};

class SharedGroup {
 public:
  enum class Channel : std::uint8_t { kShort = 0, kLong = 1 };
  static constexpr int kChannels = 2;
  static constexpr int kStageBits = 20;
  /// Bytes of a slot of each channel.
  static constexpr std::size_t kSlotBytes[kChannels] = {std::size_t{16} << 10,
                                                        std::size_t{1} << 20};

  struct Member {
    int rank = 0;
    pid_t pid = 0;  // in this process's pid namespace
  };
  struct Options {
    int index = 0;                // which of the members this rank is
    std::vector<Member> members;  // ascending by rank
    std::byte* memory = nullptr;  // memory_bytes(), page-aligned, zero-filled at the beginning
    std::byte* heaps = nullptr;   // a heap per member, one after the other; nullptr: none
    std::size_t heap_bytes = 0;   // of one member
    /// Every member may read every other one's memory with process_vm_readv, and it is fast.
    bool members_readable = false;
    /// True where every member has a core of its own.
    bool core_each = false;
    Doorbells* doorbells = nullptr;  // outlives the group
  };

  /// What the group needs for `members` members.
  static std::size_t memory_bytes(int members);

  explicit SharedGroup(Options options);

  int index() const { return options_.index; }
  int size() const { return static_cast<int>(options_.members.size()); }
  /// The world rank of a member.
  int rank(int member) const { return options_.members[static_cast<std::size_t>(member)].rank; }
  bool members_readable() const { return options_.members_readable; }
  bool core_each() const { return options_.core_each; }

  SharedCell& cell(Channel channel, std::uint64_t operation, int member) const;
  /// The member's slot; or, with a `unit`, one of the pieces of that many bytes into which it is
  /// cut, which operations use in turn. Two slots would do; but a line that was last in use a while
  /// ago has left the caches of its writer and its reader for the one that they share, from where
  /// it comes faster than out of each other's.
  std::byte* slot(Channel channel, std::uint64_t operation, int member, std::size_t unit = 0) const;
  static constexpr std::size_t slot_bytes(Channel channel) {
    return kSlotBytes[static_cast<std::size_t>(channel)];
  }

  /// Writes `progress` into this rank's cell and wakes the members that sleep until it does.
  void announce(SharedCell& own, std::uint64_t progress);

  /// Rings the doorbell of a member if it sleeps, once until it sleeps again. To be called after a
  /// sequentially consistent write of what the member may be waiting for.
  void wake(int member);

  /// This rank is about to send its first message to a member: before it is written.
  void open_to(int member);
  /// Whether a member has opened to this rank. Of one order with fall_asleep() and wake(), so that
  /// what a member sends is found although only the rings of those that have are looked into.
  bool is_opened_by(int member) const;

  /// Where in this rank's heap `data` lies, if all of it does.
  std::optional<std::size_t> heap_position(const void* data, std::size_t bytes) const;
  std::span<std::byte> heap(int member) const;

  /// Copies from a member's address space (process_vm_readv). kPeerLost if that is gone, in whole
  /// or where it is read, kIo if it may not be read.
  Status read_member(int member, std::uint64_t address, std::byte* into, std::size_t bytes) const;

  /// This rank is about to sleep, and looks once more whether it has to. What it waits for it reads
  /// with sequentially consistent loads: of one order with the bit that is set here, and with the
  /// writes before wake(). Of announcements only that of `awaited` wakes it, a member or one of
  /// Readiness's words.
  void fall_asleep(int awaited);
  /// It is awake again.
  void wake_up();

 private:
  std::atomic<std::uint64_t>& sleepers(int word) const;  // a bit per member, 64 to a word
  // Whom a member that sleeps waits for, relative to kAnyMember, so that this is 0.
  std::atomic<std::int32_t>& awaited(int member) const;
  std::atomic<std::uint8_t>& opened(int from, int to) const;

  Options options_;
  std::byte* cells_;
  std::byte* slots_[kChannels];
};

}  // namespace dlaunch
