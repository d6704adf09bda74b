// The one-directional ring between two ranks of a host: memory that both have mapped, one writes
// and the other reads.
//
// It has two parts. Lines of 64 bytes carry the headers, and payloads of up to 16 bytes with them;
// a bulk area carries longer payloads, in fragments that a line announces. The first word of a line
// holds a stamp, the low half of its number plus one, and is written last. So a line needs no
// clearing, nothing that a payload holds can be taken for a header, and one cache line carries a
// small message. There are no shared counters: how far the reader has come stands in a line of its
// own, which the writer looks at only when the ring seems full.
//
// What is read from a ring is checked before it is used: whoever shares the memory may have written
// anything.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/endpoint.h"
#include "transport/shm/slot_writer.h"

namespace dlaunch {

enum class RingLineKind : std::uint8_t {
  kMessage = 1,
  kFragment = 2,
  kHeapOffer = 3,     // a message that the reader is to fetch from the writer's heap,
  kPrivateOffer = 4,  // or from its address space
};

inline constexpr std::size_t kRingInlineBytes = 16;

/// What a line says. A message of up to kRingInlineBytes bytes is in `content`; of a longer one
/// `content` holds its length and that of the first fragment. A fragment's length stands first in
/// `content`. An offer has the length of the message and where it lies.
struct RingLineContent {
  MessageTag tag;
  MessageSignature signature;
  std::byte content[kRingInlineBytes];

  std::uint64_t number(std::size_t which) const {
    std::uint64_t value;
    std::memcpy(&value, content + which * sizeof value, sizeof value);
    return value;
  }
  void set_number(std::size_t which, std::uint64_t value) {
    std::memcpy(content + which * sizeof value, &value, sizeof value);
  }
};

struct alignas(64) RingLine {
  /// stamp | kind << 32 | bytes in `content` << 40; 255 bytes: numbers.
  std::atomic<std::uint64_t> word;
  RingLineContent rest;
};
static_assert(sizeof(RingLine) == 64);

/// What the reader has done with, counted from the beginning. A line pair of its own.
struct alignas(128) RingCredits {
  std::atomic<std::uint64_t> lines;
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> offers;
  /// Set by the writer when it gives up: what it has offered may change from now on.
  std::atomic<std::uint32_t> withdrawn;
};

/// Sizes of a ring: both powers of two.
struct RingShape {
  std::uint32_t lines = 0;
  std::uint32_t bulk_bytes = 0;

  std::size_t memory_bytes() const {
    return sizeof(RingCredits) + std::size_t{lines} * sizeof(RingLine) + bulk_bytes;
  }
};

/// The parts of a ring in memory, which is zero-filled at the beginning and 128-byte aligned.
struct RingMemory {
  RingMemory(std::byte* memory, RingShape ring_shape)
      : shape(ring_shape),
        credits(reinterpret_cast<RingCredits*>(memory)),
        lines(reinterpret_cast<RingLine*>(memory + sizeof(RingCredits))),
        bulk(memory + sizeof(RingCredits) + std::size_t{shape.lines} * sizeof(RingLine)) {}

  RingLine& line(std::uint64_t number) const { return lines[number & (shape.lines - 1)]; }

  RingShape shape;
  RingCredits* credits;
  RingLine* lines;
  std::byte* bulk;
};

/// The writing end. One thread at a time.
class RingWriter {
 public:
  explicit RingWriter(RingMemory memory) : memory_(memory) {}

  /// True if a line can be written.
  bool has_line() { return written_lines_ - known_lines_ < memory_.shape.lines || has_line_now(); }
  /// How many bytes the bulk area takes now.
  std::size_t bulk_room();
  /// Copies into the bulk area; the line that announces it comes after.
  void put_bulk(const std::byte* data, std::size_t bytes);
  /// Writes a line; there was room. The content is inline if `inline_bytes` is no kNumbers.
  void put_line(RingLineKind kind, std::uint8_t inline_bytes, const RingLineContent& content);

  static constexpr std::uint8_t kNumbers = 255;

  /// How many of the offers the reader has fetched.
  std::uint64_t fetched_offers() const {
    return memory_.credits->offers.load(std::memory_order_seq_cst);
  }
  /// To be called before the memory of an offer that has not been fetched is given up.
  void withdraw_offers() { memory_.credits->withdrawn.exchange(1, std::memory_order_seq_cst); }

 private:
  bool has_line_now();

  RingMemory memory_;
  SlotWriter writer_;
  std::uint64_t written_lines_ = 0;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t known_lines_ = 0;  // consumed, as far as the writer knows
  std::uint64_t known_bytes_ = 0;
};

/// The reading end. One thread at a time.
class RingReader {
 public:
  /// A line that was there.
  struct Line {
    RingLineKind kind = RingLineKind::kMessage;
    std::uint8_t inline_bytes = 0;  // or RingWriter::kNumbers
    RingLineContent content;
  };
  enum class State : std::uint8_t { kEmpty, kReady, kGarbage };

  explicit RingReader(RingMemory memory) : memory_(memory) {}

  /// Looks whether a line is there.
  State look() const {
    const std::uint64_t word = memory_.line(read_lines_).word.load(std::memory_order_seq_cst);
    const auto stamp = static_cast<std::uint32_t>(word);
    if (stamp == static_cast<std::uint32_t>(read_lines_ + 1)) return State::kReady;
    return stamp == stale_stamp() ? State::kEmpty : State::kGarbage;
  }
  /// Reads a line that is kReady.
  Line take_line();
  std::size_t bulk_bytes() const { return memory_.shape.bulk_bytes; }
  /// Copies what a line has announced.
  void take_bulk(std::byte* into, std::size_t bytes);
  /// Tells the writer how far the reader has come, if that is worth while now; then true: the
  /// writer, if it sleeps, is to be woken.
  bool give_credit();
  /// Tells the writer that one more offer has been fetched; the writer, if it sleeps, is to be
  /// woken.
  void finish_offer() { memory_.credits->offers.fetch_add(1, std::memory_order_seq_cst); }
  /// True if what has been fetched just now may not be what was offered. Not a load, which could
  /// overtake the reading of the offer: where it finds none withdrawn, all that was read before it
  /// happened before the withdrawal.
  bool offers_withdrawn() const {
    return memory_.credits->withdrawn.fetch_or(0, std::memory_order_seq_cst) != 0;
  }

 private:
  // What stands in the line before it is written: the stamp of the round before.
  std::uint32_t stale_stamp() const {
    if (read_lines_ < memory_.shape.lines) return 0;
    return static_cast<std::uint32_t>(read_lines_ + 1 - memory_.shape.lines);
  }

  RingMemory memory_;
  std::uint64_t read_lines_ = 0;
  std::uint64_t read_bytes_ = 0;
  std::uint64_t told_lines_ = 0;  // to the writer
  std::uint64_t told_bytes_ = 0;
};

}  // namespace dlaunch
