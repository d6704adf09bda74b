#include "runtime/mpi/mpi_movement.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "runtime/comm/call_signature.h"

namespace dlaunch {
namespace {

class Movement {
 public:
  Movement(const MpiContext& context, const CollectiveCall& call, MpiOperation& operation)
      : context_(context),
        call_(call),
        operation_(operation),
        dtype_(dtype_of_call(call)),
        type_(mpi_type(dtype_)),
        p_(static_cast<std::size_t>(context.size)),
        is_root_(call.root == context.rank) {}

  Status begin() {
    switch (call_.kind) {
      case CollectiveKind::kBroadcast:
        return broadcast();
      case CollectiveKind::kScatter:
        return fits_everywhere() ? scatter() : messages();
      case CollectiveKind::kGather:
        return fits_everywhere() ? gather() : messages();
      case CollectiveKind::kAllGather:
        return fits_everywhere() ? all_gather() : messages();
      default:
        return call_.counts.empty() && fits_everywhere() ? all_to_all() : all_to_all_v();
    }
  }

 private:
  MPI_Request* request() { return &operation_.requests.emplace_back(MPI_REQUEST_NULL); }
  static int as_int(std::size_t count) { return static_cast<int>(count); }
  std::byte* output_at(std::size_t element) const {
    return static_cast<std::byte*>(call_.output.data) + element * size_of(dtype_);
  }
  const std::byte* input_at(std::size_t element) const {
    return static_cast<const std::byte*>(call_.input.data) + element * size_of(dtype_);
  }

  // The same answer on every rank.
  bool fits_everywhere() const {
    return total_count(call_, context_.size) <= context_.largest_count;
  }

  Status broadcast() {
    return in_pieces(call_.output.count, [&](std::size_t first, int piece) {
      return mpi_status(
          MPI_Ibcast(output_at(first), piece, type_, call_.root, context_.comm, request()),
          "MPI_Ibcast");
    });
  }

  static void set_counts(std::span<const std::size_t> from, std::vector<int>& counts,
                         std::vector<int>& offsets) {
    int offset = 0;
    for (const std::size_t count : from) {
      counts.push_back(as_int(count));
      offsets.push_back(offset);
      offset += as_int(count);
    }
  }

  // Offset of this rank's part in the whole.
  std::size_t own_offset(std::size_t part) const {
    const auto own = static_cast<std::size_t>(context_.rank);
    if (call_.counts.empty()) return own * part;
    return std::accumulate(call_.counts.begin(), call_.counts.begin() + context_.rank,
                           std::size_t{0});
  }

  Status scatter() {
    const std::size_t part = call_.output.count;
    const bool in_place = is_root_ && part > 0 && call_.output.data == input_at(own_offset(part));
    void* const output = in_place ? MPI_IN_PLACE : call_.output.data;
    if (call_.counts.empty()) {
      if (part == 0) return Status();
      return mpi_status(MPI_Iscatter(call_.input.data, as_int(part), type_, output, as_int(part),
                                     type_, call_.root, context_.comm, request()),
                        "MPI_Iscatter");
    }
    set_counts(call_.counts, operation_.send_counts, operation_.send_offsets);
    return mpi_status(MPI_Iscatterv(call_.input.data, operation_.send_counts.data(),
                                    operation_.send_offsets.data(), type_, output, as_int(part),
                                    type_, call_.root, context_.comm, request()),
                      "MPI_Iscatterv");
  }

  Status gather() {
    const std::size_t part = call_.input.count;
    const bool in_place = is_root_ && part > 0 && call_.input.data == output_at(own_offset(part));
    const void* const input = in_place ? MPI_IN_PLACE : call_.input.data;
    if (call_.counts.empty()) {
      if (part == 0) return Status();
      return mpi_status(MPI_Igather(input, as_int(part), type_, call_.output.data, as_int(part),
                                    type_, call_.root, context_.comm, request()),
                        "MPI_Igather");
    }
    set_counts(call_.counts, operation_.recv_counts, operation_.recv_offsets);
    return mpi_status(
        MPI_Igatherv(input, as_int(part), type_, call_.output.data, operation_.recv_counts.data(),
                     operation_.recv_offsets.data(), type_, call_.root, context_.comm, request()),
        "MPI_Igatherv");
  }

  // In place is all ranks' common decision in MPI, but each rank's own here: a rank that has its
  // part in place already passes a copy.
  Status all_gather() {
    const std::size_t part = call_.input.count;
    const void* input = call_.input.data;
    if (part > 0 && input == output_at(own_offset(part))) {
      const auto* const begin = static_cast<const std::byte*>(input);
      operation_.operands.assign(begin, begin + call_.input.bytes());
      input = operation_.operands.data();
    }
    if (call_.counts.empty()) {
      if (part == 0) return Status();
      return mpi_status(MPI_Iallgather(input, as_int(part), type_, call_.output.data, as_int(part),
                                       type_, context_.comm, request()),
                        "MPI_Iallgather");
    }
    set_counts(call_.counts, operation_.recv_counts, operation_.recv_offsets);
    return mpi_status(MPI_Iallgatherv(input, as_int(part), type_, call_.output.data,
                                      operation_.recv_counts.data(), operation_.recv_offsets.data(),
                                      type_, context_.comm, request()),
                      "MPI_Iallgatherv");
  }

  Status all_to_all() {
    const std::size_t part = call_.input.count / p_;
    if (part == 0) return Status();
    return mpi_status(MPI_Ialltoall(call_.input.data, as_int(part), type_, call_.output.data,
                                    as_int(part), type_, context_.comm, request()),
                      "MPI_Ialltoall");
  }

  // Only this rank knows how much it exchanges, so all ranks exchange messages: MPI_Ialltoallv
  // would need a common decision whether ints can count it.
  Status all_to_all_v() { return messages(); }

  // --- messages between all ranks concerned

  Status messages() {
    std::vector<std::size_t> sends(p_);
    std::vector<std::size_t> recvs(p_);
    const auto parts = [&](const ConstBuffer& whole, std::span<const std::size_t> counts) {
      if (!counts.empty()) return std::vector<std::size_t>(counts.begin(), counts.end());
      return std::vector<std::size_t>(p_, whole.count / p_);
    };
    const auto root = static_cast<std::size_t>(std::max(call_.root, 0));
    switch (call_.kind) {
      case CollectiveKind::kScatter:
        if (is_root_) sends = parts(call_.input, call_.counts);
        recvs[root] = call_.output.count;
        return exchange(sends, false, recvs);
      case CollectiveKind::kGather:
        if (is_root_) recvs = parts(call_.output, call_.counts);
        sends[root] = call_.input.count;
        return exchange(sends, false, recvs);
      case CollectiveKind::kAllGather:
        std::ranges::fill(sends, call_.input.count);
        return exchange(sends, true, parts(call_.output, call_.counts));
      default:
        return exchange(parts(call_.input, call_.counts), false,
                        parts(call_.output, call_.recv_counts));
    }
  }

  // Sends a part to and receives one from every rank; the parts lie one after the other, or are all
  // the same one (`same`).
  Status exchange(const std::vector<std::size_t>& sends, bool same,
                  const std::vector<std::size_t>& recvs) {
    const auto own = static_cast<std::size_t>(context_.rank);
    std::size_t from = 0;
    std::size_t into = 0;
    for (std::size_t peer = 0; peer < p_; ++peer) {
      if (peer == own && sends[peer] > 0 && output_at(into) != input_at(from)) {
        std::memcpy(output_at(into), input_at(from), sends[peer] * size_of(dtype_));
      }
      if (peer != own) {
        DLAUNCH_RETURN_IF_ERROR(receive_part(as_int(peer), into, recvs[peer]));
        DLAUNCH_RETURN_IF_ERROR(send_part(as_int(peer), from, sends[peer]));
      }
      into += recvs[peer];
      if (!same) from += sends[peer];
    }
    return Status();
  }

  // Calls step(first, count) for pieces that an int can count.
  template <typename Step>
  Status in_pieces(std::size_t count, const Step& step) {
    for (std::size_t first = 0; first < count; first += context_.largest_count) {
      DLAUNCH_RETURN_IF_ERROR(step(first, as_int(std::min(count - first, context_.largest_count))));
    }
    return Status();
  }

  Status receive_part(int peer, std::size_t element, std::size_t count) {
    return in_pieces(count, [&](std::size_t first, int piece) {
      return mpi_status(MPI_Irecv(output_at(element + first), piece, type_, peer,
                                  context_.tag_bound, context_.comm, request()),
                        "MPI_Irecv");
    });
  }

  Status send_part(int peer, std::size_t element, std::size_t count) {
    return in_pieces(count, [&](std::size_t first, int piece) {
      return mpi_status(MPI_Isend(input_at(element + first), piece, type_, peer, context_.tag_bound,
                                  context_.comm, request()),
                        "MPI_Isend");
    });
  }

  const MpiContext& context_;
  const CollectiveCall& call_;
  MpiOperation& operation_;
  const DType dtype_;
  const MPI_Datatype type_;
  const std::size_t p_;
  const bool is_root_;
};

}  // namespace

Status begin_movement(const MpiContext& context, const CollectiveCall& call,
                      MpiOperation& operation) {
  return Movement(context, call, operation).begin();
}

}  // namespace dlaunch
