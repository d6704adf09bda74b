// Collectives as calls of MPI's nonblocking ones.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "runtime/base/copy_memory.h"
#include "runtime/collective/elements.h"
#include "runtime/collective/reduction.h"
#include "runtime/collective/signature.h"
#include "runtime/comm/call_signature.h"
#include "runtime/mpi/mpi_movement.h"
#include "runtime/mpi/mpi_operation.h"

namespace dlaunch {
namespace {

bool overlap(const ConstBuffer& a, const ConstBuffer& b) {
  const auto* const a_begin = static_cast<const std::byte*>(a.data);
  const auto* const b_begin = static_cast<const std::byte*>(b.data);
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

// Equal parts are the same operation whether they were written out or not.
bool all_equal(std::span<const std::size_t> counts) {
  return std::ranges::all_of(counts, [&](std::size_t count) { return count == counts.front(); });
}

// A collective on its way into MPI.
class Starter {
 public:
  Starter(const MpiContext& context, const CollectiveCall& call, MpiOperation& operation)
      : context_(context),
        call_(call),
        operation_(operation),
        receives_(call.kind != CollectiveKind::kReduce || call.root == context.rank),
        dtype_(dtype_of_call(call)) {}

  Status start() {
    if (call_.kind == CollectiveKind::kBarrier) {
      return mpi_status(MPI_Ibarrier(context_.comm, request()), "MPI_Ibarrier");
    }
    take_buffers();
    if (!reduces(call_.kind)) return move();
    if (call_.order == ReduceOrder::kRanks) return gather_operands();
    if (call_.record != nullptr) return reduce_records();
    operation_.finish = [&operation = operation_, dtype = dtype_, output = output_,
                         divisor = call_.op == ReduceOp::kAvg ? context_.size : 1,
                         elements = outputs()] {
      if (divisor > 1 && elements > 0) divide(dtype, output, elements, divisor);
      if (operation.copy.used()) operation.copy.store();
      return Status();
    };
    return reduce(mpi_type(dtype_), context_.library->op(call_.op, dtype_), outputs());
  }

 private:
  MPI_Request* request() { return &operation_.requests.emplace_back(MPI_REQUEST_NULL); }

  // Elements (records) of this rank's result and of its input.
  std::size_t per_element() const { return call_.record == nullptr ? 1 : call_.record->bytes; }
  std::size_t inputs() const {
    if (call_.pieces.empty()) return call_.input.count / per_element();
    return std::accumulate(call_.pieces.begin(), call_.pieces.end(), std::size_t{0},
                           [](std::size_t sum, const Buffer& piece) { return sum + piece.count; });
  }
  std::size_t outputs() const {
    if (!call_.pieces.empty()) return inputs();
    return receives_ ? call_.output.count / per_element() : 0;
  }

  // Where MPI works: on the caller's memory, or on a copy.
  void take_buffers() {
    input_ = static_cast<const std::byte*>(call_.input.data);
    output_ = receives_ ? static_cast<std::byte*>(call_.output.data) : nullptr;
    const bool in_rank_order = call_.order == ReduceOrder::kRanks;
    const bool computes = reduces(call_.kind) && call_.record == nullptr && !in_rank_order;
    // MPI knows no halves and no averages, which are sums, divided afterwards.
    const DType working = computes ? reduced_in(call_.op, dtype_) : dtype_;
    const bool aliased = call_.kind == CollectiveKind::kReduceScatter && !in_rank_order &&
                         overlap(call_.input, call_.output);
    if (!call_.pieces.empty()) {
      operation_.copy.set_up(call_.pieces, working);
    } else if (working != dtype_ || aliased) {
      operation_.copy.set_up(call_.input, receives_ ? call_.output : Buffer(), working);
    } else {
      return;
    }
    operation_.copy.load();
    input_ = operation_.copy.input();
    output_ = receives_ ? operation_.copy.output() : nullptr;
    dtype_ = working;
  }

  // A buffer as MPI wants it when the result overwrites the input.
  const void* input_at(std::size_t offset) const {
    return input_ == output_ ? MPI_IN_PLACE : input_ + offset;
  }

  // `elements` of every rank's input, or of every part.
  Status reduce(MPI_Datatype type, MPI_Op op, std::size_t elements) {
    if (call_.kind == CollectiveKind::kReduceScatter) return reduce_scatter(type, op, elements);
    const bool to_all = call_.kind == CollectiveKind::kAllReduce;
    // In place is all ranks' common decision in MPI, but each rank's own here.
    if (to_all && input_ != output_) copy_memory(output_, input_, inputs() * element_bytes());
    for (std::size_t first = 0; first < inputs(); first += context_.largest_count) {
      const int count = static_cast<int>(std::min(inputs() - first, context_.largest_count));
      const std::size_t offset = first * element_bytes();
      if (to_all) {
        DLAUNCH_RETURN_IF_ERROR(mpi_status(MPI_Iallreduce(MPI_IN_PLACE, output_ + offset, count,
                                                          type, op, context_.comm, request()),
                                           "MPI_Iallreduce"));
      } else {
        DLAUNCH_RETURN_IF_ERROR(reduce_to(call_.root, offset, 0, count, type, op));
      }
    }
    return Status();
  }

  Status reduce_to(int root, std::size_t from, std::size_t part_begin, int count, MPI_Datatype type,
                   MPI_Op op) {
    const bool mine = root == context_.rank;
    const bool in_place = mine && input_ == output_ && part_begin == 0;
    return mpi_status(MPI_Ireduce(in_place ? MPI_IN_PLACE : input_ + from,
                                  mine ? output_ + (from - part_begin) : nullptr, count, type, op,
                                  root, context_.comm, request()),
                      "MPI_Ireduce");
  }

  Status reduce_scatter(MPI_Datatype type, MPI_Op op, std::size_t elements) {
    if (inputs() > context_.largest_count) return reduce_every_part(type, op, elements);
    if (call_.counts.empty()) {
      if (elements == 0) return Status();
      return mpi_status(MPI_Ireduce_scatter_block(input_at(0), output_, static_cast<int>(elements),
                                                  type, op, context_.comm, request()),
                        "MPI_Ireduce_scatter_block");
    }
    for (const std::size_t count : call_.counts) {
      operation_.recv_counts.push_back(static_cast<int>(count));
    }
    return mpi_status(MPI_Ireduce_scatter(input_at(0), output_, operation_.recv_counts.data(), type,
                                          op, context_.comm, request()),
                      "MPI_Ireduce_scatter");
  }

  Status reduce_every_part(MPI_Datatype type, MPI_Op op, std::size_t elements) {
    std::size_t begin = 0;
    for (int root = 0; root < context_.size; ++root) {
      const auto index = static_cast<std::size_t>(root);
      const std::size_t part = call_.counts.empty() ? elements : call_.counts[index];
      for (std::size_t first = 0; first < part; first += context_.largest_count) {
        const int count = static_cast<int>(std::min(part - first, context_.largest_count));
        DLAUNCH_RETURN_IF_ERROR(reduce_to(root, (begin + first) * element_bytes(),
                                          begin * element_bytes(), count, type, op));
      }
      begin += part;
    }
    return Status();
  }

  Status reduce_records() {
    operation_.record = *call_.record;
    auto type = make_record_type(operation_.record);
    DLAUNCH_RETURN_IF_ERROR(type.status());
    operation_.record_type = *type;
    if (operation_.copy.used()) {
      operation_.finish = [&operation = operation_] {
        operation.copy.store();
        return Status();
      };
    }
    return reduce(*type, context_.library->record_op(), outputs());
  }

  // ReduceOrder::kRanks: everybody's operands come here and are combined in the order of ranks.
  // Records travel as bytes.
  Status gather_operands() {
    const std::size_t count = outputs();
    const std::size_t part_bytes = count * element_bytes();
    const std::size_t width = per_element();
    const auto p = static_cast<std::size_t>(context_.size);
    operation_.operands.resize(p * part_bytes);
    CollectiveCall movement{.input = {input_, inputs() * width, dtype_},
                            .output = {operation_.operands.data(), p * count * width, dtype_},
                            .root = call_.root};
    std::vector<std::size_t> sent(call_.counts.begin(), call_.counts.end());
    for (std::size_t& part : sent) part *= width;
    const std::vector<std::size_t> received(p, count * width);
    movement.kind = CollectiveKind::kAllGather;
    if (call_.kind == CollectiveKind::kReduce) movement.kind = CollectiveKind::kGather;
    if (call_.kind == CollectiveKind::kReduceScatter) {
      movement.kind = CollectiveKind::kAllToAll;
      movement.counts = sent;
      if (!sent.empty()) movement.recv_counts = received;
    }
    if (call_.record != nullptr) operation_.record = *call_.record;
    Elements elements;
    elements.assign(dtype_, call_.op, call_.record != nullptr ? &operation_.record : nullptr,
                    context_.size);
    operation_.finish = [&operation = operation_, elements, count, part_bytes, p,
                         output = output_]() mutable {
      std::vector<const void*> operands;
      for (std::size_t rank = 0; rank < p; ++rank) {
        operands.push_back(operation.operands.data() + rank * part_bytes);
      }
      elements.reduce(output, operands, count, /*complete=*/true);
      if (operation.copy.used()) operation.copy.store();
      return Status();
    };
    return begin_movement(context_, movement, operation_);
  }

  Status move() { return begin_movement(context_, call_, operation_); }

  std::size_t element_bytes() const {
    return call_.record == nullptr ? size_of(dtype_) : call_.record->bytes;
  }

  const MpiContext& context_;
  const CollectiveCall& call_;
  MpiOperation& operation_;
  const bool receives_;
  DType dtype_;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace

void begin_collective(const MpiContext& context, const CollectiveCall& call,
                      MpiOperation& operation) {
  operation.name = [signature = signature_of(call, context.size, 0)] {
    return describe_call(signature);
  };
  CollectiveCall as_equal = call;
  if (call.kind != CollectiveKind::kAllToAll && all_equal(call.counts)) as_equal.counts = {};
  operation.status = Starter(context, as_equal, operation).start();
}

}  // namespace dlaunch
