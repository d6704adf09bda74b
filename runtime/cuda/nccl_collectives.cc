#include "runtime/cuda/nccl_collectives.h"

#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/comm/call_signature.h"
#include "runtime/cuda/nccl_rules.h"
#include "runtime/device/memory_plan.h"
#include "runtime/device/segments.h"

namespace dlaunch {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kI8:
      return ncclInt8;
    case DType::kU32:
      return ncclUint32;
    case DType::kU64:
      return ncclUint64;
    case DType::kU8:
      break;
  }
  return ncclUint8;
}

// Averages are sums, divided afterwards.
ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd:
      return ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    default:
      return ncclSum;
  }
}

class Queue {
 public:
  Queue(const NcclContext& context, const CollectiveCall& call)
      : context_(context),
        call_(call),
        dtype_(dtype_of_call(call)),
        element_(size_of(dtype_)),
        input_(static_cast<const std::byte*>(call.input.data)),
        output_(static_cast<std::byte*>(call.output.data)) {}

  Status run() {
    switch (call_.kind) {
      case CollectiveKind::kBroadcast:
        return group([&](ncclComm_t comm) {
          return ncclBroadcast(input_, output_, call_.output.count, nccl_type(dtype_), call_.root,
                               comm, stream());
        });
      case CollectiveKind::kScatter:
        return exchange(is_root() ? parts() : nothing(), input_, only_from_root(), output_);
      case CollectiveKind::kGather:
        return exchange(only_to_root(call_.input.bytes()), input_, is_root() ? parts() : nothing(),
                        output_);
      case CollectiveKind::kAllGather:
        return all_gather();
      case CollectiveKind::kAllToAll:
        return exchange(all_to_all(call_.counts, call_.input.bytes()), input_,
                        all_to_all(call_.recv_counts, call_.output.bytes()), output_);
      default:
        return reduction();
    }
  }

 private:
  struct Transfers {
    std::vector<std::size_t> begins;  // bytes, by rank
    std::vector<std::size_t> bytes;
  };

  cudaStream_t stream() const { return static_cast<cudaStream_t>(context_.stream.native()); }
  std::size_t own() const { return static_cast<std::size_t>(context_.rank); }
  std::size_t p() const { return static_cast<std::size_t>(context_.size); }
  bool is_root() const { return context_.rank == call_.root; }
  Result<std::byte*> scratch(std::size_t bytes) const { return context_.scratch.take(bytes); }

  template <typename Calls>
  Status group(const Calls& calls) const {
    return context_.comm.group("NCCL " + std::string(to_string(call_.kind)), context_.deadline,
                               calls);
  }

  // --- what goes where

  Transfers nothing() const {
    return {std::vector<std::size_t>(p()), std::vector<std::size_t>(p())};
  }
  static Transfers side_by_side(std::vector<std::size_t> bytes) {
    std::vector<std::size_t> begins(bytes.size());
    std::exclusive_scan(bytes.begin(), bytes.end(), begins.begin(), std::size_t{0});
    return {std::move(begins), std::move(bytes)};
  }
  // The parts of a whole vector, as the call says.
  Transfers parts() const {
    std::vector<std::size_t> bytes(p(), total_count(call_, context_.size) / p() * element_);
    for (std::size_t i = 0; i < call_.counts.size(); ++i) bytes[i] = call_.counts[i] * element_;
    return side_by_side(std::move(bytes));
  }
  Transfers all_to_all(std::span<const std::size_t> counts, std::size_t total) const {
    std::vector<std::size_t> bytes(p(), total / p());
    for (std::size_t i = 0; i < counts.size(); ++i) bytes[i] = counts[i] * element_;
    return side_by_side(std::move(bytes));
  }
  Transfers the_same_to_all(std::size_t bytes) const {
    return {std::vector<std::size_t>(p()), std::vector<std::size_t>(p(), bytes)};
  }
  Transfers only_to_root(std::size_t bytes) const {
    Transfers transfers = nothing();
    transfers.bytes[static_cast<std::size_t>(call_.root)] = bytes;
    return transfers;
  }
  Transfers only_from_root() const { return only_to_root(call_.output.bytes()); }
  // The slices that ranks reduce of a vector of `count` elements.
  Transfers slices(std::size_t count) const {
    std::vector<std::size_t> bytes;
    bytes.reserve(p());
    for (int rank = 0; rank < context_.size; ++rank) {
      bytes.push_back(slice_of(count, rank, context_.size).size() * element_);
    }
    return side_by_side(std::move(bytes));
  }

  // Sends and receives to and from all ranks at once; to oneself it is a copy, if it moves at all.
  Status exchange(const Transfers& sends, const std::byte* from, const Transfers& receives,
                  std::byte* to) const {
    const std::byte* const own_from = from + sends.begins[own()];
    std::byte* const own_to = to + receives.begins[own()];
    DLAUNCH_RETURN_IF_ERROR(group([&](ncclComm_t comm) {
      ncclResult_t result = ncclSuccess;
      const auto note = [&](ncclResult_t of_call) {
        if (result == ncclSuccess && of_call != ncclInProgress) result = of_call;
      };
      for (std::size_t peer = 0; peer < p(); ++peer) {
        if (peer == own()) continue;
        const int rank = static_cast<int>(peer);
        if (sends.bytes[peer] > 0) {
          note(ncclSend(from + sends.begins[peer], sends.bytes[peer], ncclUint8, rank, comm,
                        stream()));
        }
        if (receives.bytes[peer] > 0) {
          note(ncclRecv(to + receives.begins[peer], receives.bytes[peer], ncclUint8, rank, comm,
                        stream()));
        }
      }
      return result;
    }));
    const std::size_t own_bytes = receives.bytes[own()];
    if (own_bytes == 0 || own_from == own_to) return Status();
    return context_.stream.copy(own_to, own_from, own_bytes);
  }

  Status all_gather() const {
    if (!equal_parts(call_)) {
      return exchange(the_same_to_all(call_.input.bytes()), input_, parts(), output_);
    }
    return group([&](ncclComm_t comm) {
      return ncclAllGather(input_, output_, call_.input.count, nccl_type(dtype_), comm, stream());
    });
  }

  // --- reductions

  Status reduction() {
    const bool native = nccl_reduces(call_);
    if (!call_.pieces.empty()) return native ? all_reduce_pieces() : reduce_pieces_in_order();
    switch (call_.kind) {
      case CollectiveKind::kAllReduce:
        return native ? natively(output_) : all_reduce_in_order(input_, output_, call_.input.count);
      case CollectiveKind::kReduce:
        return native ? natively(output_) : reduce_in_order();
      default:
        return native ? reduce_scatter() : reduce_scatter_in_order();
    }
  }

  // NCCL knows one kind of reduce_scatter in place; others would overwrite what is still to be
  // sent, so there the sums take a way round, on the ranks that need it.
  Status reduce_scatter() const {
    const std::size_t bytes = call_.output.bytes();
    const bool apart = output_ + bytes <= input_ || input_ + call_.input.bytes() <= output_;
    if (apart || output_ == input_ + own() * bytes) return natively(output_);
    auto sums = scratch(bytes);
    DLAUNCH_RETURN_IF_ERROR(sums.status());
    DLAUNCH_RETURN_IF_ERROR(natively(*sums));
    return bytes == 0 ? Status() : context_.stream.copy(output_, *sums, bytes);
  }

  Status natively(std::byte* into) const {
    const auto type = nccl_type(dtype_);
    const auto op = nccl_op(call_.op);
    DLAUNCH_RETURN_IF_ERROR(group([&](ncclComm_t comm) {
      switch (call_.kind) {
        case CollectiveKind::kAllReduce:
          return ncclAllReduce(input_, into, call_.input.count, type, op, comm, stream());
        case CollectiveKind::kReduce:
          return ncclReduce(input_, into, call_.input.count, type, op, call_.root, comm, stream());
        default:
          return ncclReduceScatter(input_, into, call_.output.count, type, op, comm, stream());
      }
    }));
    if (call_.op != ReduceOp::kAvg || (call_.kind == CollectiveKind::kReduce && !is_root())) {
      return Status();
    }
    return divide({into, call_.output.count, dtype_});
  }

  Status divide(Buffer values) const {
    const void* const operand = values.data;
    return context_.stream.reduce(ReduceOp::kAvg, dtype_, values.data, std::span(&operand, 1),
                                  values.count, context_.size);
  }

  Status all_reduce_pieces() const {
    DLAUNCH_RETURN_IF_ERROR(group([&](ncclComm_t comm) {
      ncclResult_t result = ncclSuccess;
      for (const Buffer& piece : call_.pieces) {
        if (piece.count == 0) continue;
        const ncclResult_t of_call =
            ncclAllReduce(piece.data, piece.data, piece.count, nccl_type(dtype_), nccl_op(call_.op),
                          comm, stream());
        if (result == ncclSuccess && of_call != ncclInProgress) result = of_call;
      }
      return result;
    }));
    if (call_.op != ReduceOp::kAvg) return Status();
    for (const Buffer& piece : call_.pieces) DLAUNCH_RETURN_IF_ERROR(divide(piece));
    return Status();
  }

  Status reduce_pieces_in_order() const {
    const Segments pieces = Segments::outputs(call_);
    auto packed = scratch(pieces.bytes());
    DLAUNCH_RETURN_IF_ERROR(packed.status());
    DLAUNCH_RETURN_IF_ERROR(pieces.for_each(
        0, pieces.bytes(), [&](std::byte* piece, std::size_t at, std::size_t bytes) {
          return context_.stream.copy(*packed + at, piece, bytes);
        }));
    DLAUNCH_RETURN_IF_ERROR(all_reduce_in_order(*packed, *packed, pieces.bytes() / element_));
    return pieces.for_each(0, pieces.bytes(),
                           [&](std::byte* piece, std::size_t at, std::size_t bytes) {
                             return context_.stream.copy(piece, *packed + at, bytes);
                           });
  }

  // Every rank receives its share of all vectors and reduces it, into `into`, in the order of
  // ranks.
  Status reduce_share(const std::byte* from, const Transfers& shares, std::byte* into) const {
    const std::size_t bytes = shares.bytes[own()];
    auto received = scratch(bytes * p());
    DLAUNCH_RETURN_IF_ERROR(received.status());
    Transfers receives = nothing();
    for (std::size_t peer = 0; peer < p(); ++peer) {
      receives.begins[peer] = peer * bytes;
      receives.bytes[peer] = peer == own() ? 0 : bytes;
    }
    DLAUNCH_RETURN_IF_ERROR(exchange(shares, from, receives, *received));
    if (bytes == 0) return Status();
    std::array<const void*, kMostOperands> operands{};
    for (std::size_t peer = 0; peer < p(); ++peer) {
      operands[peer] = peer == own() ? from + shares.begins[own()] : *received + peer * bytes;
    }
    return context_.stream.reduce(call_.op, dtype_, into, std::span(operands).first(p()),
                                  bytes / element_, context_.size);
  }

  Status all_reduce_in_order(const std::byte* from, std::byte* to, std::size_t count) const {
    const Transfers shares = slices(count);
    std::byte* const own_share = to + shares.begins[own()];
    DLAUNCH_RETURN_IF_ERROR(reduce_share(from, shares, own_share));
    return exchange(the_same_to_all(shares.bytes[own()]), own_share, shares, to);
  }

  Status reduce_in_order() const {
    const Transfers shares = slices(call_.input.count);
    auto reduced = scratch(shares.bytes[own()]);
    DLAUNCH_RETURN_IF_ERROR(reduced.status());
    DLAUNCH_RETURN_IF_ERROR(reduce_share(input_, shares, *reduced));
    return exchange(only_to_root(shares.bytes[own()]), *reduced, is_root() ? shares : nothing(),
                    output_);
  }

  Status reduce_scatter_in_order() const { return reduce_share(input_, parts(), output_); }

  const NcclContext& context_;
  const CollectiveCall& call_;
  const DType dtype_;
  const std::size_t element_;
  const std::byte* const input_;
  std::byte* const output_;
};

}  // namespace

Status queue_by_nccl(const NcclContext& context, const CollectiveCall& call) {
  context.scratch.begin();
  return Queue(context, call).run();
}

}  // namespace dlaunch
