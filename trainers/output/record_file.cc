#include "trainers/output/record_file.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "runtime/base/json_reader.h"
#include "trainers/output/set_aside.h"

namespace dlaunch {
namespace {

// How long a reader of a FIFO may take to make room. Training waits for it only once.
constexpr int kReaderMs = 1000;

/// As write(); what nobody will read any more is an error, as elsewhere, and no signal that ends
/// the program.
ssize_t write_without_signal(int file, const void* data, std::size_t size) {
  sigset_t broken_pipe;
  sigset_t before;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  const ssize_t count = ::write(file, data, size);
  const int error = errno;
  constexpr timespec kNow{};
  if (count < 0 && error == EPIPE) ::sigtimedwait(&broken_pipe, nullptr, &kNow);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return count;
}

/// The descriptor of this process that a path names by way of links; -1: none.
int named_descriptor(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as the kernel
  const fs::path own = fmt::format("/proc/{}/fd", ::getpid());
  fs::path link = fs::absolute(path);
  for (int i = 0; i < kMostLinks; ++i) {
    std::error_code error;
    const fs::path folder = fs::canonical(link.parent_path(), error);
    link = folder / link.filename();
    if (error || !fs::is_symlink(link, error)) return -1;
    if (folder == own) return std::stoi(link.filename());
    link = folder / fs::read_symlink(link, error);
  }
  return -1;
}

bool has_room(int file) {
  pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
  return ::poll(&room, 1, kReaderMs) > 0;
}

}  // namespace

RecordFile::RecordFile(std::string path, Words words)
    : path_(std::move(path)), words_(std::move(words)) {
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code no_folder;
  if (!folder.empty()) std::filesystem::create_directories(folder, no_folder);
  if (no_folder) throw ConfigError(complaint(no_folder.value()));
  if (share_descriptor()) return;
  made_here_ = open(O_EXCL);
  if (!made_here_ && !open(0)) throw ConfigError(complaint(errno));
  follow_link();
}

/// A file that was opened anew would be written to at another place than by those who have it open,
/// who write over what they do not know of.
bool RecordFile::share_descriptor() {
  const int descriptor = named_descriptor(path_);
  struct stat about {};
  if (descriptor < 0 || ::fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) return false;
  if ((::fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY) throw ConfigError(complaint(EACCES));
  file_ = Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!file_.is_open()) throw ConfigError(complaint(errno));
  shared_ = true;
  return true;
}

/// What is set aside is the file itself; a link to it stays.
void RecordFile::follow_link() {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_symlink(path_, error) || !fs::is_regular_file(path_, error)) return;
  const fs::path file = fs::canonical(path_, error);
  if (!error) path_ = file.string();
}

bool RecordFile::open(int flags) {
  constexpr mode_t kLikeAnyFile = 0666;
  constexpr int kHow = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;  // for a FIFO
  file_ = Descriptor(::open(path_.c_str(), kHow | flags, kLikeAnyFile));
  return file_.is_open();
}

RecordFile::~RecordFile() {
  if (made_here_ && is_empty()) ::unlink(path_.c_str());
}

bool RecordFile::is_empty() const {
  struct stat about {};
  return shared_ || (::fstat(file_.get(), &about) == 0 && about.st_size == 0);
}

void RecordFile::clear() {
  missing_.clear();
  // Of a device or a pipe there is nothing to clear; what others have written stays.
  if (!shared_) (void)::ftruncate(file_.get(), 0);
}

std::string RecordFile::set_aside() {
  if (is_empty()) return "";
  std::string name = dlaunch::set_aside(path_);
  if (!open(O_EXCL)) throw std::runtime_error(complaint(errno));
  made_here_ = true;
  return name;
}

void RecordFile::append(std::string_view record) {
  missing_.emplace_back(record);
  const int error = write_missing(!warned_);
  if (error == 0 || std::exchange(warned_, true)) return;
  logger_->warn("{}; the run goes on, what is missing is tried again", complaint(error));
}

void RecordFile::finish() {
  if (const int error = write_missing(true); error != 0) throw std::runtime_error(complaint(error));
}

/// The system's number of the error; 0 if nothing is missing now.
int RecordFile::write_missing(bool patient) {
  for (; !missing_.empty(); missing_.pop_front())
    if (const int error = write_whole(missing_.front(), patient); error != 0) return error;
  return 0;
}

int RecordFile::write_whole(std::string& record, bool patient) {
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  std::size_t written = 0;
  while (written < record.size()) {
    const ssize_t count =
        write_without_signal(file_.get(), record.data() + written, record.size() - written);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
      continue;
    }
    const int error = errno;
    if (error == EINTR || (error == EAGAIN && patient && has_room(file_.get()))) continue;
    if (before < 0 || shared_ || ::ftruncate(file_.get(), before) != 0)  // what is out is out
      record.erase(0, written);
    return error;
  }
  return 0;
}

std::string RecordFile::complaint(int error_number) const {
  const bool no_reader = error_number == ENXIO || error_number == EAGAIN || error_number == EPIPE;
  return fmt::format("{}: cannot write {}: {}{}{}", path_, words_.content,
                     no_reader ? "nobody reads it" : std::generic_category().message(error_number),
                     words_.advice.empty() ? "" : "; ", words_.advice);
}

}  // namespace dlaunch
