// SharedPlan: what one member of a SharedGroup does in a collective that works in shared memory.
//
// Members do not send: each exposes its input, the others read it. What is exposed lies in the
// member's slot (copied there), in its heap, or in its own address space; the plan does not care.
// A plan is a pure function of the member, their number and the counts, like the plans of messages
// (plan.h), and SharedExecution carries it out.
//
// Steps are done one after the other: wait until members have announced a stage, do the actions,
// announce a stage. Stages of an operation count from 1; kExposed is announced when the input can
// be read. What is too long for the slots is cut into several operations, of which each has a piece
// of everybody's work: of the vector, or of every part of it.
//
// Offsets and counts are in elements. An action says where its data are in the vector that they are
// part of and where in a slot, if they lie in one.
//
// Algorithms: "direct" - every member reduces its own slice of everybody's input, then copies the
// other slices from those who reduced them; in rounds, so that a slice is copied while it is in the
// cache; "one-shot" - every member, or a reduce's root, reduces everything by itself. Both take
// operands in the order of ranks. Compare the flat and the copy-in-copy-out schemes of XHC
// (Katevenis et al., CLUSTER 2022) and Open MPI's sm/coll.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/collective/plan.h"
#include "runtime/collective/types.h"

namespace dlaunch {

inline constexpr std::uint32_t kExposed = 1;

struct SharedAction {
  enum class Kind : std::uint8_t {
    kExpose,         // own input [from, + count) becomes readable (from `slot` on, if it is copied)
    kReduce,         // own output at `into` = everybody's input at `from`, in the order of members
    kReduceExposed,  // the same, and others can collect it
    kCopy,           // own output at `into` = the input of `member` at `from`
    kCollect         // own output at `into` = the result of `member` at `from`
  };
  Kind kind = Kind::kExpose;
  int member = -1;
  std::size_t from = 0;
  std::size_t slot = 0;  // where that lies in a slot, like the result
  std::size_t into = 0;
  std::size_t count = 0;
};

struct SharedStep {
  enum class Wait : std::uint8_t {
    kNobody,
    kEverybody,
    kMember,  // only `member`
    kReaders  // whoever reads what this member exposes (`member`, or everybody if -1), unless it
              // lies in a slot, which stays as it is
  };
  Wait wait = Wait::kNobody;
  int member = -1;
  std::uint32_t stage = 0;              // waited for
  std::uint32_t operation = 0;          // of the plan's operations
  std::uint32_t first_action = 0;       // of SharedPlan::actions
  std::uint32_t last_action = 0;        // behind the last one
  std::uint32_t announce = 0;           // the stage announced afterwards; 0: none
  bool announce_only_in_place = false;  // only if something read does not lie in a slot
};

struct SharedPlan {
  std::vector<SharedStep> steps;
  std::vector<SharedAction> actions;
  std::uint32_t operations = 1;
  /// That the plan itself takes, about.
  std::size_t bytes() const {
    return steps.size() * sizeof(SharedStep) + actions.size() * sizeof(SharedAction);
  }
};

/// What the plans need to know.
struct SharedShape {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Algorithm algorithm = Algorithm::kDirect;  // kDirect or kOneShot
  int member = 0;
  int members = 1;
  int root = -1;            // a member
  std::size_t element = 4;  // bytes
  std::size_t slot = 0;     // bytes of a slot
  bool readable = false;    // parts of what does not fit a slot can be read in place
  Partition parts;          // of the vector: of scatter, gather, all_gather, reduce_scatter and
                            // all_to_all the given ones; of the others one per member
};

/// True if shared_plan() has a plan. There is none for what cannot be read in place and of which
/// not even a few elements of every part fit a slot, nor for a one-shot that does not fit it.
bool has_shared_plan(const SharedShape& shape);

SharedPlan shared_plan(const SharedShape& shape);

/// `count` elements in as many parts, cut at cache lines as far as possible.
Partition aligned_partition(int parts, std::size_t count, std::size_t element_bytes);

}  // namespace dlaunch
