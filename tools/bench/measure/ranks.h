// Ranks: what a measurement needs of whatever it measures, besides the operation itself.
// Implemented over a Communicator (dbench) and over MPI (peers/), so that all are timed by the same
// code.
//
// Threads: one. Errors: exceptions.
#pragma once

#include <span>

namespace dlaunch::bench {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns when every rank has called it.
  virtual void barrier() = 0;
  /// Replaces each value by the greatest that any rank gave in its place.
  virtual void maximum(std::span<double> values) = 0;
};

}  // namespace dlaunch::bench
