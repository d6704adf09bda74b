// tools/fetch_data against an HTTP server of our own on a port that the system chooses.
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <asio.hpp>

#include "runtime/base/temporary_folder.h"
#include "tests/support/subprocess.h"

namespace dlaunch {
namespace {

using testing::CompletedProcess;
using ::testing::HasSubstr;

/// Serves one file, in parts if asked for, to one client at a time.
class FileServer {
 public:
  explicit FileServer(std::string content) : content_(std::move(content)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~FileServer() {
    stopping_ = true;
    // Wakes the accept; a failure means that it has ended already.
    asio::error_code ignored;
    asio::ip::tcp::socket(io_).connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;

  std::string url(const std::string& path = "/set.tar.gz") const {
    return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + path;
  }
  void ignore_ranges() { ranges_ = false; }
  /// Bytes of content that went over the wire.
  std::size_t bytes_sent() {
    const std::lock_guard lock(mutex_);
    return bytes_sent_;
  }

 private:
  void serve() {
    while (true) {
      asio::ip::tcp::socket socket(io_);
      asio::error_code error;
      acceptor_.accept(socket, error);
      if (stopping_ || error) return;
      asio::streambuf buffer;
      const std::size_t size = asio::read_until(socket, buffer, "\r\n\r\n", error);
      if (error) continue;
      const auto begin = asio::buffers_begin(buffer.data());
      asio::write(socket, asio::buffer(answer(std::string(begin, begin + static_cast<long>(size)))),
                  error);
    }
  }

  std::string answer(const std::string& request) {
    if (request.find("GET /set.tar.gz ") != 0)
      return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    std::size_t from = 0;
    const std::size_t range = request.find("Range: bytes=");
    if (ranges_ && range != std::string::npos)
      from = std::strtoul(request.c_str() + range + 13, nullptr, 10);
    if (from >= content_.size() && from > 0)
      return "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const std::string body = content_.substr(from);
    std::ostringstream head;
    if (from > 0)
      head << "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " << from << "-"
           << content_.size() - 1 << "/" << content_.size() << "\r\n";
    else
      head << "HTTP/1.1 200 OK\r\n";
    head << "Content-Length: " << body.size() << "\r\nConnection: close\r\n\r\n";
    const std::lock_guard lock(mutex_);
    bytes_sent_ += body.size();
    return head.str() + body;
  }

  std::string content_;
  std::atomic<bool> ranges_ = true;
  std::atomic<bool> stopping_ = false;
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  std::mutex mutex_;
  std::size_t bytes_sent_ = 0;
  std::thread thread_;
};

class FetchData : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto curl = testing::run_command({.arguments = {"/bin/sh", "-c", "command -v curl"}});
    if (curl.exit_code != 0) GTEST_SKIP() << "curl is not installed";
    // A small archive with the right folder, of bytes that do not compress.
    shell(
        "mkdir -p cifar-10-batches-bin && head -c 200000 /dev/urandom > "
        "cifar-10-batches-bin/test_batch.bin && for i in 1 2 3 4 5; do echo $i > "
        "cifar-10-batches-bin/data_batch_$i.bin; done && tar -czf set.tar.gz cifar-10-batches-bin "
        "&& "
        "cp -r cifar-10-batches-bin original && rm -r cifar-10-batches-bin");
    archive_ = read("set.tar.gz");
    md5_ = shell("md5sum < set.tar.gz").substr(0, 32);
  }

  std::string shell(const std::string& script) const {
    const CompletedProcess process = testing::run_command(
        {.arguments = {"/bin/bash", "-ec", "cd '" + directory_ + "' && " + script}});
    EXPECT_EQ(process.exit_code, 0) << process.error;
    return process.out;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(directory_ + "/data");
    std::ofstream(directory_ + "/" + name, std::ios::binary) << content;
  }

  CompletedProcess fetch(const std::string& url, const std::string& md5,
                         const std::string& set = "cifar-10") const {
    return testing::run_command({.arguments = {std::string(SOURCE_ROOT) + "/tools/fetch_data", set,
                                               directory_ + "/data", "--url", url, "--md5", md5},
                                 .environment = {{"no_proxy", "127.0.0.1"}}});
  }
  void expect_fetched(const CompletedProcess& process) const {
    EXPECT_EQ(process.exit_code, 0) << process.error;
    EXPECT_EQ(read("data/cifar-10-batches-bin/test_batch.bin"), read("original/test_batch.bin"));
    EXPECT_EQ(names_in_data(), std::vector<std::string>{"cifar-10-batches-bin"});
  }
  std::vector<std::string> names_in_data() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/data"))
      names.push_back(entry.path().filename());
    return names;
  }
  /// The last line on stderr.
  static std::string complaint(const CompletedProcess& process) {
    const std::string text = process.error.substr(0, process.error.find_last_not_of('\n') + 1);
    return text.substr(text.rfind('\n') + 1);
  }

  std::string part() const { return "data/.cifar-10-binary." + md5_.substr(0, 8) + ".tar.gz.part"; }

  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
  std::string archive_, md5_;
};

TEST_F(FetchData, DownloadsChecksAndUnpacksOnce) {
  FileServer server(archive_);
  expect_fetched(fetch(server.url(), md5_));
  EXPECT_EQ(server.bytes_sent(), archive_.size());
  const CompletedProcess again = fetch(server.url(), md5_);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.error, HasSubstr("is there already"));
  EXPECT_EQ(server.bytes_sent(), archive_.size());
}

TEST_F(FetchData, SeveralAtOnceDownloadOnce) {
  FileServer server(archive_);
  std::vector<CompletedProcess> done(3);
  std::vector<std::thread> threads;
  for (CompletedProcess& each : done)
    threads.emplace_back([&] { each = fetch(server.url(), md5_); });
  for (std::thread& each : threads) each.join();
  for (const CompletedProcess& each : done) expect_fetched(each);
  EXPECT_EQ(server.bytes_sent(), archive_.size());
}

TEST_F(FetchData, TakesAChecksumInCapitalsAndOptionsWithAnEqualsSign) {
  FileServer server(archive_);
  std::string capitals = md5_;
  for (char& each : capitals) each = static_cast<char>(std::toupper(each));
  expect_fetched(testing::run_command(
      {.arguments = {std::string(SOURCE_ROOT) + "/tools/fetch_data", "cifar-10",
                     directory_ + "/data", "--url=" + server.url(), "--md5=" + capitals},
       .environment = {{"no_proxy", "127.0.0.1"}}}));
}

TEST_F(FetchData, DoesNotTakeAnEmptyFolderForADataSet) {
  FileServer server(archive_);
  std::filesystem::create_directories(directory_ + "/data/cifar-10-batches-bin");
  expect_fetched(fetch(server.url(), md5_));
}

TEST_F(FetchData, GoesOnWhereItStopped) {
  FileServer server(archive_);
  write(part(), archive_.substr(0, archive_.size() / 2));
  expect_fetched(fetch(server.url(), md5_));
  EXPECT_EQ(server.bytes_sent(), archive_.size() - archive_.size() / 2);
}

TEST_F(FetchData, FetchesNothingIfTheArchiveIsThere) {
  FileServer server(archive_);
  write(part(), archive_);
  expect_fetched(fetch(server.url(), md5_));
  EXPECT_EQ(server.bytes_sent(), 0U);
}

TEST_F(FetchData, BeginsAgainIfItCannotGoOn) {
  FileServer server(archive_);
  write(part(), archive_ + "more than there is");
  expect_fetched(fetch(server.url(), md5_));
  std::filesystem::remove_all(directory_ + "/data/cifar-10-batches-bin");
  server.ignore_ranges();
  write(part(), archive_.substr(0, 1000));
  expect_fetched(fetch(server.url(), md5_));
}

TEST_F(FetchData, RefusesAWrongChecksumAndRemovesTheDownload) {
  FileServer server(archive_);
  const std::string wrong(32, 'a');
  const CompletedProcess process = fetch(server.url(), wrong);
  EXPECT_EQ(process.exit_code, 3);
  EXPECT_THAT(complaint(process),
              HasSubstr(server.url() + ": wrong checksum " + md5_ + ", expected " + wrong));
  EXPECT_TRUE(names_in_data().empty());
}

TEST_F(FetchData, RefusesFilesThatAreNotTheDataSets) {
  shell(
      "mkdir cifar-100-binary && echo no > cifar-100-binary/train.bin && "
      "tar -czf set.tar.gz cifar-100-binary");
  FileServer server(read("set.tar.gz"));
  const CompletedProcess process =
      fetch(server.url(), shell("md5sum < set.tar.gz").substr(0, 32), "cifar-100");
  EXPECT_EQ(process.exit_code, 3);
  EXPECT_THAT(complaint(process), HasSubstr("the files in the archive are not those of cifar-100"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/data/cifar-100-binary"));
}

TEST_F(FetchData, NamesAServersRefusalInOneLine) {
  FileServer server(archive_);
  const CompletedProcess missing = fetch(server.url("/gone.tar.gz"), md5_);
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(complaint(missing), "fetch_data: " + server.url("/gone.tar.gz") +
                                    ": the server answered 404; give a mirror with --url");
  const CompletedProcess closed = fetch("http://127.0.0.1:1/x", md5_);
  EXPECT_EQ(closed.exit_code, 1);
  EXPECT_THAT(complaint(closed), HasSubstr("http://127.0.0.1:1/x: (7) Failed to connect"));
}

TEST_F(FetchData, RefusesItsCommandLine) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"cifar-11"}, {"cifar-10", "a", "b"}, {"--url"}, {"--what"}}) {
    std::vector<std::string> command{std::string(SOURCE_ROOT) + "/tools/fetch_data"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const CompletedProcess process = testing::run_command({.arguments = command});
    EXPECT_EQ(process.exit_code, 2);
    EXPECT_THAT(process.error, HasSubstr("usage: tools/fetch_data"));
  }
}

}  // namespace
}  // namespace dlaunch
