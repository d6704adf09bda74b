// Communicator: a group of ranks and what they can do together.
//
// Every collective is called by all ranks of the group, in the same order, with the same counts,
// types, reductions and roots. Ranks that disagree all get kMismatch, which names what both sides
// called. A rank that dies fails the operation everywhere with kPeerLost and its rank. After any
// such failure the communicator stays failed: every later call returns the first failure. Bad
// arguments on one rank (kInvalidArgument) are found before anything is sent and fail nothing.
//
// Blocking calls run on the caller's thread and are serialised among threads. start_*() calls
// return at once with a Work and run on a progress thread of the communicator; they have
// connections of their own, so a blocking call never queues behind them. The order among blocking
// calls must be the same on all ranks, and the order among start_*() collectives too; between the
// two kinds any order will do. Point-to-point messages are matched by (peer, tag); messages of one
// (peer, tag, kind of call) arrive in the order sent. A message sent with send() is received with
// recv(), one of start_send() with start_recv().
//
// Counts are elements. A count of zero is allowed everywhere. Results are reproducible: the same
// inputs, ranks and algorithm give the same bits, and all ranks of an all_reduce hold the same
// bits.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/job_environment.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "runtime/collective/types.h"
#include "runtime/comm/buffer.h"
#include "runtime/comm/work.h"

namespace dlaunch {

/// Which calls go first where asynchronous ones wait for each other.
enum class Priority : std::uint8_t { kNormal = 0, kHigh = 1 };

/// What a collective call is, as plain data: decorators (counting, tracing) and backends see this.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ConstBuffer input;  // what this rank contributes; may be the same memory as output (in place)
  Buffer output;      // what it receives
  /// scatter, gather, all_gather, reduce_scatter with unequal parts: elements of every rank's part,
  /// on every rank the same. Empty: equal parts.
  std::span<const std::size_t> counts;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;  // -1: the operation has none
  Algorithm algorithm = Algorithm::kAuto;
  ReduceOrder order = ReduceOrder::kAny;
  Priority priority = Priority::kNormal;  // of start(): kHigh has a lane of its own
};

class Communicator {
 public:
  virtual ~Communicator() =
      default;  // orderly: peers that still need this rank get kPeerLeft; never blocks

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Runs a collective on this thread; the typed members below are the usual way to call it.
  virtual Status run(const CollectiveCall& call) = 0;
  /// The same in the background. The buffers (not `counts`) must stay in place until the Work is
  /// done.
  virtual Work start(const CollectiveCall& call) = 0;

  /// Point to point. The receiver's buffer has exactly the sender's count and type (else
  /// kMismatch). A message to oneself is kept until it is received.
  virtual Status send(ConstBuffer data, int peer, std::uint64_t tag = 0) = 0;
  virtual Status recv(Buffer data, int peer, std::uint64_t tag = 0) = 0;
  virtual Work start_send(ConstBuffer data, int peer, std::uint64_t tag = 0) = 0;
  virtual Work start_recv(Buffer data, int peer, std::uint64_t tag = 0) = 0;

  /// How long any later blocking wait lasts at most before it fails with kTimeout.
  virtual void set_timeout(std::chrono::nanoseconds timeout) = 0;

  /// Fails this communicator everywhere with `why`: for a rank that must give up on its own
  /// account.
  virtual void abort(Status why) = 0;

  // --- collectives, blocking; each has a start_ twin
  // -------------------------------------------------

  /// Returns when every rank has called it.
  Status barrier() { return run(barrier_call()); }
  /// Copies root's buffer to everybody.
  Status broadcast(Buffer data, int root) { return run(broadcast_call(data, root)); }
  /// Rank r receives part r of root's input: input.count == size() * output.count, or sum(counts)
  /// with output.count == counts[rank()]. Only the root's input is read.
  Status scatter(ConstBuffer input, Buffer output, int root,
                 std::span<const std::size_t> counts = {}) {
    return run(rooted_call(CollectiveKind::kScatter, input, output, root, counts));
  }
  /// The inverse of scatter; only the root's output is written.
  Status gather(ConstBuffer input, Buffer output, int root,
                std::span<const std::size_t> counts = {}) {
    return run(rooted_call(CollectiveKind::kGather, input, output, root, counts));
  }
  /// gather whose result every rank receives.
  Status all_gather(ConstBuffer input, Buffer output, std::span<const std::size_t> counts = {}) {
    return run(rooted_call(CollectiveKind::kAllGather, input, output, -1, counts));
  }
  /// Elementwise reduction of all ranks' inputs into root's output.
  Status reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) {
    return run(reduce_call(CollectiveKind::kReduce, input, output, op, root));
  }
  /// Rank r receives part r of the elementwise reduction: input.count == size() * output.count, or
  /// sum(counts) with output.count == counts[rank()].
  Status reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                        std::span<const std::size_t> counts = {}) {
    CollectiveCall call = reduce_call(CollectiveKind::kReduceScatter, input, output, op, -1);
    call.counts = counts;
    return run(call);
  }
  /// Elementwise reduction in place, the same result on every rank. The average of integers is
  /// computed in 64 bits and truncated toward zero; sums and products of integers wrap.
  Status all_reduce(Buffer data, ReduceOp op = ReduceOp::kSum,
                    Algorithm algorithm = Algorithm::kAuto) {
    return run(all_reduce_call(data, op, algorithm));
  }

  Work start_barrier() { return start(barrier_call()); }
  Work start_broadcast(Buffer data, int root) { return start(broadcast_call(data, root)); }
  Work start_scatter(ConstBuffer input, Buffer output, int root,
                     std::span<const std::size_t> counts = {}) {
    return start(rooted_call(CollectiveKind::kScatter, input, output, root, counts));
  }
  Work start_gather(ConstBuffer input, Buffer output, int root,
                    std::span<const std::size_t> counts = {}) {
    return start(rooted_call(CollectiveKind::kGather, input, output, root, counts));
  }
  Work start_all_gather(ConstBuffer input, Buffer output,
                        std::span<const std::size_t> counts = {}) {
    return start(rooted_call(CollectiveKind::kAllGather, input, output, -1, counts));
  }
  Work start_reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) {
    return start(reduce_call(CollectiveKind::kReduce, input, output, op, root));
  }
  Work start_reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                            std::span<const std::size_t> counts = {}) {
    CollectiveCall call = reduce_call(CollectiveKind::kReduceScatter, input, output, op, -1);
    call.counts = counts;
    return start(call);
  }
  Work start_all_reduce(Buffer data, ReduceOp op = ReduceOp::kSum,
                        Algorithm algorithm = Algorithm::kAuto) {
    return start(all_reduce_call(data, op, algorithm));
  }

 private:
  static CollectiveCall barrier_call() { return {}; }
  static CollectiveCall broadcast_call(Buffer data, int root) {
    return {.kind = CollectiveKind::kBroadcast, .input = data, .output = data, .root = root};
  }
  static CollectiveCall rooted_call(CollectiveKind kind, ConstBuffer input, Buffer output, int root,
                                    std::span<const std::size_t> counts) {
    return {.kind = kind, .input = input, .output = output, .counts = counts, .root = root};
  }
  static CollectiveCall reduce_call(CollectiveKind kind, ConstBuffer input, Buffer output,
                                    ReduceOp op, int root) {
    return {.kind = kind, .input = input, .output = output, .op = op, .root = root};
  }
  static CollectiveCall all_reduce_call(Buffer data, ReduceOp op, Algorithm algorithm) {
    return {.kind = CollectiveKind::kAllReduce,
            .input = data,
            .output = data,
            .op = op,
            .algorithm = algorithm};
  }
};

/// The communicator of all ranks of the job: reads the environment that dlaunch made, meets the
/// other ranks through the store and connects to them. Without dlaunch it is a world of one. Blocks
/// until all ranks have come or the job's timeout has passed (kTimeout names the ranks that are
/// missing).
Result<std::unique_ptr<Communicator>> connect_world();

/// The same for an environment already read, with a logger.
Result<std::unique_ptr<Communicator>> connect_world(const JobEnvironment& job, Logger logger);

}  // namespace dlaunch
