// StandardInput: who reads dlaunch's stdin (--stdin): one rank, all ranks, or nobody.
//
// One rank reads dlaunch's own descriptor. If all read, a process of dlaunch's copies it into a
// pipe for each, as fast as the slowest of them reads; a rank that has closed its stdin or ended is
// left out. That process is in the terminal's foreground group if dlaunch is, since no other may
// read the terminal.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

class StandardInput {
 public:
  /// `who` is a rank or OutputOptions::kNobody or kEverybody; `ranks` ranks from `first_rank` are
  /// on this node. If all read, this forks. kIo if the system is out of something.
  static Result<StandardInput> open(int who, int first_rank, int ranks, pid_t terminal_group);

  /// The descriptor that the rank reads: 0, or one that is closed with this object.
  int of(int rank) const;

  /// The process that copies, a child of this one; 0: there is none.
  pid_t copier() const { return copier_; }

 private:
  StandardInput(int who, int first_rank, Descriptor nothing)
      : who_(who), first_rank_(first_rank), nothing_(std::move(nothing)) {}

  int who_;
  int first_rank_;
  pid_t copier_ = 0;
  Descriptor nothing_;             // /dev/null
  std::vector<Descriptor> pipes_;  // by rank of this node, if all read
};

}  // namespace dlaunch
