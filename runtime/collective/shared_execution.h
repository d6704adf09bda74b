// SharedExecution: carries out a collective in the memory that all ranks of a world share, as a
// state machine that never blocks. Like PlanExecution, but nothing is sent: members read what
// others expose (shared_plan.h).
//
// A member exposes its input by copying it into its slot, or where it is: what lies in its heap,
// and what does not fit a slot if the plan is made for that. Each chooses for itself; the others
// find in its cell what it chose. What is read in place is not touched by its owner until all
// readers have said that they are done.
//
// Failure: nobody writes into memory of another member. A member that gives up may change memory
// that others still read in place. Whoever waits for it once more fails then; one that only reads
// from it (broadcast, scatter, gather) may be through before it hears of the failure, and its next
// call says so.
//
// Threads: the one that drives the endpoint.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/collective/elements.h"
#include "runtime/collective/record_reduction.h"
#include "runtime/collective/shared_plan.h"
#include "runtime/collective/types.h"
#include "transport/endpoint.h"
#include "transport/shm/shared_group.h"
#include "transport/shm/slot_writer.h"

namespace dlaunch {

/// What one collective works on. The memory stays in place until it has ended.
struct SharedAssignment {
  SharedGroup::Channel channel = SharedGroup::Channel::kShort;
  std::shared_ptr<const SharedPlan> plan;
  const std::byte* input = nullptr;  // may be the same memory as the output
  std::size_t input_count = 0;       // elements that others may read
  std::byte* output = nullptr;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  const RecordReduction* record = nullptr;  // instead of dtype and op
  std::size_t slot_unit = 0;                // see SharedGroup::slot
  bool in_place = false;                    // parts of what does not fit a slot are read there
  bool one_shot = false;        // everybody reads everything: the input goes through the slot
  bool exposes_result = false;  // others collect what this member has reduced
  /// The output overlaps what others read of the input: it is written at the very end.
  bool output_last = false;
  std::size_t output_count = 0;
  MessageSignature signature;
};

/// What the executions of a lane share: the order of operations on each channel of the group, and
/// what is known about its memory.
class SharedSequence {
 public:
  struct Channel {
    std::uint64_t next = 1;      // operation number to hand out
    std::uint64_t finished = 0;  // the newest operation that this member is through with
    std::uint64_t met = 0;       // the newest operation in which it has seen everybody
  };
  Channel& operator[](SharedGroup::Channel channel) {
    return channels_[static_cast<std::size_t>(channel)];
  }
  SlotWriter& writer() { return writer_; }

 private:
  std::array<Channel, SharedGroup::kChannels> channels_;
  SlotWriter writer_;
};

class SharedExecution final : public Readiness {
 public:
  /// All three outlive the execution. `describe` puts signatures into words.
  SharedExecution(Endpoint& endpoint, SharedSequence& sequence, SignaturePrinter describe)
      : endpoint_(endpoint), sequence_(sequence), describe_(describe) {}
  SharedExecution(const SharedExecution&) = delete;
  SharedExecution& operator=(const SharedExecution&) = delete;

  /// Begins; an earlier run has ended. Throws std::bad_alloc, as advance() may, after which it is
  /// to be cancelled. Operations of a channel are carried out in the order begun.
  void start(const SharedAssignment& assignment);

  /// Does what can be done without waiting, and not too much of it at a time. Returns true if that
  /// was anything.
  bool advance();
  /// True if advance() would do something.
  bool ready() const override;
  int awaited_member() const override;
  /// Waits a few microseconds for ready(), for callers who have nothing else to do.
  bool linger() const;

  bool done() const { return done_; }
  /// How it ended.
  const Status& status() const { return status_; }
  void cancel(const Status& why) {
    if (!done_) end(why);
  }
  /// The ranks that this member waits for; in ascending order.
  std::vector<int> waiting_for() const;

 private:
  // Where a member's data can be read: the vector, or its slot.
  struct Source {
    std::uintptr_t address = 0;
    bool mapped = true;    // else only read_member() can read there
    bool is_slot = false;  // places are those in slots
    std::size_t size = std::numeric_limits<std::size_t>::max();  // bytes that are there at most
  };
  // A place in a vector and in the slots that hold a piece of it, in elements.
  struct Position {
    std::size_t vector = 0;
    std::size_t slot = 0;
  };
  struct Sources {
    Source input;
    Source result;
    bool in_place = false;  // one of them is not in a slot
  };

  const SharedStep& step() const { return assignment_.plan->steps[step_]; }
  std::uint64_t operation() const { return first_ + step().operation; }
  SharedCell& cell(int member) const {
    return group_->cell(assignment_.channel, operation(), member);
  }
  bool entering() const { return entered_ != operation(); }
  int members_to_come() const;
  int member_to_come(int which) const;
  bool has_come(int member) const;
  std::size_t bytes(std::size_t elements) const { return elements * elements_.size(); }

  bool its_turn() const;
  bool enter_operation();
  void fill_cell();
  std::byte* slot() const;
  SharedLocation in_slot() const;
  SharedLocation expose_input() const;
  SharedLocation expose_result(const SharedLocation& input);
  Source find(int member, const SharedLocation& location) const;
  bool wait_over();
  Status meet(int member);
  Status sources_failure() const;
  Status announce();

  bool act();
  std::size_t portion(const SharedAction& action) const;
  Status perform(const SharedAction& action, std::size_t done, std::size_t count);
  std::uintptr_t address(const Source& source, Position at) const {
    return source.address + bytes(source.is_slot ? at.slot : at.vector);
  }
  bool holds(const Source& source, Position at, std::size_t count) const {
    return bytes((source.is_slot ? at.slot : at.vector) + count) <= source.size;
  }
  Status nonsense_of(int member) const;
  Status read(int member, const Source& source, Position from, std::byte* into, std::size_t count);
  Status reduce(std::byte* into, Position from, std::size_t count);
  Status reduce_exposed(std::size_t into, Position from, std::size_t count);
  void finish();
  void end(const Status& status);

  Endpoint& endpoint_;
  SharedSequence& sequence_;
  SignaturePrinter describe_;
  SharedGroup* group_ = nullptr;
  SharedAssignment assignment_;
  Elements elements_;
  std::byte* output_ = nullptr;  // the caller's, or late_output_
  std::uint64_t first_ = 0;      // the number of the plan's first operation
  std::size_t step_ = 0;
  int cursor_ = 0;             // members of the current wait that have come
  std::uint32_t action_ = 0;   // of the plan, the next one
  std::size_t performed_ = 0;  // elements of that action
  std::uint64_t entered_ = 0;  // the operation whose cell has been filled
  bool input_in_slot_ = true;
  bool result_in_slot_ = true;
  bool own_in_place_ = false;  // not both
  bool any_in_place_ = false;
  bool done_ = true;
  Status status_;
  std::vector<Sources> sources_;  // by member, of the operation entered
  std::vector<const void*> operands_;
  std::vector<std::byte> scratch_;      // pieces read from other address spaces
  std::vector<std::byte> late_output_;  // see SharedAssignment::output_last
};

}  // namespace dlaunch
