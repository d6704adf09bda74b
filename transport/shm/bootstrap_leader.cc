#include "transport/shm/bootstrap.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "transport/shm/bootstrap_packets.h"

namespace dlaunch {
namespace {

// A guest that has not proved itself is dropped after this.
constexpr std::chrono::seconds kPatience{30};
// After a guest that could not be let in.
constexpr std::chrono::milliseconds kAfterFailedAccept{20};
// Guests at a time: strangers cannot use up the descriptors.
constexpr std::size_t kMaxGuests = 1024;
// Of a limited address space heaps take one in so many: the program needs it too, and every part of
// the world has a segment of its own.
constexpr std::size_t kPartOfAddresses = 4;

// A memfd that cannot shrink: a mapping of less would end in SIGBUS.
Result<Descriptor> make_file(std::size_t bytes) {
  Descriptor file(::memfd_create("dlaunch", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return Status::from_errno("memfd_create", errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::from_errno("ftruncate", errno);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::from_errno("F_ADD_SEALS", errno);
  }
  return file;
}

std::size_t limit_of(int resource) {
  rlimit limit{};
  const bool limited = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? limit.rlim_cur : std::numeric_limits<std::size_t>::max();
}

// What this process may still map.
std::size_t address_space_left() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::size_t limit = limit_of(RLIMIT_AS);
  return limit - std::min(limit, pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
}

Status too_large(std::size_t bytes, const std::string& most) {
  return Status(StatusCode::kUnavailable,
                "the segment takes " + std::to_string(bytes) + " bytes, but " + most);
}

// As large as its heaps can be where files and address space are limited.
Result<SegmentLayout> possible_layout(int members, int lanes) {
  const SegmentLayout bare = SegmentLayout::of(members, lanes, 0);
  const std::size_t file = limit_of(RLIMIT_FSIZE);  // beyond, the system ends the process
  if (bare.total_bytes > file) {
    return too_large(bare.total_bytes,
                     "a file may have " + std::to_string(file) + " only (ulimit -f)");
  }
  const std::size_t addresses = address_space_left();
  if (bare.total_bytes > addresses) {
    return too_large(bare.total_bytes,
                     std::to_string(addresses) + " are left of the address space (ulimit -v)");
  }
  const std::size_t room =
      std::min(file - bare.total_bytes, (addresses - bare.total_bytes) / kPartOfAddresses);
  const std::size_t heap =
      std::min(default_heap_bytes(members),
               room / static_cast<std::size_t>(members) / kHugePage * kHugePage);
  return SegmentLayout::of(members, lanes, heap);
}

Status make_doorbells(std::size_t count, std::vector<Descriptor>& into) {
  into.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    into.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!into.back().is_open()) return Status::from_errno("eventfd", errno);
  }
  return Status();
}

}  // namespace

struct GroupLeader::Guest {
  LocalSocket socket;
  Nonce challenge = make_nonce();
  int slot = -1;  // until it has proved itself
  Deadline patience = Deadline::after(kPatience);
  bool gone = false;
};

Result<std::unique_ptr<GroupLeader>> GroupLeader::start(LocalSocket listener,
                                                        GroupIdentity identity,
                                                        const MemoryProbe& probe) {
  const int members = static_cast<int>(identity.candidates.size());
  HostGroup group;
  Result<SegmentLayout> layout = possible_layout(members, identity.lanes);
  if (!layout.ok()) return layout.status();
  group.layout = *layout;
  Result<Descriptor> file = make_file(group.layout.total_bytes);
  if (!file.ok()) return file.status();
  Result<Mapping> memory = Mapping::of_file(file->get(), group.layout.total_bytes);
  if (!memory.ok()) return memory.status();
  group.memory = *std::move(memory);
  group.file = *std::move(file);
  group.header().nonce = make_nonce();
  group.header().total_bytes = group.layout.total_bytes;
  const auto doorbells =
      static_cast<std::size_t>(members) * static_cast<std::size_t>(identity.lanes);
  DLAUNCH_RETURN_IF_ERROR(make_doorbells(doorbells, group.doorbells));
  enter_group(group, identity.slot_of(identity.rank), probe);
  Descriptor stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.is_open()) return Status::from_errno("eventfd", errno);
  try {
    return std::unique_ptr<GroupLeader>(new GroupLeader(std::move(listener), std::move(identity),
                                                        std::move(group), std::move(stop)));
  } catch (const std::system_error& error) {
    return Status::from_errno("a thread for the segment", error.code().value());
  }
}

GroupLeader::GroupLeader(LocalSocket listener, GroupIdentity identity, HostGroup group,
                         Descriptor stop)
    : listener_(std::move(listener)),
      identity_(std::move(identity)),
      group_(std::move(group)),
      stop_(std::move(stop)),
      served_(identity_.candidates.size()),
      thread_([this] { serve(); }) {}

GroupLeader::~GroupLeader() {
  stop();
}

void GroupLeader::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

HostGroup GroupLeader::finish() && {
  stop();
  group_.file.close();
  return std::move(group_);
}

void GroupLeader::serve() {
  std::vector<Guest> guests;
  std::vector<pollfd> waits;
  while (true) {
    waits.assign({{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                  {.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}});
    for (const Guest& guest : guests) {
      waits.push_back({.fd = guest.socket.descriptor(), .events = POLLIN, .revents = 0});
    }
    const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience);
    ::poll(waits.data(), waits.size(), guests.empty() ? -1 : static_cast<int>(patience.count()));
    if (waits[0].revents != 0) return;
    for (std::size_t i = 0; i < guests.size(); ++i) {
      Guest& guest = guests[i];
      if (waits[i + 2].revents != 0) {
        guest.gone = !hear(guest);
      } else if (guest.patience.expired()) {
        refuse(Status(StatusCode::kTimeout, "has not proved itself in time"));
        guest.gone = true;
      }
    }
    std::erase_if(guests, [](const Guest& guest) { return guest.gone; });
    if (waits[1].revents != 0) accept(guests);
  }
}

void GroupLeader::accept(std::vector<Guest>& guests) {
  Result<LocalSocket> socket = listener_.accept();
  if (!socket.ok()) {
    refuse(socket.status());
    if (socket.status().code() == StatusCode::kUnauthenticated) return;  // a stranger has gone
    // Without a descriptor for it a guest stays in the queue: at once it would be there again.
    pollfd stop{.fd = stop_.get(), .events = POLLIN, .revents = 0};
    ::poll(&stop, 1, static_cast<int>(kAfterFailedAccept.count()));
    return;
  }
  if (guests.size() >= kMaxGuests) return;
  Guest guest{.socket = *std::move(socket)};
  const Status greeted = guest.socket.send(bytes_of(guest.challenge), {}, guest.patience);
  if (!greeted.ok()) return refuse(greeted);
  guests.push_back(std::move(guest));
}

void GroupLeader::refuse(const Status& why) {
  refusal_ = why.to_string();
}

// Takes in a packet of a guest; false once it is to be dropped. A member that is dropped reports
// what it saw of it; strangers need no report.
bool GroupLeader::hear(Guest& guest) {
  const bool answers = guest.slot < 0;
  const Status heard = answers ? answer(guest) : judge(guest);
  if (!heard.ok()) refuse(heard);
  return answers && heard.ok();
}

Status GroupLeader::answer(Guest& guest) {
  BootstrapResponse response;
  // There is a packet: this does not wait.
  DLAUNCH_RETURN_IF_ERROR(guest.socket.receive(bytes_of(response), nullptr, guest.patience));
  if (!proof_holds(response.proof, identity_.token, HandshakeRole::kConnector, guest.challenge,
                   response.nonce)) {
    return Status(StatusCode::kUnauthenticated, "does not know the job's token");
  }
  const int slot = identity_.slot_of(response.rank);
  if (response.version != kBootstrapVersion || response.job != identity_.job ||
      response.world_size != identity_.world_size || response.lanes != identity_.lanes ||
      slot < 0 || response.rank == identity_.rank || served_[static_cast<std::size_t>(slot)]) {
    return Status(StatusCode::kProtocol, "is no member");
  }
  const BootstrapAnswer answer{.proof = make_proof(identity_.token, HandshakeRole::kListener,
                                                   response.nonce, guest.challenge),
                               .segment = group_.header().nonce,
                               .heap_bytes = group_.layout.heap_bytes,
                               .total_bytes = group_.layout.total_bytes};
  const int file = group_.file.get();
  DLAUNCH_RETURN_IF_ERROR(guest.socket.send(bytes_of(answer), {&file, 1}, guest.patience));
  std::vector<int> doorbells;
  for (std::size_t sent = 0; sent < group_.doorbells.size(); sent += doorbells.size()) {
    doorbells.clear();
    const std::size_t end = std::min(sent + kMaxPacketDescriptors, group_.doorbells.size());
    for (std::size_t i = sent; i < end; ++i) doorbells.push_back(group_.doorbells[i].get());
    const BootstrapDoorbells packet{.count = static_cast<std::uint32_t>(doorbells.size())};
    DLAUNCH_RETURN_IF_ERROR(guest.socket.send(bytes_of(packet), doorbells, guest.patience));
  }
  guest.slot = slot;
  return Status();
}

Status GroupLeader::judge(Guest& guest) {
  BootstrapJoined joined;
  DLAUNCH_RETURN_IF_ERROR(guest.socket.receive(bytes_of(joined), nullptr, guest.patience));
  served_[static_cast<std::size_t>(guest.slot)] = true;
  const MemberRecord& record = group_.record(guest.slot);
  const pid_t pid = record.pid.load(std::memory_order_acquire);
  const BootstrapVerdict verdict{.readable =
                                     probe_is_readable(pid, record.probe_address) ? 1U : 0U};
  return guest.socket.send(bytes_of(verdict), {}, guest.patience);
}

}  // namespace dlaunch
