// PlanExecution: carries a plan out over an endpoint, as a state machine that never blocks.
//
// advance() does what can be done now and returns; between calls the owner polls the endpoint. Any
// number of executions can be in flight on one endpoint. Payloads go straight into their
// destination; where they are to be reduced with what is already there, they land in a small ring
// of staging slots and are reduced from it. Messages longer than a segment are cut, so that one
// segment is reduced while the next is on the wire; only a few segments to one peer are handed to
// the endpoint at a time, so that another operation's short message waits behind those at most.
//
// Threads: the one that drives the endpoint. The object may be started again after it has ended and
// keeps its memory, so that repeated shapes allocate nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/collective/elements.h"
#include "runtime/collective/plan.h"
#include "runtime/collective/record_reduction.h"
#include "runtime/collective/types.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// Messages are cut into segments of this many bytes.
inline constexpr std::size_t kSegmentBytes = std::size_t{256} << 10;
/// How many segments of one message are sent, or staged, at a time.
inline constexpr std::size_t kSegmentsInFlight = 4;

/// What one execution works on. `plan` and the memory stay in place until it has ended.
struct Assignment {
  const Plan* plan = nullptr;
  const std::byte* input = nullptr;  // Region::kInput; may be the same memory as the output
  std::byte* output = nullptr;       // Region::kOutput
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  const RecordReduction* record = nullptr;  // set: counts are records, dtype and op mean nothing
  MessageTag tag;                           // of all its messages
  MessageSignature signature;
  /// Two ranks know only of each other's counts: each message's signature says its own, so that a
  /// pair that disagrees finds out.
  bool pairwise_counts = false;
};

class PlanExecution {
 public:
  explicit PlanExecution(Endpoint& endpoint) : endpoint_(endpoint) {}
  PlanExecution(const PlanExecution&) = delete;
  PlanExecution& operator=(const PlanExecution&) = delete;

  /// Begins; an earlier run has ended. Throws std::bad_alloc, as advance() may, after which it is
  /// to be cancelled.
  void start(const Assignment& assignment);

  /// Does what can be done without waiting. Returns true if that was anything: a message came or
  /// went.
  bool advance();

  bool done() const { return done_; }
  /// How it ended: "step 3: peer 2: connection reset".
  const Status& status() const { return status_; }

  /// Ends it early. The endpoint fails, because messages are left half-way.
  void cancel(const Status& why);

  /// The ranks whose messages, or whose taking of ours, this step waits for; in ascending order.
  std::vector<int> waiting_for() const;

 private:
  // A message of the current step, in segments. Segment i uses transfers_[first + i % slots].
  struct Message {
    Slice slice;  // what is sent, or where it is received
    int peer = -1;
    std::size_t first = 0;
    std::size_t slots = 0;
    std::size_t segments = 0;
    std::size_t posted = 0;
    std::size_t finished = 0;  // sent, or landed; in order
    bool open() const { return finished < segments; }
  };
  struct Incoming : Message {
    const PlannedRecv* planned = nullptr;
    bool staged = false;
    std::size_t staging = 0;  // offset of its slots in staging_
  };

  std::byte* address(Slice slice) const;
  std::size_t bytes(std::size_t elements) const { return elements * elements_.size(); }
  std::size_t segment_bytes() const { return bytes(segment_elements_); }
  Slice segment(Slice whole, std::size_t index) const;
  Transfer& transfer(const Message& message, std::size_t index) {
    return transfers_[message.first + index % message.slots];
  }

  void begin_step();
  void compute(const PlanStep& step);
  void lay_out(const PlanStep& step);
  Message message(Slice slice, int peer, std::size_t most_slots);
  bool needs_staging(const PlanStep& step, const PlannedRecv& recv) const;
  void post_send(Message& outgoing);
  void post_recv(Incoming& incoming);
  void prepare(Transfer& transfer, const Message& message, std::byte* data, std::size_t size) const;
  bool advance_send(Message& outgoing);
  bool advance_recv(Incoming& incoming);
  bool send_reads(Slice slice) const;
  void land(const Incoming& incoming, std::size_t index);
  void end(const Status& status);

  Endpoint& endpoint_;
  Assignment assignment_;
  Elements elements_;
  std::size_t step_ = 0;
  bool done_ = true;
  Status status_;
  std::size_t segment_elements_ = 1;

  // Of the current step. Transfers are owned here and do not move while any is in flight.
  std::vector<Message> outgoing_;
  std::vector<Incoming> incoming_;
  std::size_t open_ = 0;  // messages of both kinds that have not finished
  std::size_t transfers_used_ = 0;
  std::vector<Transfer> transfers_;
  std::vector<const void*> operands_;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> staging_;
};

}  // namespace dlaunch
