// SlotWriter: copies into memory that other cores read, by the kind of store that suits them.
//
// An ordinary store must first take the cache line away from whoever read it last. Between cores
// that share a cache this is quick, and the data stay in that cache for the reader; between cores
// that do not it takes many times as long as a streaming store past the caches, which needs nothing
// of the line's old contents. Which of the two it is differs from pair to pair, and on a virtual
// machine from one minute to the next, so the writer keeps measuring its ordinary copies.
//
// One thread at a time.
#pragma once

#include <cstddef>

namespace dlaunch {

class SlotWriter {
 public:
  /// Copies; the ranges do not overlap. `of`: the length of the vector that `from` is a piece of.
  /// Whoever sees a later release store of this thread sees the copy.
  void copy(std::byte* into, const std::byte* from, std::size_t bytes, std::size_t of);

 private:
  bool measures(std::size_t bytes);
  void copy_and_measure(std::byte* into, const std::byte* from, std::size_t bytes, std::size_t of);

  bool far_ = false;        // the readers are
  int contradictions_ = 0;  // measurements in a row that said otherwise
  unsigned copies_ = 0;
};

}  // namespace dlaunch
