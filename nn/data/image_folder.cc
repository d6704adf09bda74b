#include "nn/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <spdlog/fmt/fmt.h>

#include "nn/core/digest.h"
#include "nn/data/image_file.h"

namespace dlaunch::nn {
namespace {

/// What an entry is, or what it links to. Left out, a link to nothing would make the set smaller
/// without a word, and of a class change all that follow.
std::filesystem::file_type type_of(const std::filesystem::directory_entry& entry) {
  std::error_code error;
  const std::filesystem::file_type type = entry.status(error).type();
  if (type == std::filesystem::file_type::none || type == std::filesystem::file_type::not_found)
    throw DataError(fmt::format("{}: {}; fix or remove it", entry.path().string(),
                                error ? error.message() : "dangling symbolic link"));
  return type;
}

/// What lies in the folders and is no part of the set.
struct LeftOut {
  std::size_t count = 0;
  std::string first;  // by name

  void add(const std::string& path) {
    if (count++ == 0 || path < first) first = path;
  }
};

/// Names of what is in a directory and satisfies `wanted`, sorted; hidden ones are not looked at.
template <typename Wanted>
std::vector<std::string> list(const std::string& directory, LeftOut& left_out, Wanted&& wanted) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name[0] == '.') continue;
    if (wanted(*entry))
      names.push_back(std::move(name));
    else
      left_out.add(entry->path().string());
  }
  if (error)
    throw DataError(
        fmt::format("{}: {}; one folder per class is expected in it", directory, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

class ImageFolder : public Dataset {
 public:
  ImageFolder(const std::string& directory, std::optional<ImageShape> resize_to)
      : directory_(directory) {
    class_names_ = list(directory, left_out_, [](const auto& entry) {
      return type_of(entry) == std::filesystem::file_type::directory;
    });
    if (class_names_.empty())
      throw DataError(
          fmt::format("{}: no folders in it; one folder per class is expected", directory));
    for (std::size_t i = 0; i < class_names_.size(); ++i)
      add_class(directory + "/" + class_names_[i], static_cast<std::int32_t>(i));
    shape_ = resize_to.value_or(images_.front().shape);
    if (!resize_to) check_equal_sizes();
  }

  std::size_t size() const override { return images_.size(); }
  ImageShape image_shape() const override { return shape_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::int32_t label(std::size_t index) const override { return images_.at(index).label; }

  void copy_image(std::size_t index, std::span<std::uint8_t> image) const override {
    const Entry& entry = images_.at(index);
    const std::vector<std::uint8_t> pixels = read_image(entry.path, entry.shape);
    if (entry.shape == shape_)
      std::copy(pixels.begin(), pixels.end(), image.begin());
    else
      resize_image(pixels, entry.shape, image, shape_);
  }

  /// Of names and sizes: reading all files would take too long, and so may asking for sizes again.
  std::string fingerprint() const override {
    Digest digest;
    for (const Entry& entry : images_)
      digest.add(fmt::format("{}/{} {}\n", class_names_[static_cast<std::size_t>(entry.label)],
                             std::filesystem::path(entry.path).filename().string(), entry.bytes));
    digest.add(fmt::format("{}x{}", shape_.height, shape_.width));
    return digest.finish();
  }

  std::string remark() const override {
    if (left_out_.count == 0) return "";
    return fmt::format("{}: ignored {} {} in a class folder, first: {}", directory_,
                       left_out_.count,
                       left_out_.count == 1 ? "entry that is not a .png, .jpg or .jpeg file"
                                            : "entries that are not .png, .jpg or .jpeg files",
                       left_out_.first);
  }

 private:
  struct Entry {
    std::string path;
    std::int32_t label;
    ImageShape shape;
    std::uintmax_t bytes;  // of the file
  };

  void add_class(const std::string& directory, std::int32_t label) {
    const std::vector<std::string> names = list(directory, left_out_, [](const auto& entry) {
      return is_image_name(entry.path().filename().string()) &&
             type_of(entry) == std::filesystem::file_type::regular;
    });
    if (names.empty())
      throw DataError(
          fmt::format("{}: no images in it (png, jpg, jpeg); add some or remove "
                      "the folder",
                      directory));
    for (const std::string& name : names) {
      std::string path = fmt::format("{}/{}", directory, name);
      const ImageShape shape = read_image_shape(path);
      std::error_code error;
      const std::uintmax_t bytes = std::filesystem::file_size(path, error);
      if (error) throw DataError(fmt::format("{}: {}", path, error.message()));
      images_.push_back({std::move(path), label, shape, bytes});
    }
  }

  void check_equal_sizes() const {
    for (const Entry& entry : images_)
      if (entry.shape != shape_)
        throw DataError(fmt::format(
            "{}: {} x {} pixels, but {} has {} x {}; make all images the same size or set "
            "data.image_size",
            entry.path, entry.shape.height, entry.shape.width, images_.front().path, shape_.height,
            shape_.width));
  }

  std::string directory_;
  LeftOut left_out_;
  std::vector<std::string> class_names_;
  std::vector<Entry> images_;
  ImageShape shape_;
};

}  // namespace

std::unique_ptr<Dataset> open_image_folder(const std::string& directory,
                                           std::optional<ImageShape> resize_to) {
  return std::make_unique<ImageFolder>(directory, resize_to);
}

}  // namespace dlaunch::nn
