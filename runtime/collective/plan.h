// Plan: what one rank does in a collective, as a plain value.
//
// An algorithm is a pure function from (rank, world, counts, root) to a plan; it sends nothing and
// can be tested alone. PlanExecution (executor.h) carries any plan out over an Endpoint.
//
// Meaning. The steps are done strictly one after the other. In a step, first the copies, one after
// the other, then the reductions, then the divisions, then all sends and receives at once; the step
// ends when all of them have. Between two
// ranks messages stay in order: the k-th message from a to b in a's plan is the k-th message from a
// in b's plan, and both say the same count. A count of zero is a message too, so that every rank
// that takes part is heard.
//
// Every plan keeps these rules, which the tests check for each algorithm:
//   - at most one message per direction and peer in a step;
//   - a received slice does not overlap a slice sent in the same step, unless it is reduced in
//     place (`with` == `into`); then it is written only after the send has ended;
//   - the input is never written, unless the caller made input and output the same memory.
//
// All counts and offsets are in elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dlaunch {

/// Which memory a slice lies in: the caller's input, the caller's output, or memory that the
/// executor provides.
enum class Region : std::uint8_t { kInput, kOutput, kScratch };

struct Slice {
  Region region = Region::kOutput;
  std::size_t offset = 0;
  std::size_t count = 0;

  friend bool operator==(const Slice&, const Slice&) = default;
};

struct PlannedCopy {
  Slice from;
  Slice into;
};

/// into = operands[0] (op) operands[1] (op) ..., in this order and rounded once. All have the count
/// of `into`, which may be one of the operands and overlaps no other.
struct PlannedReduction {
  std::vector<Slice> operands;  // at least one
  Slice into;
  bool complete =
      false;  // every rank's operand is among them: an average divides by the world size
};

struct PlannedSend {
  int peer = -1;
  Slice from;
};

/// What is done with a received slice.
enum class Landing : std::uint8_t {
  kCopy,                // into = received
  kReduce,              // into = with (op) received
  kReduceReceivedFirst  // into = received (op) with: where both partners must get the same bits
};

struct PlannedRecv {
  int peer = -1;
  Slice into;
  Landing landing = Landing::kCopy;
  Slice with;  // of the same count as `into`; may be `into` itself
};

struct PlanStep {
  std::vector<PlannedCopy> copies;
  std::vector<PlannedReduction> reductions;
  std::vector<Slice> divisions;  // fully reduced ranges: an average divides them by the world size
  std::vector<PlannedSend> sends;
  std::vector<PlannedRecv> recvs;
};

struct Plan {
  std::vector<PlanStep> steps;
  std::size_t scratch = 0;  // elements of Region::kScratch
  /// That the plan itself takes, about.
  std::size_t bytes() const;
};

/// How a vector is cut into one part per rank.
class Partition {
 public:
  /// `parts` parts of `each` elements.
  static Partition equal(int parts, std::size_t each);
  /// `count` elements cut as evenly as possible: the first parts are longer by one.
  static Partition even(int parts, std::size_t count);
  /// The parts given.
  static Partition of(std::span<const std::size_t> counts);

  int parts() const { return static_cast<int>(offsets_.size()) - 1; }
  std::size_t offset(int part) const { return offsets_[static_cast<std::size_t>(part)]; }
  std::size_t count(int part) const { return offset(part + 1) - offset(part); }
  std::size_t total() const { return offsets_.back(); }
  std::size_t longest() const;
  Slice slice(Region region, int part) const { return {region, offset(part), count(part)}; }

 private:
  std::vector<std::size_t> offsets_{0};
};

}  // namespace dlaunch
