#include "runtime/device/shared_flags.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/base/descriptor.h"
#include "runtime/device/abandon.h"
#include "runtime/device/agreement.h"

namespace dlaunch {
namespace {

constexpr std::chrono::milliseconds kForAStreamThatDoesNotWait{1};
constexpr std::chrono::seconds kLongestTry{2};

/// Where the others find rank 0's file. Sent as it is.
struct FilePlace {
  std::int64_t process = 0;
  std::int64_t descriptor = -1;
  std::int64_t device = 0;  // of the file, which tell it from all others
  std::int64_t inode = 0;
};

Status identify(const Descriptor& file, FilePlace& place) {
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return Status::from_errno("fstat", errno);
  place.device = static_cast<std::int64_t>(about.st_dev);
  place.inode = static_cast<std::int64_t>(about.st_ino);
  return Status();
}

// A file without a name: gone with the last process that has mapped it, however that ends.
Result<Descriptor> make_file(std::size_t bytes) {
  Descriptor file(::memfd_create("dlaunch-device", MFD_CLOEXEC));
  if (!file.is_open()) return Status::from_errno("memfd_create", errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::from_errno("ftruncate", errno);
  }
  return file;
}

Result<Descriptor> open_file(const FilePlace& place) {
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) return Status::from_errno("open " + path, errno);
  FilePlace found;
  DLAUNCH_RETURN_IF_ERROR(identify(file, found));
  // In another PID namespace that is somebody else's file.
  if (found.device != place.device || found.inode != place.inode) {
    return Status(StatusCode::kUnavailable, path + " is not the file of rank 0");
  }
  return file;
}

}  // namespace

Result<std::unique_ptr<SharedFlags>> SharedFlags::connect(Communicator& host, Device& device) {
  const FlagLayout layout{host.size()};
  const std::size_t bytes = round_up(layout.words() * sizeof(std::uint32_t), kPage);
  Result<Descriptor> file = Status(StatusCode::kUnavailable, "not opened yet");
  FilePlace place;
  if (host.rank() == 0) {
    file = make_file(bytes);
    if (file.ok()) {
      place = {.process = ::getpid(), .descriptor = file->get()};
      const Status known = identify(*file, place);
      if (!known.ok()) file = known;  // the others learn of it below
    }
  }
  static_assert(sizeof place == 4 * sizeof(std::int64_t));
  DLAUNCH_RETURN_IF_ERROR(host.broadcast(Buffer(&place, 4, DType::kI64), 0));
  if (host.rank() != 0) file = open_file(place);

  std::unique_ptr<SharedFlags> flags(new SharedFlags(layout));
  Status own = file.status();
  if (own.ok()) own = flags->set_up(*file, bytes, host.rank(), device);
  // Nobody begins, and rank 0 does not close its file, before all are there.
  const Status all = agree(host, own).within("shared flags");
  if (all.ok()) return flags;
  if (flags->still_used_) abandon(std::shared_ptr<SharedFlags>(std::move(flags)));
  return all;
}

Status SharedFlags::set_up(const Descriptor& file, std::size_t bytes, int rank, Device& device) {
  auto memory = Mapping::of_file(file.get(), bytes);
  DLAUNCH_RETURN_IF_ERROR(memory.status());
  memory_ = *std::move(memory);
  auto pinned = device.pin({memory_.data(), memory_.size()});
  DLAUNCH_RETURN_IF_ERROR(pinned.status());
  pinned_ = *std::move(pinned);
  DLAUNCH_RETURN_IF_ERROR(try_out(rank, device));
  // Before the first operation every slot counts as read.
  for (const DeviceLane lane : kAllDeviceLanes) {
    for (std::size_t slot = 0; slot < kMemorySlots; ++slot) {
      const std::size_t read = FlagLayout::table(lane, slot, MemoryPhase::kRead);
      for (int to = 0; to < layout_.world; ++to) store(layout_.flag(read, rank, to), 1);
    }
  }
  return Status();
}

// That a device has functions for it does not say that its streams see what the host writes here. A
// word that no other rank uses.
Status SharedFlags::try_out(int rank, Device& device) {
  using Kind = FlagAction::Kind;
  const std::size_t own = layout_.stage(DeviceLane::kBlocking, rank);
  const std::array<FlagAction, 2> actions{
      {{Kind::kWaitUntilEqual, word(own), 1}, {Kind::kWrite, word(own), 2}}};
  const auto stream = device.make_stream(false);
  DLAUNCH_RETURN_IF_ERROR(stream.status());
  DLAUNCH_RETURN_IF_ERROR((*stream)->flags(actions));
  std::this_thread::sleep_for(kForAStreamThatDoesNotWait);
  const bool waited = load(own) == 0;
  store(own, 1);
  const Deadline deadline = Deadline::after(kLongestTry);
  while (load(own) != 2 && !deadline.expired()) std::this_thread::yield();
  still_used_ = load(own) != 2;  // the 1 stays, for a stream that is late
  if (!waited || still_used_) {
    return Status(StatusCode::kUnavailable, "the device's streams do not wait for flags");
  }
  store(own, 0);
  return Status();
}

}  // namespace dlaunch
