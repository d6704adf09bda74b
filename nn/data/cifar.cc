#include "nn/data/cifar.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "nn/core/digest.h"

namespace dlaunch::nn {
namespace {

constexpr ImageShape kShape{32, 32, 3};
constexpr std::size_t kPixels = kShape.height * kShape.width;

std::string error_text(int error_number) {
  return std::generic_category().message(error_number);
}

/// An open file of records that all have the same size.
class RecordFile {
 public:
  RecordFile(const std::string& path, std::size_t record_bytes, std::size_t records,
             const std::string& advice)
      : path_(path), advice_(advice), record_bytes_(record_bytes), records_(records) {
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // else a FIFO waits
    if (file_ < 0) fail(error_text(errno));
    struct stat status {};
    const bool known = ::fstat(file_, &status) == 0;
    const auto bytes = static_cast<std::size_t>(status.st_size);
    const bool regular = known && S_ISREG(status.st_mode);
    if (!regular || bytes != record_bytes * records) {
      ::close(file_);
      if (!regular) fail("not a regular file");
      fail(fmt::format("{} bytes, but {} records of {} bytes are {} bytes: it is {}", bytes,
                       records, record_bytes, record_bytes * records,
                       bytes < record_bytes * records ? "truncated" : "another file"));
    }
  }
  RecordFile(RecordFile&& other) noexcept
      : path_(std::move(other.path_)),
        advice_(std::move(other.advice_)),
        record_bytes_(other.record_bytes_),
        records_(other.records_),
        file_(std::exchange(other.file_, -1)) {}
  RecordFile& operator=(RecordFile&&) = delete;
  ~RecordFile() {
    if (file_ >= 0) ::close(file_);
  }

  /// Reads bytes of record `index` from `offset` on. Any thread.
  void read(std::size_t index, std::size_t offset, std::span<std::uint8_t> bytes) const {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const auto position = static_cast<off_t>(index * record_bytes_ + offset + done);
      const ssize_t count = ::pread(file_, bytes.data() + done, bytes.size() - done, position);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(fmt::format("record {}: {}", index, error_text(errno)));
      if (count == 0) fail(fmt::format("record {}: the file was cut while in use", index));
      done += static_cast<std::size_t>(count);
    }
  }

  void add_to(Digest& digest) const {
    constexpr std::size_t kRecordsAtATime = 256;
    std::vector<std::uint8_t> piece;
    for (std::size_t first = 0; first < records_; first += kRecordsAtATime) {
      piece.resize(std::min(kRecordsAtATime, records_ - first) * record_bytes_);
      read(first, 0, piece);
      digest.add(std::as_bytes(std::span(piece)));
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw DataError(fmt::format("{}: {}; {}", path_, why, advice_));
  }

 private:
  std::string path_;
  std::string advice_;
  std::size_t record_bytes_;
  std::size_t records_;
  int file_ = -1;
};

std::vector<std::string> read_class_names(const CifarLayout& layout) {
  std::vector<std::string> names;
  std::ifstream file(layout.class_names_file);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (!file.is_open())  // the images can be used without it
    for (std::size_t i = 0; i < layout.classes; ++i) names.push_back(std::to_string(i));
  if (names.size() != layout.classes)
    throw DataError(fmt::format("{}: {} names for {} classes; {}", layout.class_names_file,
                                names.size(), layout.classes, layout.advice));
  return names;
}

class CifarDataset : public Dataset {
 public:
  explicit CifarDataset(const CifarLayout& layout)
      : records_per_file_(layout.records_per_file),
        label_bytes_(layout.label_bytes),
        class_names_(read_class_names(layout)) {
    const std::size_t record_bytes = label_bytes_ + kShape.size();
    for (const std::string& path : layout.files)
      files_.emplace_back(path, record_bytes, records_per_file_, layout.advice);
    labels_.reserve(layout.files.size() * records_per_file_);
    for (const RecordFile& file : files_) read_labels(file);
  }

  std::size_t size() const override { return files_.size() * records_per_file_; }
  ImageShape image_shape() const override { return kShape; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::int32_t label(std::size_t index) const override { return labels_.at(index); }

  void copy_image(std::size_t index, std::span<std::uint8_t> image) const override {
    std::array<std::uint8_t, kShape.size()> planes;
    files_.at(index / records_per_file_).read(index % records_per_file_, label_bytes_, planes);
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel)
      for (std::size_t channel = 0; channel < kShape.channels; ++channel)
        image[pixel * kShape.channels + channel] = planes[channel * kPixels + pixel];
  }

  std::string fingerprint() const override {
    Digest digest;
    for (const RecordFile& file : files_) file.add_to(digest);
    return digest.finish();
  }

 private:
  void read_labels(const RecordFile& file) {
    for (std::size_t record = 0; record < records_per_file_; ++record) {
      std::array<std::uint8_t, 1> label{};
      file.read(record, label_bytes_ - 1, label);
      if (label[0] >= class_names_.size())
        file.fail(fmt::format("record {}: label {} is out of range, there are {} classes", record,
                              label[0], class_names_.size()));
      labels_.push_back(label[0]);
    }
  }

  std::size_t records_per_file_;
  std::size_t label_bytes_;
  std::vector<std::string> class_names_;
  std::vector<RecordFile> files_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace

CifarLayout cifar_layout(CifarSet set, Split split, const std::string& directory) {
  CifarLayout layout;
  const bool train = split == Split::kTrain;
  layout.records_per_file = 10000;
  if (set == CifarSet::kCifar100) {
    layout.files = {directory + (train ? "/train.bin" : "/test.bin")};
    if (train) layout.records_per_file = 50000;
    layout.label_bytes = 2;
    layout.classes = 100;
    layout.class_names_file = directory + "/fine_label_names.txt";
  } else {
    if (train)
      for (int i = 1; i <= 5; ++i)
        layout.files.push_back(fmt::format("{}/data_batch_{}.bin", directory, i));
    else
      layout.files = {directory + "/test_batch.bin"};
    layout.class_names_file = directory + "/batches.meta.txt";
  }
  layout.advice =
      fmt::format("get it with dlaunch's `tools/fetch_data {} data`, or set data.directory",
                  set == CifarSet::kCifar100 ? "cifar-100" : "cifar-10");
  return layout;
}

std::unique_ptr<Dataset> open_cifar(const CifarLayout& layout) {
  return std::make_unique<CifarDataset>(layout);
}

}  // namespace dlaunch::nn
