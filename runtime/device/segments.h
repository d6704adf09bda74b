// Segments: the buffers that a call reads, or writes, as one vector of bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/collective_call.h"

namespace dlaunch {

class Segments {
 public:
  static Segments inputs(const CollectiveCall& call) {
    if (!call.pieces.empty()) return outputs(call);  // in place
    Segments segments;
    segments.add(const_cast<void*>(call.input.data), call.input.bytes());  // only read
    return segments;
  }
  static Segments outputs(const CollectiveCall& call) {
    Segments segments;
    for (const Buffer& piece : call.pieces) segments.add(piece.data, piece.bytes());
    if (call.pieces.empty()) segments.add(call.output.data, call.output.bytes());
    return segments;
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Segment& segment : segments_) sum += segment.bytes;
    return sum;
  }

  /// use(memory, at, length) for every piece of the bytes [begin, begin + bytes), `at` being
  /// counted from `begin`. Stops at an error.
  template <typename Use>
  Status for_each(std::size_t begin, std::size_t bytes, const Use& use) const {
    const std::size_t end = begin + bytes;
    std::size_t first = 0;  // of a segment
    for (const Segment& segment : segments_) {
      const std::size_t from = std::max(begin, first);
      const std::size_t to = std::min(end, first + segment.bytes);
      if (from < to) {
        DLAUNCH_RETURN_IF_ERROR(use(segment.memory + (from - first), from - begin, to - from));
      }
      first += segment.bytes;
    }
    return Status();
  }

  void add(void* memory, std::size_t bytes) {
    segments_.push_back({static_cast<std::byte*>(memory), bytes});
  }

 private:
  struct Segment {
    std::byte* memory;
    std::size_t bytes;
  };

  std::vector<Segment> segments_;
};

}  // namespace dlaunch
