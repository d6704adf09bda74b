#include "runtime/collective/shared_execution.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/copy_memory.h"
#include "runtime/base/pause.h"
#include "runtime/collective/scratch.h"

namespace dlaunch {
namespace {

using Place = SharedLocation::Place;
using Kind = SharedAction::Kind;
using Wait = SharedStep::Wait;

// Up to here a copy into the slot is cheaper than the meeting at the end that reading in place asks
// for.
constexpr std::size_t kMostCopiedFromHeap = std::size_t{16} << 10;
// Done in one advance(), so that operations in flight take turns.
constexpr std::size_t kPortionBytes = std::size_t{1} << 20;
// Read from another address space at a time; all members' pieces together stay in the cache.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
constexpr std::size_t kLeastPieceBytes = std::size_t{16} << 10;
// Looks at a cell before the owner is asked to wait in another way.
constexpr int kSpins = 200;
constexpr int kYields = 20;

constexpr std::uint64_t progress_of(std::uint64_t operation, std::uint32_t stage) {
  return (operation << SharedGroup::kStageBits) + stage;
}

}  // namespace

void SharedExecution::start(const SharedAssignment& assignment) {
  done_ = false;
  status_ = Status();
  group_ = endpoint_.shared_group();
  assignment_ = assignment;
  elements_.assign(assignment.dtype, assignment.op, assignment.record, group_->size());
  output_ = assignment.output_last ? at_least(late_output_, bytes(assignment.output_count))
                                   : assignment.output;
  SharedSequence::Channel& channel = sequence_[assignment.channel];
  first_ = channel.next;
  channel.next += assignment.plan->operations;
  entered_ = 0;  // the last run may have been on the other channel, which counts for itself
  step_ = 0;
  action_ = 0;
  cursor_ = 0;
  performed_ = 0;
  sources_.resize(static_cast<std::size_t>(group_->size()));
}

// --- waiting

// What is waited for: before an operation is entered, everybody in the one before it; then whatever
// the step says.

// How many members are waited for.
int SharedExecution::members_to_come() const {
  if (entering()) {
    return sequence_[assignment_.channel].met < operation() - 1 ? group_->size() : 0;
  }
  const SharedStep& now = step();
  if (now.wait == Wait::kNobody) return 0;
  if (now.wait == Wait::kReaders && !own_in_place_) return 0;
  return now.member >= 0 ? 1 : group_->size();
}

// The first of them, the second, ... Each member begins with its neighbour, so that not all of them
// look at the same cell at the same time.
int SharedExecution::member_to_come(int which) const {
  if (!entering() && step().member >= 0) return step().member;
  const int member = group_->index() + 1 + which;
  return member < group_->size() ? member : member - group_->size();
}

// Nobody waits for itself: a root announces nothing to itself when it has nothing to read.
bool SharedExecution::has_come(int member) const {
  if (member == group_->index()) return true;
  const std::uint64_t number = entering() ? operation() - 1 : operation();
  const std::uint32_t stage = entering() ? kExposed : step().stage;
  const SharedCell& theirs = group_->cell(assignment_.channel, number, member);
  // Sequentially consistent for the last look before sleeping: see SharedGroup::fall_asleep.
  return theirs.progress.load(std::memory_order_seq_cst) >= progress_of(number, stage);
}

bool SharedExecution::its_turn() const {
  return sequence_[assignment_.channel].finished + 1 >= first_;
}

// Before the cell and slot of an operation are written, everybody must be through with the one
// before the last, which used the same.
bool SharedExecution::enter_operation() {
  const int end = members_to_come();
  for (; cursor_ < end; ++cursor_) {
    if (!has_come(member_to_come(cursor_))) return false;
  }
  cursor_ = 0;
  SharedSequence::Channel& channel = sequence_[assignment_.channel];
  channel.met = std::max(channel.met, operation() - 1);
  entered_ = operation();
  fill_cell();
  return true;
}

// Whether the current step may go on; looks no further than the first member that is missing.
bool SharedExecution::wait_over() {
  const SharedStep& now = step();
  const int end = members_to_come();
  for (; cursor_ < end; ++cursor_) {
    const int member = member_to_come(cursor_);
    if (!has_come(member)) return false;
    if (now.stage != kExposed) continue;
    if (Status met = meet(member); !met.ok()) {
      this->end(met);
      return false;
    }
  }
  cursor_ = 0;
  if (now.wait == Wait::kEverybody && now.stage == kExposed) {
    sequence_[assignment_.channel].met = operation();
  }
  return true;
}

// A member has exposed its input: is it in the same operation, and where is the input?
Status SharedExecution::meet(int member) {
  const SharedCell& theirs = cell(member);
  if (!(theirs.signature == assignment_.signature)) {
    return Status(StatusCode::kMismatch, "rank " + std::to_string(group_->rank(member)) +
                                             " called " + describe_(theirs.signature) +
                                             " where rank " + std::to_string(endpoint_.rank()) +
                                             " called " + describe_(assignment_.signature));
  }
  const bool in_place = theirs.input.place != Place::kSlot || theirs.result.place != Place::kSlot;
  any_in_place_ = any_in_place_ || in_place;
  if (member != group_->index()) {
    sources_[static_cast<std::size_t>(member)] = {find(member, theirs.input),
                                                  find(member, theirs.result), in_place};
  }
  return Status();
}

bool SharedExecution::ready() const {
  if (done_ || !its_turn()) return false;
  return cursor_ >= members_to_come() || has_come(member_to_come(cursor_));
}

int SharedExecution::awaited_member() const {
  const bool waits = !done_ && its_turn() && cursor_ < members_to_come();
  return waits ? member_to_come(cursor_) : kAnyMember;
}

bool SharedExecution::linger() const {
  if (group_->core_each()) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (ready()) return true;
      pause_briefly();
    }
    return false;
  }
  for (int turn = 0; turn < kYields; ++turn) {
    if (ready()) return true;
    sched_yield();
  }
  return false;
}

std::vector<int> SharedExecution::waiting_for() const {
  std::vector<int> ranks;
  if (done_ || !its_turn()) return ranks;
  const int end = members_to_come();
  for (int i = 0; i < end; ++i) {
    if (!has_come(member_to_come(i))) ranks.push_back(group_->rank(member_to_come(i)));
  }
  std::ranges::sort(ranks);
  return ranks;
}

// --- what this member shows

void SharedExecution::fill_cell() {
  SharedCell& own = cell(group_->index());
  own.signature = assignment_.signature;
  own.input = expose_input();
  own.result = expose_result(own.input);
  input_in_slot_ = own.input.place == Place::kSlot;
  result_in_slot_ = own.result.place == Place::kSlot;
  own_in_place_ = !input_in_slot_ || !result_in_slot_;
  any_in_place_ = own_in_place_;
  for (Sources& each : sources_) each.in_place = false;
  // Its own input this member has in its cache; not so the copy in its slot.
  sources_[static_cast<std::size_t>(group_->index())].input = {
      reinterpret_cast<std::uintptr_t>(assignment_.input), true};
}

std::byte* SharedExecution::slot() const {
  return group_->slot(assignment_.channel, operation(), group_->index(), assignment_.slot_unit);
}

SharedLocation SharedExecution::in_slot() const {
  return {Place::kSlot, assignment_.slot_unit};
}

SharedLocation SharedExecution::expose_input() const {
  const std::size_t size = bytes(assignment_.input_count);
  if (size <= kMostCopiedFromHeap || assignment_.one_shot) return in_slot();
  if (const auto position = group_->heap_position(assignment_.input, size)) {
    return {Place::kHeap, *position};
  }
  if (assignment_.in_place && size > SharedGroup::slot_bytes(assignment_.channel)) {
    return {Place::kPrivate, reinterpret_cast<std::uintptr_t>(assignment_.input)};
  }
  return in_slot();
}

SharedLocation SharedExecution::expose_result(const SharedLocation& input) {
  const std::size_t size = bytes(assignment_.input_count);
  if (!assignment_.exposes_result || input.place == Place::kSlot) return in_slot();
  if (output_ != nullptr) {
    if (const auto position = group_->heap_position(output_, size)) {
      return {Place::kHeap, *position};
    }
  }
  return in_slot();
}

// Whoever shares the memory may have written anything: nothing lies in a place that cannot be.
SharedExecution::Source SharedExecution::find(int member, const SharedLocation& location) const {
  const std::uint64_t where = location.where;
  switch (location.place) {
    case Place::kHeap: {
      const std::span<std::byte> heap = group_->heap(member);
      if (where > heap.size()) break;
      return {.address = reinterpret_cast<std::uintptr_t>(heap.data()) + where,
              .size = heap.size() - where};
    }
    case Place::kPrivate:
      return {.address = where, .mapped = member == group_->index()};
    case Place::kSlot: {
      const std::size_t whole = SharedGroup::slot_bytes(assignment_.channel);
      if (where > whole) break;
      const std::byte* slot = group_->slot(assignment_.channel, operation(), member, where);
      return {.address = reinterpret_cast<std::uintptr_t>(slot),
              .is_slot = true,
              .size = where == 0 ? whole : where};
    }
  }
  return {.size = 0};
}

Status SharedExecution::nonsense_of(int member) const {
  return Status::about_peer(StatusCode::kProtocol, group_->rank(member),
                            "malformed shared memory: its data are where they cannot be");
}

// A member that gives up or leaves before the others have read its memory may write over it. What
// has been read up to now is what it was, if this is ok.
Status SharedExecution::sources_failure() const {
  if (!any_in_place_) return Status();
  DLAUNCH_RETURN_IF_ERROR(endpoint_.group_failure());
  for (const int rank : endpoint_.departed()) {
    for (std::size_t member = 0; member < sources_.size(); ++member) {
      if (group_->rank(static_cast<int>(member)) == rank && sources_[member].in_place) {
        return peer_left(rank);
      }
    }
  }
  return Status();
}

// Those whose memory has been read stay until this rank has announced that: so it looks at them
// before.
Status SharedExecution::announce() {
  const SharedStep& now = step();
  if (now.announce == 0 || (now.announce_only_in_place && !any_in_place_)) return Status();
  DLAUNCH_RETURN_IF_ERROR(sources_failure());
  group_->announce(cell(group_->index()), progress_of(operation(), now.announce));
  return Status();
}

// --- progress

bool SharedExecution::advance() {
  bool progress = false;
  while (!done_) {
    if (!its_turn()) return progress;
    if (entering() && !enter_operation()) return progress;
    if (!wait_over()) return progress || done_;
    progress = true;
    if (!act()) return true;  // others get their turn
    if (done_) return true;
    if (Status lost = announce(); !lost.ok()) {
      end(lost);
      return true;
    }
    if (++step_ == assignment_.plan->steps.size()) finish();
  }
  return progress;
}

// The actions of the step; false if some are left for the next time.
bool SharedExecution::act() {
  std::size_t budget = kPortionBytes;
  for (; action_ < step().last_action; ++action_) {
    const SharedAction& action = assignment_.plan->actions[action_];
    while (performed_ < action.count) {
      if (budget == 0) return false;
      const std::size_t count = std::min(action.count - performed_, portion(action));
      if (Status status = perform(action, performed_, count); !status.ok()) {
        if (status.code() == StatusCode::kPeerLost) endpoint_.fail_unreadable(status);
        const Status why = sources_failure();
        end(why.ok() ? status : why);
        return true;
      }
      performed_ += count;
      budget -= std::min(budget, bytes(count));
    }
    performed_ = 0;
  }
  return true;
}

std::size_t SharedExecution::portion(const SharedAction& action) const {
  std::size_t size = kPortionBytes;
  if (action.kind == Kind::kReduce || action.kind == Kind::kReduceExposed) {
    // A piece of everybody's is in the cache at the same time.
    size = std::max(kLeastPieceBytes, kPieceBytes / static_cast<std::size_t>(group_->size()) * 2);
  }
  return std::max<std::size_t>(1, size / elements_.size());
}

Status SharedExecution::perform(const SharedAction& action, std::size_t done, std::size_t count) {
  const Position from{action.from + done, action.slot + done};
  const std::size_t into = action.into + done;
  switch (action.kind) {
    case Kind::kExpose:
      if (input_in_slot_) {
        sequence_.writer().copy(slot() + bytes(from.slot), assignment_.input + bytes(from.vector),
                                bytes(count), bytes(assignment_.input_count));
      }
      return Status();
    case Kind::kReduce:
      return reduce(output_ + bytes(into), from, count);
    case Kind::kReduceExposed:
      return reduce_exposed(into, from, count);
    case Kind::kCopy:
      return read(action.member, sources_[static_cast<std::size_t>(action.member)].input, from,
                  output_ + bytes(into), count);
    case Kind::kCollect:
      break;
  }
  return read(action.member, sources_[static_cast<std::size_t>(action.member)].result, from,
              output_ + bytes(into), count);
}

Status SharedExecution::read(int member, const Source& source, Position from, std::byte* into,
                             std::size_t count) {
  if (!holds(source, from, count)) return nonsense_of(member);
  const std::uintptr_t place = address(source, from);
  if (!source.mapped) return group_->read_member(member, place, into, bytes(count));
  const auto* data = reinterpret_cast<const std::byte*>(place);
  if (data != into) copy_memory(into, data, bytes(count));
  return Status();
}

Status SharedExecution::reduce(std::byte* into, Position from, std::size_t count) {
  const auto members = static_cast<std::size_t>(group_->size());
  operands_.resize(members);
  for (std::size_t member = 0; member < members; ++member) {
    const Source& source = sources_[member].input;
    if (!holds(source, from, count)) return nonsense_of(static_cast<int>(member));
    if (source.mapped) {
      operands_[member] = reinterpret_cast<const void*>(address(source, from));
      continue;
    }
    std::byte* piece = at_least(scratch_, members * bytes(count)) + member * bytes(count);
    DLAUNCH_RETURN_IF_ERROR(read(static_cast<int>(member), source, from, piece, count));
    operands_[member] = piece;
  }
  elements_.reduce(into, operands_, count, true);
  return Status();
}

// The result goes to the output, which this member has in its cache, and from there to the others.
Status SharedExecution::reduce_exposed(std::size_t into, Position from, std::size_t count) {
  if (!result_in_slot_) return reduce(output_ + bytes(into), from, count);
  std::byte* exposed = slot() + bytes(from.slot);
  if (output_ == nullptr) return reduce(exposed, from, count);
  std::byte* result = output_ + bytes(into);
  DLAUNCH_RETURN_IF_ERROR(reduce(result, from, count));
  sequence_.writer().copy(exposed, result, bytes(count), bytes(count));
  return Status();
}

void SharedExecution::finish() {
  if (assignment_.output_last && assignment_.output_count > 0) {
    copy_memory(assignment_.output, output_, bytes(assignment_.output_count));
  }
  end(Status());
}

void SharedExecution::end(const Status& status) {
  done_ = true;
  status_ = status;
  if (!status.ok()) return;
  sequence_[assignment_.channel].finished = first_ + assignment_.plan->operations - 1;
}

}  // namespace dlaunch
