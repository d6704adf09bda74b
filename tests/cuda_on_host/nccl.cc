// The functions of include/nccl.h. What is called in a group is one kernel of a stream, which waits
// there for the other ranks', or until its communicator is aborted.
#include "nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/collective/reduction.h"
#include "tests/cuda_on_host/nccl_world.h"
#include "tests/device/fake_stream.h"

namespace dlaunch::cuda_on_host {
namespace {

// Shared with what is queued or recorded of it, for which an end waits.
struct Member {
  std::shared_ptr<NcclWorld> world;
  int rank = 0;
  int splits = 0;
  bool finalised = false;
  std::atomic<bool> aborted{false};
  std::atomic<ncclResult_t> error{ncclSuccess};
};

enum class Kind { kSend, kRecv, kBroadcast, kAllGather, kAllReduce, kReduce, kReduceScatter };

struct Operation {
  Kind kind;
  const std::byte* input;
  std::byte* output;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // or root

  std::size_t bytes() const { return count * size_of(dtype()); }
  DType dtype() const {
    switch (type) {
      case ncclInt8:
        return DType::kI8;
      case ncclUint8:
        return DType::kU8;
      case ncclUint32:
        return DType::kU32;
      case ncclUint64:
        return DType::kU64;
      case ncclInt32:
        return DType::kI32;
      case ncclInt64:
        return DType::kI64;
      case ncclFloat16:
        return DType::kF16;
      case ncclFloat32:
        return DType::kF32;
      case ncclFloat64:
        return DType::kF64;
      case ncclBfloat16:
        break;
    }
    return DType::kBF16;
  }
  ReduceOp reduction() const {
    constexpr ReduceOp kReductions[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax,
                                        ReduceOp::kMin};
    return kReductions[op];
  }
};

// An operation as one member does it.
class Doing {
 public:
  Doing(Member& member, const Operation& operation) : member_(member), operation_(operation) {}

  void send() const {
    switch (operation_.kind) {
      case Kind::kRecv:
        return;
      case Kind::kSend:
      case Kind::kReduce:
        return post(operation_.peer, 0);
      case Kind::kBroadcast:
        if (member_.rank != operation_.peer) return;
        break;
      default:
        break;
    }
    const std::size_t step = operation_.kind == Kind::kReduceScatter ? operation_.bytes() : 0;
    for (int to = 0; to < member_.world->size(); ++to)
      post(to, static_cast<std::size_t>(to) * step);
  }

  void receive() {
    switch (operation_.kind) {
      case Kind::kSend:
        return;
      case Kind::kRecv:
      case Kind::kBroadcast:
        return copy(operation_.peer, 0);
      case Kind::kAllGather:
        for (int from = 0; from < member_.world->size(); ++from)
          copy(from, static_cast<std::size_t>(from) * operation_.bytes());
        return;
      case Kind::kReduce:
        if (member_.rank != operation_.peer) return;
        break;
      default:
        break;
    }
    reduce();
  }

 private:
  void post(int to, std::size_t at) const {
    member_.world->post(member_.rank, to, {operation_.input + at, operation_.bytes()});
  }
  // Empty if there is none to come.
  std::vector<std::byte> take(int from) {
    auto bytes = member_.world->take(from, member_.rank, member_.aborted);
    if (!bytes.has_value()) return {};
    if (bytes->size() == operation_.bytes()) return *std::move(bytes);
    member_.error = ncclInvalidUsage;
    return {};
  }
  void copy(int from, std::size_t at) {
    const std::vector<std::byte> bytes = take(from);
    if (!bytes.empty()) std::memcpy(operation_.output + at, bytes.data(), bytes.size());
  }
  void reduce() {
    std::vector<std::vector<std::byte>> all;
    std::vector<const void*> operands;
    for (int from = 0; from < member_.world->size(); ++from) {
      all.push_back(take(from));
      if (all.back().empty()) return;
      operands.push_back(all.back().data());
    }
    reduce_operands(operation_.reduction(), operation_.dtype(), operation_.output, operands,
                    operation_.count, 1);
  }

  Member& member_;
  const Operation& operation_;
};

}  // namespace
}  // namespace dlaunch::cuda_on_host

struct ncclComm {
  std::shared_ptr<dlaunch::cuda_on_host::Member> member;
};

namespace dlaunch::cuda_on_host {
namespace {

struct Queued {
  ncclComm_t comm;
  testing::FakeStream* stream;
  std::vector<Operation> operations;
};

// Of the thread.
struct Group {
  int depth = 0;
  std::vector<Queued> queued;
  std::vector<ncclComm_t> ending;
  bool in_background = false;  // what was finalised outside a group, as far as anyone knows
};
thread_local Group group;

bool apart(const Operation& a, const void* input, std::size_t in_bytes, const void* output,
           std::size_t out_bytes) {
  const auto* const in = static_cast<const std::byte*>(input);
  const auto* const out = static_cast<const std::byte*>(output);
  return a.count == 0 || in + in_bytes <= out || out + out_bytes <= in;
}

// Buffers as NCCL wants them. Only what a rank uses counts.
bool lies_well(const Operation& a, int rank, int size) {
  const std::size_t one = a.bytes();
  const std::size_t all = one * static_cast<std::size_t>(size);
  const std::size_t own = one * static_cast<std::size_t>(rank);
  switch (a.kind) {
    case Kind::kAllGather:
      return a.input == a.output + own || apart(a, a.input, one, a.output, all);
    case Kind::kReduceScatter:
      return a.output == a.input + own || apart(a, a.input, all, a.output, one);
    case Kind::kBroadcast:
    case Kind::kReduce:
      if (rank != a.peer) return true;
      [[fallthrough]];
    case Kind::kAllReduce:
      return a.input == a.output || apart(a, a.input, one, a.output, one);
    default:
      return true;
  }
}

// Nothing is sent from where something is received.
bool lie_well(const std::vector<Operation>& operations) {
  for (const Operation& a : operations) {
    for (const Operation& b : operations) {
      if (a.kind == Kind::kSend && b.kind == Kind::kRecv && b.count > 0 &&
          !apart(a, a.input, a.bytes(), b.output, b.bytes()))
        return false;
    }
  }
  return true;
}

ncclResult_t launch(const Queued& queued) {
  if (!lie_well(queued.operations)) return ncclInvalidUsage;
  const Status status =
      queued.stream->call([member = queued.comm->member, operations = queued.operations]() mutable {
        for (const Operation& operation : operations) Doing(*member, operation).send();
        for (const Operation& operation : operations) Doing(*member, operation).receive();
      });
  return status.ok() ? ncclInProgress : ncclInternalError;
}

void end(ncclComm_t comm) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (comm->member.use_count() > 1) {
    if (deadline.expired()) {
      std::fputs("a communicator is ended while its kernels wait, or are still recorded\n", stderr);
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  delete comm;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const Operation& operation) {
  const Member& member = *comm->member;
  if (member.aborted || member.finalised) return ncclInvalidUsage;
  if (!lies_well(operation, member.rank, member.world->size())) return ncclInvalidUsage;
  if (operation.count == 0) return ncclSuccess;
  auto* const on = static_cast<testing::FakeStream*>(static_cast<void*>(stream));
  const auto same = std::ranges::find_if(
      group.queued, [&](const Queued& one) { return one.comm == comm && one.stream == on; });
  if (same != group.queued.end()) {
    same->operations.push_back(operation);
  } else {
    group.queued.push_back({comm, on, {operation}});
  }
  return ncclSuccess;
}

ncclResult_t make(std::shared_ptr<NcclWorld> world, int rank, const ncclConfig_t& config,
                  ncclComm_t* comm) {
  if (config.blocking != 0) return ncclInvalidArgument;
  world->join();
  auto member = std::make_shared<Member>();
  member->world = std::move(world);
  member->rank = rank;
  *comm = new ncclComm{std::move(member)};
  return ncclInProgress;
}

template <typename Call>
ncclResult_t in_group(const Call& call) {
  (void)ncclGroupStart();
  const ncclResult_t result = call();
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

ncclResult_t queue(Operation operation, const void* input, void* output, ncclComm_t comm,
                   cudaStream_t stream) {
  operation.input = static_cast<const std::byte*>(input);
  operation.output = static_cast<std::byte*>(output);
  return in_group([&] { return add(comm, stream, operation); });
}

}  // namespace
}  // namespace dlaunch::cuda_on_host

// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's

using namespace dlaunch::cuda_on_host;  // NOLINT(google-build-using-namespace)

const char* ncclGetErrorString(ncclResult_t /*result*/) {
  return "an error of the stand-in for NCCL";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<std::uint64_t> ids{0};
  const std::uint64_t number = ++ids;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  return make(NcclWorld::of(number, size), rank, *config, comm);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int /*color*/, int /*key*/, ncclComm_t* made,
                           ncclConfig_t* config) {
  Member& member = *comm->member;
  return make(member.world->part(member.splits++), member.rank, *config, made);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Member& member = *comm->member;
  const bool ending = member.finalised && comm->member.use_count() > 1;
  *error = !member.world->complete() || ending ? ncclInProgress : member.error.load();
  if (*error != ncclInProgress) group.in_background = false;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (group.depth == 0 && std::exchange(group.in_background, true)) {
    std::fputs("a communicator is finalised while another one still is\n", stderr);
    std::abort();
  }
  comm->member->finalised = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return in_group([&] {
    group.ending.push_back(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->member->aborted = true;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group.depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (const Queued& queued : std::exchange(group.queued, {})) {
    const ncclResult_t launched = launch(queued);
    if (result == ncclSuccess || result == ncclInProgress) result = launched;
  }
  for (ncclComm_t const comm : std::exchange(group.ending, {})) end(comm);
  return result;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return queue({.kind = Kind::kSend, .count = count, .type = type, .peer = peer}, data, nullptr,
               comm, stream);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return queue({.kind = Kind::kRecv, .count = count, .type = type, .peer = peer}, nullptr, data,
               comm, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return queue({.kind = Kind::kBroadcast, .count = count, .type = type, .peer = root}, input,
               output, comm, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return queue({.kind = Kind::kAllGather, .count = count, .type = type}, input, output, comm,
               stream);
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return queue({.kind = Kind::kAllReduce, .count = count, .type = type, .op = op}, input, output,
               comm, stream);
}

ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return queue({.kind = Kind::kReduce, .count = count, .type = type, .op = op, .peer = root}, input,
               output, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return queue({.kind = Kind::kReduceScatter, .count = count, .type = type, .op = op}, input,
               output, comm, stream);
}

// NOLINTEND(readability-identifier-naming)
