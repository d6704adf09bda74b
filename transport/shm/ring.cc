#include "transport/shm/ring.h"

#include <algorithm>

#include "runtime/base/copy_memory.h"

namespace dlaunch {
namespace {

constexpr int kKindShift = 32;
constexpr int kBytesShift = 40;

}  // namespace

bool RingWriter::has_line_now() {
  known_lines_ = memory_.credits->lines.load(std::memory_order_seq_cst);
  return written_lines_ - known_lines_ < memory_.shape.lines;
}

std::size_t RingWriter::bulk_room() {
  const std::size_t size = memory_.shape.bulk_bytes;
  // Looks again before it is full, so that long messages flow.
  if (written_bytes_ - known_bytes_ > size / 2) {
    known_bytes_ = memory_.credits->bytes.load(std::memory_order_seq_cst);
  }
  // A count that cannot be comes from a broken reader: no room, for ever.
  const std::uint64_t used = written_bytes_ - known_bytes_;
  return used <= size ? size - used : 0;
}

void RingWriter::put_bulk(const std::byte* data, std::size_t bytes) {
  const std::size_t size = memory_.shape.bulk_bytes;
  const std::size_t at = written_bytes_ & (size - 1);
  const std::size_t first = std::min(bytes, size - at);
  writer_.copy(memory_.bulk + at, data, first, bytes);
  writer_.copy(memory_.bulk, data + first, bytes - first, bytes);
  written_bytes_ += bytes;
}

void RingWriter::put_line(RingLineKind kind, std::uint8_t inline_bytes,
                          const RingLineContent& content) {
  RingLine& line = memory_.line(written_lines_);
  line.rest = content;
  ++written_lines_;
  const std::uint64_t word = static_cast<std::uint32_t>(written_lines_) |
                             std::uint64_t{static_cast<std::uint8_t>(kind)} << kKindShift |
                             std::uint64_t{inline_bytes} << kBytesShift;
  // Sequentially consistent: either the reader sees it before it sleeps, or the writer, who looks
  // next, sees that the reader is asleep.
  line.word.exchange(word, std::memory_order_seq_cst);
}

RingReader::Line RingReader::take_line() {
  const RingLine& line = memory_.line(read_lines_);
  const std::uint64_t word = line.word.load(std::memory_order_relaxed);
  ++read_lines_;
  return {.kind = static_cast<RingLineKind>(word >> kKindShift & 0xff),
          .inline_bytes = static_cast<std::uint8_t>(word >> kBytesShift & 0xff),
          .content = line.rest};
}

void RingReader::take_bulk(std::byte* into, std::size_t bytes) {
  const std::size_t size = memory_.shape.bulk_bytes;
  const std::size_t at = read_bytes_ & (size - 1);
  const std::size_t first = std::min(bytes, size - at);
  copy_memory(into, memory_.bulk + at, first);
  copy_memory(into + first, memory_.bulk, bytes - first);
  read_bytes_ += bytes;
}

bool RingReader::give_credit() {
  const bool worth_while = read_lines_ - told_lines_ >= memory_.shape.lines / 4 ||
                           read_bytes_ - told_bytes_ >= memory_.shape.bulk_bytes / 4;
  if (!worth_while) return false;
  told_lines_ = read_lines_;
  told_bytes_ = read_bytes_;
  // Sequentially consistent, as in RingWriter::put_line.
  memory_.credits->lines.store(read_lines_, std::memory_order_seq_cst);
  memory_.credits->bytes.exchange(read_bytes_, std::memory_order_seq_cst);
  return true;
}

}  // namespace dlaunch
