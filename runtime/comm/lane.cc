#include "runtime/comm/lane.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "runtime/collective/algorithms.h"
#include "runtime/comm/call_signature.h"
#include "runtime/comm/words.h"

namespace dlaunch {
namespace {

// How long a collective stands still before its rank looks around; less if its time is short.
constexpr std::chrono::nanoseconds kStandstill = std::chrono::milliseconds(300);
// The first time to the next look, which doubles every time up to the longest.
constexpr std::chrono::nanoseconds kLookAgain = std::chrono::milliseconds(20);
constexpr std::chrono::nanoseconds kLookAgainAtMost = std::chrono::milliseconds(500);

// A look that comes so late does because this process was stopped (Ctrl-Z) or had no processor.
constexpr std::chrono::nanoseconds kLateLook = std::chrono::seconds(1);

// Operations, between two looks at which of those kept are used.
constexpr int kRecycledTogether = 256;

std::chrono::nanoseconds standstill(std::chrono::nanoseconds timeout) {
  return std::min(kStandstill, timeout / 4);
}

// The endpoint's shared memory, if all ranks of the world have it in common.
const SharedGroup* whole_world_group(Endpoint& endpoint) {
  const SharedGroup* group = endpoint.shared_group();
  return group != nullptr && group->size() == endpoint.world_size() ? group : nullptr;
}

Status no_memory() {
  return Status(StatusCode::kIo, "no memory to carry it out");
}

}  // namespace

Lane::Lane(LaneKind kind, std::unique_ptr<Endpoint> endpoint, Announcements& announcements,
           const Bystanders& bystanders, std::shared_ptr<const Tuning> tuning,
           ActivityReporter reporter)
    : kind_(kind),
      rank_(endpoint->rank()),
      world_(endpoint->world_size()),
      announcements_(announcements),
      bystanders_(bystanders),
      plans_(rank_, world_, std::move(tuning)),
      shared_calls_(whole_world_group(*endpoint)),
      reporter_(std::move(reporter)),
      endpoint_(std::move(endpoint)) {}

// --- preparing

std::unique_ptr<Operation> Lane::reusable_operation() {
  return std::make_unique<Operation>(*endpoint_, shared_sequence_);
}

std::unique_ptr<Operation> Lane::new_operation() {
  if (spare_.empty()) return reusable_operation();
  std::unique_ptr<Operation> operation = std::move(spare_.back());
  spare_.pop_back();
  fewest_spare_ = std::min(fewest_spare_, spare_.size());
  return operation;
}

// Frees the operations that all those recycled lately were done without, and the memory in which
// they worked: as many are kept as a program goes on having in flight.
void Lane::give_back_unused() {
  if (++recycled_ < kRecycledTogether) return;
  recycled_ = 0;
  spare_.erase(spare_.begin(), spare_.begin() + static_cast<std::ptrdiff_t>(fewest_spare_));
  fewest_spare_ = spare_.size();
}

void Lane::recycle(std::unique_ptr<Operation> operation) {
  if (shown_ == operation.get()) show(nullptr);
  if (operation->is_collective()) show_last(*operation);
  operation->plan.reset();
  operation->shared_assignment.plan.reset();
  operation->outcome.reset();
  operation->copy.clear();
  spare_.push_back(std::move(operation));
  give_back_unused();
}

Result<std::unique_ptr<Operation>> Lane::prepare(const CollectiveCall& asked,
                                                 std::chrono::nanoseconds timeout) {
  try {
    return plan(asked, timeout);
  } catch (const std::bad_alloc&) {
    return no_memory().within(std::string(to_string(asked.kind)));
  }
}

std::unique_ptr<Operation> Lane::plan(const CollectiveCall& asked,
                                      std::chrono::nanoseconds timeout) {
  std::unique_ptr<Operation> operation = new_operation();
  operation->begin_anew(timeout);
  CollectiveCall call = asked;
  const CallShape shape = CallShape::of(asked, world_);
  const SharedCalls::Recipe* recipe = shared_calls_.recipe_for(shape, asked);
  operation->shared = recipe != nullptr;
  if (operation->shared) {
    call.algorithm = recipe->algorithm;
  } else {
    PlanCache::Planned planned = plans_.plan_for(shape, asked);
    call.algorithm = planned.algorithm;
    operation->plan = std::move(planned.plan);
  }
  operation->sequence = next_sequence_++;
  announcements_.called(kind_, operation->sequence);
  operation->assignment = {.plan = operation->plan.get(),
                           .input = static_cast<const std::byte*>(call.input.data),
                           .output = static_cast<std::byte*>(call.output.data),
                           .dtype = dtype_of_call(call),
                           .op = call.op,
                           .tag = {.sequence = operation->sequence,
                                   .context = static_cast<std::uint32_t>(Traffic::kCollective)},
                           .signature = signature_of(call, world_, history_.hash()),
                           .pairwise_counts = !call.recv_counts.empty()};
  if (call.record != nullptr) {
    operation->record = *call.record;
    operation->assignment.record = &operation->record;
  }
  if (operation->shared) {
    operation->shared_assignment = shared_calls_.assignment(*recipe, call);
    operation->shared_assignment.signature = operation->assignment.signature;
    operation->shared_assignment.record = operation->assignment.record;
  }
  history_.append(operation->assignment.signature);
  take_working_copy(*operation, call);
  return operation;
}

void Lane::take_working_copy(Operation& operation, const CollectiveCall& call) {
  const DType dtype = operation.assignment.dtype;
  const DType working = operation.shared ? dtype
                                         : type_of_plan(call.kind, call.algorithm, call.order,
                                                        op_of_call(call), dtype);
  operation.assignment.dtype = working;
  if (!call.pieces.empty()) {
    operation.copy.set_up(call.pieces, working);
  } else if (working != dtype) {
    const bool receives = call.kind != CollectiveKind::kReduce || call.root == rank_;
    operation.copy.set_up(call.input, receives ? call.output : Buffer(), working);
  }
}

std::unique_ptr<Operation> Lane::prepare(const MessageCall& call,
                                         std::chrono::nanoseconds timeout) {
  std::unique_ptr<Operation> operation = new_operation();
  prepare(*operation, call, timeout);
  operation->limited = false;
  return operation;
}

void Lane::prepare(Operation& operation, const MessageCall& call,
                   std::chrono::nanoseconds timeout) {
  operation.begin_anew(timeout);
  operation.sequence = 0;
  operation.outgoing = call.outgoing;
  operation.sender = call.sender;
  if (call.outgoing) announcements_.sent(call.peer);
  Transfer& message = operation.message;
  message.reset();
  message.peer = call.peer;
  message.tag = {.sequence = call.tag,
                 .context = static_cast<std::uint32_t>(Traffic::kPointToPoint)};
  message.signature = {.count = call.data.count,
                       .operation = kPointToPointOperation,
                       .dtype = static_cast<std::uint8_t>(call.data.dtype)};
  message.data = static_cast<std::byte*>(call.data.data);
  message.bytes = call.data.bytes();
}

// --- driving

void Lane::start(Operation& operation) {
  if (!operation.is_collective()) {
    return operation.outgoing ? endpoint_->start_send(operation.message)
                              : endpoint_->start_recv(operation.message);
  }
  const Status clash =
      announcements_.entered(kind_, operation.sequence, operation.assignment.signature);
  if (!clash.ok()) endpoint_->fail(clash);
  try {
    operation.begin();
  } catch (const std::bad_alloc&) {
    give_up(operation, no_memory());
  }
  // A member may have announced all that this rank needs, and then given up.
  if (!operation.shared) return;
  if (const Status failure = endpoint_->group_failure(); !failure.ok()) operation.cancel(failure);
}

void Lane::show(const Operation* operation) {
  if (operation == shown_ || !reporter_.published()) return;
  shown_ = operation;
  if (operation == nullptr) return reporter_.end();
  reporter_.begin(operation->activity());
  if (operation->waiting) reporter_.waits(operation->waiting_since, operation->moved_at);
}

// Of a collective that ended before it could be shown, or out of turn, others must be able to see
// that this rank is through with it. One that still waits stays shown until it ends, too.
void Lane::show_last(const Operation& ended) {
  if (ended.sequence > newest_ended_) {
    newest_ended_ = ended.sequence;
    newest_kind_ = static_cast<CollectiveKind>(ended.assignment.signature.operation);
  }
  if (shown_ != nullptr && shown_->is_collective()) return;
  reporter_.set_last(to_string(newest_kind_), newest_ended_);
}

bool Lane::drive(Operation& operation, pid_t waiter) {
  if (!operation.is_collective()) {
    if (!operation.message.done()) watch(operation, waiter);
    if (!operation.message.done()) return false;
    if (!operation.outgoing && operation.message.status().ok()) {
      announcements_.received(operation.message.peer);
      if (operation.sender != nullptr) *operation.sender = operation.message.peer;
    }
    return true;
  }
  try {
    do {
      if (operation.advance()) operation.moved = true;
    } while (kind_ == LaneKind::kBlocking && operation.linger());
  } catch (const std::bad_alloc&) {
    give_up(operation, no_memory());
  }
  if (!operation.ended()) {
    // Transfers end with their endpoint; what waits for a peer's memory does not.
    if (const Status failure = endpoint_->failure(); !failure.ok()) operation.cancel(failure);
  }
  if (!operation.ended()) watch(operation, waiter);
  if (!operation.ended()) return false;
  if (operation.copy.used() && operation.status().ok()) operation.copy.store();
  return true;
}

// Time in which this process did not run is not time in which others have failed to come: when the
// whole job was stopped they have not run either.
void Lane::make_up_for_stop(Operation& operation, Deadline::Clock::time_point now) {
  const auto late = now - next_check(operation).when();
  if (late < kLateLook) return;
  for (Deadline* deadline : {&operation.deadline, &operation.look_around}) {
    const auto most = Deadline::Clock::time_point::max() - late;
    *deadline = Deadline::at(std::min(deadline->when(), most) + late);
  }
  operation.waiting_since += late;
}

// A message may take as long as it takes before somebody waits for it: a rank that serves others
// has a receive ready, whenever they may come.
void Lane::limit_if_awaited(Operation& operation) {
  if (operation.limited || operation.outcome == nullptr) return;
  const auto limit = operation.outcome->limit(operation.timeout);
  if (!limit) return;
  operation.limited = true;
  operation.deadline = *limit;
}

// Looks after an operation that waits.
void Lane::watch(Operation& operation, pid_t waiter) {
  const auto now = Deadline::Clock::now();
  if (!operation.waiting || operation.moved) {
    if (!operation.waiting) {
      operation.deadline = operation.limited ? Deadline::at(now + operation.timeout)
                                             : Deadline::at(Deadline::Clock::time_point::max());
      operation.waiting_since = now;
    }
    operation.moved_at = now;
    if (shown_ == &operation) reporter_.waits(operation.waiting_since, now);
    operation.waiting = true;
    operation.moved = false;
    operation.announced = false;  // now it waits for something else
    operation.announced_alone = false;
    operation.look_around = Deadline::at(now + standstill(operation.timeout));
    operation.look_again = kLookAgain;
  }
  make_up_for_stop(operation, now);
  limit_if_awaited(operation);
  if (const auto gone = departed_one(operation)) {
    // Its messages would tell; what is waited for in shared memory does not.
    return give_up(operation, peer_left(*gone));
  }
  if (operation.deadline.when() <= now) return give_up(operation, timed_out(operation));
  if (operation.look_around.when() <= now) look_around(operation, waiter);
}

// A rank that the operation waits for in shared memory, and that has left.
std::optional<int> Lane::departed_one(const Operation& operation) const {
  const std::span<const int> departed = endpoint_->departed();
  if (departed.empty() || !operation.is_collective() || !operation.shared) return std::nullopt;
  for (const int rank : operation.waiting_for()) {
    if (std::ranges::find(departed, rank) != departed.end()) return rank;
  }
  return std::nullopt;
}

Announcements::Wait Lane::wait_of(const Operation& operation) const {
  Announcements::Wait wait{
      .lane = kind_, .sequence = operation.sequence, .waiting_for = operation.waiting_for()};
  if (!operation.is_collective()) wait.message = operation.message_end();
  return wait;
}

void Lane::look_around(Operation& operation, pid_t waiter) {
  const bool alone = bystanders_.nobody_but(waiter);
  const bool news = !operation.announced || (alone && !operation.announced_alone);
  operation.announced = true;
  operation.announced_alone = operation.announced_alone || alone;
  operation.look_around = Deadline::after(operation.look_again);
  // Not seldom where time is short, either: it may have begun meanwhile (limit_if_awaited).
  operation.look_again = std::min(
      {2 * operation.look_again, kLookAgainAtMost, std::max(operation.timeout, kLookAgain)});
  Announcements::Wait wait = wait_of(operation);
  wait.alone = alone;
  const Status clash = announcements_.look_around(wait, news);
  if (!clash.ok()) give_up(operation, clash);
}

void Lane::give_up(Operation& operation, const Status& why) {
  if (operation.is_collective()) {
    operation.cancel(why);
  } else {
    operation.given_up = why;
    endpoint_->cancel(operation.message, why);
  }
  endpoint_->fail(why);  // even if nothing of it was in flight
}

Deadline Lane::next_check(const Operation& operation) {
  return earliest(operation.deadline, operation.look_around);
}

// --- how it ended

Status Lane::timed_out(const Operation& operation) const {
  std::vector<int> missing = operation.waiting_for();
  if (operation.is_collective() && operation.announced) {
    // Of the ranks waited for, those that are in the same collective only wait themselves.
    const std::vector<int> silent = announcements_.silent(kind_, operation.sequence);
    std::vector<int> both;
    std::ranges::set_intersection(missing, silent, std::back_inserter(both));
    if (!both.empty()) {
      missing = both;
    } else if (!silent.empty()) {
      missing = silent;
    }
  }
  const bool any = !operation.is_collective() && operation.message.peer == kAnyRank;
  std::string text = "timed out after " + in_seconds(operation.timeout) + " waiting for " +
                     (any ? "any rank" : list_of_ranks(missing));
  if (const std::string opposed = announcements_.opposed(wait_of(operation)); !opposed.empty()) {
    return Status(StatusCode::kTimeout, text + ": " + opposed);
  }
  for (const int rank : missing) {
    const std::string trail = announcements_.trail(rank, operation.waiting_since);
    if (trail.empty()) continue;
    text += " (when last heard of, " + trail + ")";
    break;
  }
  return Status(StatusCode::kTimeout, std::move(text));
}

Status Lane::result(const Operation& operation) {
  const Status& status = operation.is_collective() ? operation.status()
                         : operation.given_up.ok() ? operation.message.status()
                                                   : operation.given_up;
  if (status.ok()) return status;
  const bool mismatch = operation.is_collective() && status.code() == StatusCode::kMismatch;
  if (mismatch) return clarified(operation, status);
  const bool lost = status.code() == StatusCode::kPeerLost;
  return (lost ? explained(status) : status).within_once(operation.name());
}

// It may have said more elsewhere than where it was lost.
Status Lane::explained(const Status& lost) {
  if (lost_.ok()) lost_ = announcements_.last_words(lost);
  return lost_;
}

// Calls that look alike may follow different ones (see CallHistory).
Status Lane::clarified(const Operation& operation, const Status& status) {
  if (mismatch_.ok()) mismatch_ = announcements_.clarify(kind_, operation.sequence, status);
  std::string name = operation.name();
  const auto before = announcements_.own(kind_, operation.sequence - 1);
  if (before.has_value()) name += " after " + describe_call(*before);
  return mismatch_.within_once(std::move(name));
}

}  // namespace dlaunch
