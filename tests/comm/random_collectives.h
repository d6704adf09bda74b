// Random collectives and messages that check themselves: a seed and a step stand for one, with its
// kind, type, reduction, root, counts, algorithm and everybody's inputs, so that all ranks call the
// same without having spoken, and each can compute what it must receive. Expected values are plain
// sums in double (tests/comm/random_data.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/collective/types.h"
#include "runtime/comm/communicator.h"

namespace dlaunch::testing {

/// One of the sequence; a plain value.
struct RandomCollective {
  /// What it works on. kMessages: instead of a collective, one message from every rank to another.
  enum class Form { kBuffers, kInPlace, kPieces, kRecords, kMessages };

  CollectiveKind kind = CollectiveKind::kBarrier;
  Form form = Form::kBuffers;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  ReduceOrder order = ReduceOrder::kAny;
  int root = 0;
  bool asynchronous = false;
  Priority priority = Priority::kNormal;
  bool allocated = false;           // in memory of the communicator's own
  std::vector<std::size_t> counts;  // of every rank's part; one count for kinds without parts
  bool unequal = false;             // counts are given to the call
  std::uint64_t seed = 0;           // of the inputs

  /// "step 3: all_gather f16 counts 3 0 12 ...", for failed tests.
  std::string description;
};

/// Number `step`. A rank's part has at most `most_elements`.
RandomCollective random_collective(std::uint64_t seed, std::uint64_t step, int world,
                                   std::size_t most_elements);

/// How one went on this rank.
struct Verdict {
  Status status;      // what the call returned
  std::string wrong;  // what is wrong with the result of a successful call; empty if nothing

  bool ok() const { return status.ok() && wrong.empty(); }
};

/// Carries out one after the other. Asynchronous ones stay on their way while later ones begin, up
/// to four of them.
class RandomCollectives {
 public:
  explicit RandomCollectives(Communicator& comm) : comm_(comm) {}
  ~RandomCollectives();
  RandomCollectives(const RandomCollectives&) = delete;
  RandomCollectives& operator=(const RandomCollectives&) = delete;

  /// Begins this one, and checks what this rank has received by those that have ended since. The
  /// first that is not well, whose description is then failed().
  Verdict run(const RandomCollective& collective);
  /// Waits for all that are on their way, and checks them.
  Verdict finish();
  const std::string& failed() const { return failed_; }

 private:
  struct Begun {
    std::string description;
    std::vector<Work> works;
    std::function<std::string()> wrong;  // holds the buffers
  };
  Verdict begin(const RandomCollective& collective);
  Verdict finish_first();

  Communicator& comm_;
  std::deque<Begun> begun_;
  std::string failed_;
};

/// Steps `first` to `last` - 1. Empty if all are right, else what went wrong, with the step.
std::string run_random_collectives(Communicator& comm, std::uint64_t seed, std::uint64_t first,
                                   std::uint64_t last, std::size_t most_elements);

}  // namespace dlaunch::testing
