#include "trainers/output/record_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/temporary_folder.h"
#include "trainers/output/metrics_file.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class RecordFileTest : public ::testing::Test {
 protected:
  std::string contents() const {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::unique_ptr<RecordFile> open() const {
    return std::make_unique<RecordFile>(path_, RecordFile::Words{"records", "do something"});
  }

  const TemporaryFolder temporary_;
  const std::string path_ = temporary_.path() + "/metrics.jsonl";
};

/// While it lives no file grows beyond so many bytes: as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    (void)std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(RecordFileTest, StaysAsItWasUntilSomethingIsWritten) {
  open();
  EXPECT_FALSE(fs::exists(path_));
  write("old\n");
  open();
  EXPECT_EQ(contents(), "old\n");
  open()->append("new\n");
  EXPECT_EQ(contents(), "old\nnew\n");
  const auto file = open();
  file->clear();
  file->append("alone\n");
  EXPECT_EQ(contents(), "alone\n");
  EXPECT_EQ(file->set_aside(), path_ + ".previous");
  EXPECT_EQ(contents(), "");
  EXPECT_EQ(file->set_aside(), "") << "there is nothing";
  file->append("newest\n");
  EXPECT_EQ(contents(), "newest\n");
  std::ifstream previous(path_ + ".previous");
  std::string line;
  std::getline(previous, line);
  EXPECT_EQ(line, "alone");
}

TEST_F(RecordFileTest, ThatIsALinkIsTheFileItself) {
  write("old\n");
  const std::string link = temporary_.path() + "/link";
  fs::create_symlink("metrics.jsonl", link);
  RecordFile file(link, {"records", ""});
  EXPECT_EQ(file.set_aside(),
            fs::canonical(temporary_.path()).string() + "/metrics.jsonl.previous");
  file.append("new\n");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents(), "new\n");
}

// As with /dev/stdout: a link to a link of the kernel's.
TEST_F(RecordFileTest, ThatIsOpenAlreadyIsWrittenOn) {
  const Descriptor log(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto say = [&](std::string_view line) {
    EXPECT_EQ(::write(log.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  };
  say("begin\n");
  const std::string link = temporary_.path() + "/link";
  fs::create_symlink("/dev/fd/" + std::to_string(log.get()), link);
  RecordFile file(link, {"records", ""});
  EXPECT_TRUE(file.is_empty());
  EXPECT_EQ(file.set_aside(), "");
  file.append("record\n");
  say("end\n");
  file.append("last\n");
  file.clear();
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents(), "begin\nrecord\nend\nlast\n");
}

TEST_F(RecordFileTest, ThatIsOpenForReadingIsRefused) {
  write("text\n");
  const Descriptor reading(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string name = "/dev/fd/" + std::to_string(reading.get());
  EXPECT_THROW(RecordFile(name, {"records", ""}), std::runtime_error);
}

TEST_F(RecordFileTest, TriesAgainWhatAFullDiskHadNoRoomFor) {
  const auto file = open();
  file->append("first\n");
  {
    const FullDisk full(8);
    file->append("second\n");  // two bytes of it would fit
    EXPECT_EQ(contents(), "first\n");
    try {
      file->finish();
      ADD_FAILURE() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_ + ": cannot write records: File too large; do so"));
    }
    EXPECT_EQ(contents(), "first\n");
  }
  {
    const FullDisk room_for_one(15);
    file->append("third\n");
    EXPECT_EQ(contents(), "first\nsecond\n");
  }
  file->append("fourth\n");
  file->finish();
  EXPECT_EQ(contents(), "first\nsecond\nthird\nfourth\n");
}

class RecordsInAFifo : public RecordFileTest {
 protected:
  RecordsInAFifo() { EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0); }
  Descriptor reader() const {
    return Descriptor(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  static std::string read_all(const Descriptor& reader) {
    std::string text(1 << 20, ' ');
    const ssize_t count = ::read(reader.get(), text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
    return text;
  }
};

TEST_F(RecordsInAFifo, NeedAReader) {
  try {
    open();
    ADD_FAILURE() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), path_ + ": cannot write records: nobody reads it; do something");
  }
  const Descriptor reading = reader();
  const auto file = open();
  file->clear();
  file->append("first\n");
  file->append("second\n");
  file->finish();
  EXPECT_EQ(read_all(reading), "first\nsecond\n");
}

TEST_F(RecordsInAFifo, AreKeptForAReaderThatIsSlow) {
  const Descriptor reading = reader();
  const auto file = open();
  const std::string longest(100'000, 'x');  // more than a pipe holds
  file->append(longest);
  file->append("last");
  EXPECT_THROW(file->finish(), std::runtime_error);
  std::string all = read_all(reading);
  file->finish();
  all += read_all(reading);
  EXPECT_EQ(all, longest + "last");
}

TEST_F(RecordsInAFifo, AreKeptForTheNextReaderIfOneGoes) {
  std::optional<Descriptor> reading = reader();
  const auto file = open();
  file->append("first\n");
  EXPECT_EQ(read_all(*reading), "first\n");
  reading.reset();
  file->append("second\n");
  EXPECT_THROW(file->finish(), std::runtime_error);
  reading = reader();
  file->finish();
  EXPECT_EQ(read_all(*reading), "second\n");
}

TEST_F(RecordFileTest, MetricsGoOnOnALineOfTheirOwn) {
  for (const char* before : {"{\"event\":\"st", "{\"event\":\"step\"}\n"}) {
    write(before);
    MetricsFile metrics(temporary_.path(), "metrics.jsonl");
    metrics.begin(true);
    metrics.write({{"event", "resume"}});
    const std::string old = before;
    EXPECT_EQ(contents(), old + (old.back() == '\n' ? "" : "\n") + "{\"event\":\"resume\"}\n");
  }
}

}  // namespace
}  // namespace dlaunch
